"""Comparisons of recipes: false verdicts when looking after every run, coverage, power.

    python bench/compare.py [aa] [coverage] [power] [--data ../shared/data] [--quick]

aa        400 pairs that differ in seed only, judged after every run: resampled public runs (drug
          response models over 20 splits, replicas of speed runs) and tiny trainings (an MLP of
          scikit-learn on its digits, 3 widths x 40 seeds), resampled as well.
coverage  Synthetic ladders with random exponents, noise and gains: how often the 95 % interval of
          the multiplier covers the truth, at the largest size and 10 and 100 times beyond.
power     The share of ladders of 3 sizes that name the winner, by multiplier, noise and seeds.
"""

import argparse
import csv
import warnings
from collections import defaultdict
from pathlib import Path

import needs
import numpy as np

from allometry import laws
from allometry.laws.comparison import paired_runs
from allometry.laws.comparison.sequential import DECISIVE, evidence


def rows_of(path):
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- equal recipes


def drug_response(data):
    """Losses by family and size over splits."""
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows_of(data / "families" / "drug_response_learning_curves.csv"):
        if row["D"] and row["loss"]:
            groups[row["family"]][float(row["D"])].append(float(row["loss"]))
    for name, sizes in groups.items():
        full = {D: losses for D, losses in sizes.items() if len(losses) >= 8}
        if len(full) >= 3:
            chosen = sorted(full)[:: max(1, len(full) // 4)][:4]
            yield name, {D: full[D] for D in chosen}


def speed_runs(data):
    """Final losses of the replicas of each record: one size."""
    last = {}
    for row in rows_of(data / "modded_nanogpt" / "curves_half.csv"):
        run = next(row[k] for k in ("run", "name", "file", "log") if k in row)
        record = next(row[k] for k in ("record", "family", "group") if k in row)
        loss = row.get("val_loss") or row.get("loss")
        step = float(row.get("step") or 0)
        if loss and (run not in last or step >= last[run][1]):
            last[run] = (record, step, float(loss))
    groups = defaultdict(list)
    for record, _, loss in last.values():
        groups[record].append(loss)
    for name, losses in groups.items():
        if len(losses) >= 10:
            yield name, {1.0: losses}


def tiny_trainings(quick):
    """Validation losses of small networks on digits: 3 widths x 40 seeds."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    found = defaultdict(list)
    for width in (4, 8, 16):
        for seed in range(12 if quick else 40):
            model = MLPClassifier(
                (width,), max_iter=12, random_state=seed, learning_rate_init=0.01
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x[:1200], y[:1200])
            found[float(width)].append(log_loss(y[1200:], model.predict_proba(x[1200:])))
    return dict(found)


def false_verdicts(sizes, pairs, rng):
    """Of `pairs` resampled comparisons of equal recipes, how many ever get a verdict."""
    wrong = 0
    seeds = min(5, min(map(len, sizes.values())) // 2)
    for _ in range(pairs):
        rows = []
        for size, losses in sizes.items():
            drawn = rng.permutation(losses)[: 2 * seeds].reshape(seeds, 2)
            rows += [(s, size, i, drawn[s, i]) for s in range(seeds) for i in (0, 1)]
        rows.sort(key=lambda r: (r[0], r[1]))
        frame = {
            "seed": np.array([r[0] for r in rows]),
            "D": np.array([r[1] for r in rows]),
            "recipe": np.array(["AB"[r[2]] for r in rows]),
            "loss": np.array([r[3] for r in rows]),
        }
        at = np.log(max(sizes))
        wrong += any(
            judged({k: v[:n] for k, v in frame.items()}, at) for n in range(3, len(rows) + 1)
        )
    return wrong


def judged(frame, at):
    """Whether the runs give a verdict."""
    if len(set(frame["recipe"])) < 2:
        return False
    return evidence(paired_runs.read(frame, "recipe").two(0, 1), at).value >= DECISIVE


def equal_recipes(data, quick):
    """Print the shares of false verdicts."""
    rng = np.random.default_rng(0)
    share = 0.2 if quick else 1.0
    total = wrong = 0
    for name, groups, count in (
        ("drug response", list(drug_response(data)), 150),
        ("speed runs", list(speed_runs(data)), 100),
        ("tiny trainings", [("digits", tiny_trainings(quick))], 150),
    ):
        each = max(1, round(share * count / len(groups)))
        found = [false_verdicts(sizes, each, rng) for _, sizes in groups]
        pairs = each * len(groups)
        print(f"{name}: {sum(found)} verdicts in {pairs} pairs ({len(groups)} groups)", flush=True)
        total, wrong = total + pairs, wrong + sum(found)
    print(f"all: {wrong} of {total} = {wrong / total:.3f}")


# --- known gains


def ladder(rng, *, sizes, seeds, noise, a, share, shared, mu, nu=0.0, floor=0.0, decades=3.0):
    """Runs of two recipes, and the true log multiplier of the first at a log10 scale."""
    C = np.logspace(20 - decades, 20, sizes)
    middle = 10 ** (20 - decades / 2)

    def loss(c, second):
        h = (mu + nu * np.log(c / 1e20)) * second
        return share * np.exp(floor * second) + (1 - share) * (c * np.exp(h) / middle) ** -a

    rows = []
    for c in C:
        for s in range(seeds):
            common = rng.normal()
            for second in (0, 1):
                chance = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal()
                rows.append(("AB"[second], c, s, loss(c, second) * np.exp(noise * chance)))
    names = ("recipe", "C", "seed", "loss")
    frame = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))

    def truth(at):
        """Log of A's compute over B's for B's loss at `at` (negative if A is better)."""
        part = (loss(at, 1) - share) / (1 - share)
        return np.inf if part <= 0 else np.log(part ** (-1 / a) * middle / at)

    return frame, truth


def coverage(quick):
    """Print the coverage of the multiplier's interval by kind of gain and scale."""
    rng = np.random.default_rng(1)
    count = 40 if quick else 200
    for kind in ("constant gain", "own exponents", "own floors"):
        inside = {1e20: 0, 1e21: 0, 1e22: 0}
        width = {at: [] for at in inside}
        for i in range(count):
            frame, truth = ladder(
                rng,
                sizes=int(rng.integers(3, 7)),
                seeds=int(rng.integers(2, 5)),
                noise=float(np.exp(rng.uniform(np.log(0.001), np.log(0.01)))),
                a=float(rng.uniform(0.08, 0.3)),
                share=float(rng.uniform(0.2, 0.8)),
                shared=float(rng.uniform(0, 0.8)),
                mu=float(rng.normal(0, 0.4)),
                nu=float(rng.normal(0, 0.08)) if kind == "own exponents" else 0.0,
                floor=float(rng.normal(0, 0.01)) if kind == "own floors" else 0.0,
            )
            for at in inside:
                found = laws.compare_recipes(frame, at=at, seed=i)
                lo, hi = found.multiplier.interval
                value = truth(at)
                if found.leader == "A":
                    # What B needs at A's scale: the curve of B inverted at A's loss.
                    value = inverse(truth, at)
                inside[at] += lo <= np.exp(value) <= hi
                width[at].append(np.log(hi / lo))
        print(
            f"{kind}: "
            + ", ".join(
                f"at {at:.0e} {inside[at] / count:.3f} (median width {np.median(width[at]):.2f})"
                for at in inside
            ),
            flush=True,
        )


def inverse(truth, at):
    """Log of what B needs over A at A's scale `at`: -truth(b) where b exp(truth(b)) = at."""
    low, high = np.log(at) - 30, np.log(at) + 30
    for _ in range(80):
        middle = (low + high) / 2
        if middle + truth(np.exp(middle)) < np.log(at):
            low = middle
        else:
            high = middle
    return (low + high) / 2 - np.log(at)


def power(quick):
    """Print the share of verdicts at the largest size and ten times beyond."""
    rng = np.random.default_rng(2)
    count = 10 if quick else 60
    print("multiplier | noise | seeds | verdict at the largest size | at 10 times | wrong")
    for m in (1.05, 1.1, 1.2, 1.5):
        for noise in (0.001, 0.003):
            for seeds in (2, 4, 8):
                hits, wrong = [0, 0], 0
                for _ in range(count):
                    frame, _ = ladder(
                        rng, sizes=3, seeds=seeds, noise=noise, a=0.15, share=0.5, shared=0.5,
                        mu=float(np.log(m)),
                    )  # fmt: skip
                    runs = paired_runs.read(frame, "recipe").two(0, 1)
                    for j, at in enumerate((1e20, 1e21)):
                        found = evidence(runs, np.log(at))
                        hits[j] += found.value >= DECISIVE and found.sign > 0
                        wrong += found.value >= DECISIVE and found.sign < 0
                shares = " | ".join(f"{h / count:.2f}" for h in hits)
                print(f"{m} | {noise} | {seeds} | {shares} | {wrong}", flush=True)


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["aa", "coverage", "power"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if "coverage" in asked.parts:
        coverage(asked.quick)
    if "power" in asked.parts:
        power(asked.quick)
    if "aa" in asked.parts:
        equal_recipes(asked.data, asked.quick)


if __name__ == "__main__":
    needs.run(main)
