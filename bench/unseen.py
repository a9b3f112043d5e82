"""Are the intervals true of runs that nothing here was chosen on? Yours, or newly published ones.

Reads a table with columns family, N, D, C and loss. Each family is cut as grids are in
`bench/coverage.py` (losses) and, where it has budgets with several sizes, as in `bench/split.py`
(best sizes, and the compute that reaches a loss), and the same figures are printed.

Run: `python bench/unseen.py RUNS.csv [--draws 60]`
"""

import argparse

import coverage
import holdouts
import numpy as np
import pandas as pd
import split

import allometry as al


def losses(runs, draws, rng):
    """Coverage, width and error of each hold-out, ours and the usual way's."""
    for small, large in holdouts.cut(runs):
        law = al.laws.fit(small, bootstrap=draws)
        truth = large.loss.to_numpy(float)
        points = {k: large[k].to_numpy(float) for k in ("N", "D", "C")}
        usual = coverage.judge(coverage.usual(small, large, draws, rng), truth)
        ours = coverage.judge(law.band(**points), truth)
        yield ours | {f"usual {k}": v for k, v in usual.items()}


def sizes(runs, draws, rng):
    """Error, share held and width of every way to the best size, for every other budget."""
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
        print(f"{family:40s} {len(part):3d} hold-outs: {coverage.said(coverage.summed(part))}")
    if best:
        keys = ["method", "family", "cut"]
        each = pd.DataFrame(best).groupby(keys)[["error", "held", "width"]].mean()
        for method, part in each.groupby(level=0):
            print(split.said(method, "best sizes", part))


if __name__ == "__main__":
    main()
