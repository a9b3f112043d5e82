"""Level of every two-sample test: how often it rejects equal distributions at 5 %.

Run: python bench/levels.py [--repeats 1000] [--rows 60 50] [--only NAME]

Both sets come from one distribution: five discrete ones, full of ties, and a continuous one. With
1,000 repeats a level has a standard error of 0.7 %. `different_bins` is many tests: its row is the
share of bins called different, over all repeats. The last two lines are the share of intervals of
a discrepancy that exclude 0, which a test by interval would reject.
"""

import argparse
import math
import time
import warnings

import needs
import numpy as np
import torch

from allometry.measure import (
    classifier_p_value,
    copying,
    different_bins,
    efron_p_value,
    energy_distance,
    mmd2,
    nearest_neighbour_p_value,
    retrieval_p_value,
)


def binary(rng, n):
    return rng.integers(2, size=(n, 3)).astype(float)


def categorical(rng, n):
    """One column of five categories with unequal probabilities, one-hot."""
    return np.eye(5)[rng.choice(5, p=[0.4, 0.3, 0.15, 0.1, 0.05], size=n)]


def poisson(rng, n):
    return rng.poisson(2.0, size=(n, 3)).astype(float)


def rounded(rng, n):
    return rng.normal(size=(n, 2)).round(1)


def mixed(rng, n):
    """A continuous column, a count, a category and a rounded number."""
    columns = [
        rng.normal(size=n),
        rng.poisson(1.0, size=n),
        rng.integers(3, size=n),
        rng.normal(size=n).round(),
    ]
    return np.stack(columns, 1).astype(float)


def continuous(rng, n):
    return rng.normal(size=(n, 3))


DATA = {f.__name__: f for f in (binary, categorical, poisson, rounded, mixed, continuous)}


def excludes(found, value):
    return 0.0 if found.covers(value) else 1.0


def tests(draw, rng, n, m, seed):
    """Result of each test on one pair of sets: 1 rejects, 0 does not; a share for bins."""
    x, y, z, training = draw(rng, n), draw(rng, m), draw(rng, m), draw(rng, n)

    def g():
        return torch.Generator().manual_seed(seed)

    return {
        "nearest_neighbour_p_value": lambda: (
            nearest_neighbour_p_value(x, y, permutations=199, rng=g()).value <= 0.05
        ),
        "classifier_p_value": lambda: (
            classifier_p_value(x, y, permutations=199, steps=15, rng=g()).value <= 0.05
        ),
        "efron_p_value": lambda: efron_p_value(x, y, resamples=199, rng=g()).value <= 0.05,
        "retrieval_p_value": lambda: (
            retrieval_p_value(x, y, z, permutations=199, rng=g()).value <= 0.05
        ),
        "different_bins": lambda: (
            different_bins(
                np.concatenate([x, draw(rng, 3 * n)]), draw(rng, 4 * m), bins=8, rng=g()
            ).value
        ),
        "copying, interval about 1/2": lambda: excludes(copying(training, x, y), 0.5),
        "mmd2, interval about 0": lambda: excludes(mmd2(x, y), 0.0),
        "energy_distance, interval about 0": lambda: excludes(energy_distance(x, y), 0.0),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--rows", type=int, nargs=2, default=(60, 50))
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # k-means on fewer distinct rows than cells
    started = time.process_time()
    found = {}
    for name, draw in DATA.items():
        rng = np.random.default_rng(options.seed)
        for repeat in range(options.repeats):
            for test, run in tests(draw, rng, *options.rows, repeat).items():
                if options.only in test:
                    found.setdefault(test, {}).setdefault(name, []).append(float(run()))
    print("| rejects equal distributions, % | " + " | ".join(DATA) + " |")
    print("|---" * (len(DATA) + 1) + "|")
    for test, levels in found.items():
        cells = [f"{100 * np.mean(levels[name]):.1f}" for name in DATA]
        print(f"| {test} | " + " | ".join(cells) + " |")
    se = 100 * math.sqrt(0.05 * 0.95 / options.repeats)
    print(f"\n{options.repeats} repeats of {options.rows} rows: standard error {se:.2f} %.")
    print(f"{time.process_time() - started:.0f} s of CPU.")


if __name__ == "__main__":
    needs.run(main, needs.DATA)
