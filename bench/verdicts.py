"""Does the verdict identify the corruption of samples? A table of corruptions against verdicts.

Run: python bench/verdicts.py [--sets ring,table] [--seeds 0,1,2,3,4] [--rows 300]

The thresholds in `measure/verdict.py` were chosen on `ring` and `table`, seeds 0 to 4. The other
sets (`grid`, `mixture4`, `digits`, `moons`) and seeds from 100 on were inspected only afterwards.
Fresh rows represent a good model; each corruption has a mild and a strong form.
"""

import argparse
from collections import Counter

import needs
import numpy as np
import torch
from sklearn.datasets import load_digits, make_moons

from allometry.measure import score
from allometry.measure.context import Effort
from allometry.measure.verdict import KINDS

NAMES = (
    "precision",
    "recall",
    "density",
    "coverage",
    "nearest_neighbour",
    "classifier_",
    "efron",
    "authenticity",
    "copying",
)
DIGITS = load_digits()


def ring(rng, n):
    mode = rng.integers(8, size=n)
    angle = 2 * np.pi * mode / 8
    centres = 2 * np.stack([np.cos(angle), np.sin(angle)], 1)
    return centres + 0.1 * rng.normal(size=(n, 2)), mode


def table(rng, n):
    """Two correlated columns, a skewed one and a category."""
    a, kind = rng.normal(size=n), rng.integers(3, size=n)
    b, c = 0.7 * a + 0.5 * rng.normal(size=n), np.exp(0.5 * rng.normal(size=n))
    return np.stack([a, b, c, kind.astype(float)], 1), kind


def grid(rng, n):
    mode = rng.integers(25, size=n)
    return np.stack([mode % 5, mode // 5], 1) * 2.0 + 0.15 * rng.normal(size=(n, 2)), mode


def mixture4(rng, n):
    """Five modes with heavy tails in four columns of unequal scale."""
    centres = [[0, 0, 0, 0], [3, 0, 1, 0], [0, 4, 0, 2], [-3, 1, 0, 0], [0, 0, 5, -3]]
    mode = rng.integers(5, size=n)
    return np.array(centres)[mode] + rng.standard_t(5, size=(n, 4)) * [1, 0.5, 2, 1], mode


def digits(rng, n):
    rows = rng.permutation(len(DIGITS.data))[:n]
    return DIGITS.data[rows], DIGITS.target[rows]


def moons(rng, n):
    return make_moons(n, noise=0.07, random_state=int(rng.integers(2**31)))


SETS = {f.__name__: f for f in (ring, table, grid, mixture4, digits, moons)}


def corrupted(draw, rng, n):
    """Training rows, held-out rows, and samples by corruption."""
    x, mode = draw(rng, min(4 * n, len(DIGITS.data)))
    train, real, fresh = x[:n], x[n : 2 * n], x[2 * n : 3 * n]
    sd, noise = x.std(0), rng.normal(size=fresh.shape)
    names = np.unique(mode)
    kept = np.isin(mode[2 * n :], names[: max(1, int(0.4 * len(names)))])
    few = fresh[rng.choice(n, 10)][rng.integers(10, size=n)]
    way = np.sign(rng.normal(size=x.shape[1]))
    return (
        train,
        real,
        {
            ("good", "as many rows"): fresh,
            ("good", "half as many"): fresh[: n // 2],
            ("blurred", "noise of 0.3 sd"): fresh + 0.3 * sd * noise,
            ("blurred", "noise of 0.6 sd"): fresh + 0.6 * sd * noise,
            ("collapsed", "4 in 10 modes"): x[2 * n :][kept][:n],
            ("collapsed", "10 rows"): few + 0.01 * sd * noise,
            ("memorised", "training rows"): train,
            ("memorised", "with noise of 0.01 sd"): train[rng.integers(n, size=n)]
            + 0.01 * sd * noise,
            ("shifted", "by 0.5 sd"): fresh + 0.5 * sd * way,
            ("shifted", "by 1 sd"): fresh + sd * way,
        },
    )


def verdicts(names, seeds, rows, effort=None):
    """Counts of each verdict for each corruption of each set."""
    effort = effort or Effort(steps=100, permutations=399)
    found = {}
    for name in names:
        for seed in seeds:
            rng = np.random.default_rng(seed)
            train, real, made = corrupted(SETS[name], rng, rows)
            for what, samples in made.items():
                scores = score(real, samples, training=train, only=NAMES, effort=effort, seed=seed)
                assert scores.verdict is not None
                found.setdefault((name, *what), Counter())[scores.verdict.kind] += 1
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", default="grid,mixture4,digits,moons")
    parser.add_argument("--seeds", default="100,101,102,103,104")
    parser.add_argument("--rows", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    found = verdicts(options.sets.split(","), seeds, options.rows)
    print("| data | corruption | form | " + " | ".join(KINDS) + " |")
    print("|---" * (len(KINDS) + 3) + "|")
    for (name, kind, how), counts in found.items():
        cells = " | ".join(str(counts[k] or "") for k in KINDS)
        print(f"| {name} | {kind} | {how} | {cells} |")
    right = sum(counts[kind] for (_, kind, _), counts in found.items())
    whole = sum(sum(counts.values()) for counts in found.values())
    print(f"\n{right} of {whole} identified correctly.")


if __name__ == "__main__":
    needs.run(main)
