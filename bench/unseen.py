"""Interval coverage on runs that no constant was chosen on: yours, or newly published ones.

Reads a table with columns family, N, D, C and loss. Each family is cut like the grids of
`bench/coverage.py` (losses) and, if it has budgets with several sizes, like those of
`bench/split.py` (compute-optimal sizes, and the compute that reaches a loss). Prints the same
figures.

Run: `python bench/unseen.py RUNS.csv [--draws 60]`
"""

import argparse

import coverage
import holdouts
import needs
import numpy as np
import pandas as pd
import split

import allometry as al


def losses(runs, draws, rng):
    """Coverage, width and error of each hold-out, ours and the baseline's."""
    for small, large in holdouts.cut(runs):
        law = al.laws.fit(small, bootstrap=draws)
        truth = large.loss.to_numpy(float)
        points = {k: large[k].to_numpy(float) for k in ("N", "D", "C")}
        baseline = coverage.evaluate(coverage.baseline(small, large, draws, rng), truth)
        ours = coverage.evaluate(law.band(**points), truth)
        yield ours | {f"baseline {k}": v for k, v in baseline.items()}


def sizes(runs, draws, rng):
    """Error, coverage and width of every method, with cuts at every other budget."""
    true = {budget: split.best(part, rng) for budget, part in runs.groupby("C")}
    true = {budget: known for budget, known in true.items() if known is not None}
    for cut in sorted(runs.C.unique())[2::2]:
        small = runs[cut >= runs.C]
        ahead = {b: known for b, known in true.items() if b >= holdouts.FACTOR * cut * 0.999}
        if len(small) >= 20 and ahead:
            for row in split.compared(small, ahead, draws):
                yield row | {"cut": cut}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs")
    parser.add_argument("--draws", type=int, default=60)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    found, best = [], []
    for family, runs in pd.read_csv(options.runs).groupby("family"):
        part = runs[["N", "D", "C", "loss"]]
        found += [{"family": family, **row} for row in losses(part, options.draws, rng)]
        best += [{"family": family, **row} for row in sizes(part, options.draws, rng)]
    frame = pd.DataFrame(found)
    for family, part in [*frame.groupby("family"), ("all", frame)]:
        print(f"{family:40s} {len(part):3d} hold-outs: {coverage.describe(coverage.summed(part))}")
    if best:
        keys = ["method", "family", "cut"]
        each = pd.DataFrame(best).groupby(keys)[["error", "covered", "width"]].mean()
        for method, part in each.groupby(level=0):
            print(split.describe(method, "optimal sizes", part))


if __name__ == "__main__":
    needs.run(main, needs.DATA)
