"""Compute-optimal sizes and losses of held-out budgets, predicted from smaller budgets.

A hold-out is one public family of runs at several budgets ("isoFLOP"), cut at one of them.
Everything at or below the cut is fitted. The compute-optimal size of each budget at three times as
much or more is predicted. The reference value is the minimum of a parabola in log size through
that budget's own runs, if it lies among them and is known to within a third.

The inverse problem ("solve") asks for the compute that reaches the loss at that minimum; its
reference value is the budget.

Each hold-out gives the mean absolute error of the log of the size, the coverage of the 95 %
interval and its mean log width; then means over hold-outs are taken. `auto`'s plan is compared
with the three approaches of Hoffmann et al. The compute-optimal sizes of synthetic grids are known
exactly.

`holdouts.assigned_set` says which families constants were chosen on.

Run: `python bench/split.py [--draws 200] [--synthetic 60] [--json FILE]`
"""

import argparse
import json
import time

import coverage
import holdouts
import needs
import numpy as np
import pandas as pd

import allometry as al
from allometry._core.errors import InputError
from allometry.laws.hoffmann import allocations
from allometry.laws.plan import plan

EXPERIMENTS = {
    "chinchilla": "epochai_chinchilla__massivetext__chinchilla",
    "llama 3": "llama_3__raw_loss",
    "misfitting": "misfitting__fineweb_c4__transformer",
}
LABELS = {
    "chinchilla": "grid epoch n=1",
    "llama 3": "grid openathena llama_3__raw_loss n=1",
    "misfitting": "grid openathena misfitting__fineweb_c4__transformer n=1",
}
LEAST = 5
"""Runs that a budget needs for a known compute-optimal size."""

KNOWN = 0.35
"""Largest standard error of the log of a known compute-optimal size."""


def lowest(n, y):
    """Log size at the minimum of a parabola; NaN if it has a maximum."""
    bend, slope, _ = np.polyfit(n - n.mean(), y, 2)
    return n.mean() - slope / (2 * bend) if bend > 0 else np.nan


def best(runs, rng, draws=200):
    """Log of a budget's compute-optimal size and its loss; None if its runs don't identify it."""
    n, y = np.log(runs.N.to_numpy(float)), np.log(runs.loss.to_numpy(float))
    at = lowest(n, y)
    if len(runs) < LEAST or not n.min() <= at <= n.max():
        return None
    smooth = np.polyval(np.polyfit(n - at, y, 2), n - at)
    noise = np.sqrt(((y - smooth) ** 2).sum() / (len(n) - 3))
    again = [lowest(n, smooth + noise * rng.standard_normal(len(n))) for _ in range(draws)]
    loss = float(np.exp(np.polyfit(n - at, y, 2)[2]))
    return (at, loss) if np.nanstd(again) < KNOWN else None


def cases():
    """Name, runs to fit, and {compute: (log of the best size, lowest loss)} of every hold-out."""
    a = pd.read_csv(holdouts.DATA / "openathena_isoflops/isoflops_extract.csv")
    a = a.rename(columns={"params": "N", "tokens": "D", "budget": "C"})
    rng = np.random.default_rng(0)
    for name, experiment in EXPERIMENTS.items():
        runs = a[a.experiment == experiment][["N", "D", "C", "loss"]]
        true = {budget: best(part, rng) for budget, part in runs.groupby("C")}
        true = {budget: at for budget, at in true.items() if at is not None}
        cuts = sorted(runs.C.unique())[2:]
        # Budgets a fifth apart are nearly the same hold-out: use every third.
        for cut in cuts[::3] if len(cuts) > 20 else cuts:
            small = runs[cut >= runs.C]
            ahead = {b: at for b, at in true.items() if b >= holdouts.FACTOR * cut * 0.999}
            if len(small) >= 20 and ahead:
                yield name, small, ahead


def synthetic(seed):
    """A well-specified grid, and its optimal sizes at 3, 10 and 30 times its compute."""
    small, _ = coverage.synthetic_grid(seed)
    E, A, alpha, B, beta = coverage.synthetic_law(np.random.default_rng(seed))
    top = float((6 * small.N * small.D).max())
    G = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    ahead = {}
    for C in (3 * top, 10 * top, 30 * top):
        N = G * (C / 6) ** (beta / (alpha + beta))
        ahead[C] = np.log(N), E + A / N**alpha + B / (C / 6 / N) ** beta
    return "synthetic", small, ahead


def evaluate(ends, truth):
    """Error, coverage and width of one prediction, in logs."""
    value, lo, hi = np.log(np.array(ends, dtype=float))
    return {"error": abs(value - truth), "covered": lo <= truth <= hi, "width": hi - lo}


def ends(estimate):
    return estimate.value, *((np.nan, np.nan) if estimate.lo is None else estimate.interval)


def compared(small, ahead, draws):
    """Rows of every method at every larger budget."""
    law = al.laws.fit(small, bootstrap=draws)
    for budget, (truth, loss) in ahead.items():
        yield {"method": "auto", **evaluate(ends(plan(law, budget).N), truth)}
        yield {"method": "solve", **evaluate(ends(law.solve(loss)), np.log(budget))}
        for name, found in allocations(small, budget, bootstrap=draws).items():
            if not isinstance(found, InputError):
                yield {"method": name, **evaluate(ends(found.N), truth)}


def describe(method, where, part):
    mean = part.mean()
    return (
        f"{method:12s} {where:22s} {len(part):3d} hold-outs: error {mean.error:.3f}, "
        f"coverage {mean.covered:.3f}, width {mean.width:.2f} (median {part.width.median():.2f})"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--synthetic", type=int, default=60)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows, clock = [], time.process_time()
    jobs = [*cases(), *(synthetic(seed) for seed in range(1000, 1000 + options.synthetic))]
    for i, (name, small, ahead) in enumerate(jobs):
        part = holdouts.assigned_set(LABELS[name]) if name in LABELS else "new seeds"
        for row in compared(small, ahead, options.draws):
            rows.append({"case": i, "name": name, "set": part, "n": len(small), **row})
    frame = pd.DataFrame(rows)
    if options.json:
        frame.to_json(options.json, orient="records", lines=True)
    each = frame.groupby(["method", "name", "set", "case"])[["error", "covered", "width"]].mean()
    for (method, *name), part in each.groupby(level=[0, 1, 2]):
        print(describe(method, " ".join(name), part))
    for method, part in each.drop("synthetic", level="name").groupby(level=0):
        print(describe(method, "all real", part))
    print(json.dumps({"cpu seconds": round(time.process_time() - clock, 1)}))


if __name__ == "__main__":
    needs.run(main, needs.DATA)
