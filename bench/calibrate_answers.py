"""Best sizes, the compute that reaches a loss, and crossovers, each group of families left out.

`bench/calibrate.py` judges predicted losses. Here are the three other answers of a law: the best
size of a larger budget (`law.plan`; `bench/best_sizes.py`), the compute, size or data that reaches
a loss (`law.solve`) and the scale at which one family overtakes another (`laws.crossing_of`;
`bench/crossovers.py`). Every group is judged with constants that were fitted to the other groups,
and counts once. Errors and widths are in logs of size, data or compute.

Run: `python bench/calibrate_answers.py [--draws 100] [--cache FILE] [--answers FILE]`
with the cache of `bench/calibrate.py`; `--answers` keeps the fits of this program.
"""

import argparse

import best_sizes
import calibrate
import calibration_model as model
import crossovers
import needs
import numpy as np
import pandas as pd

from allometry.laws.plan import crossing_of

SOLVED = 4
"""Larger runs of each hold-out whose loss is solved for."""


def solve_line(row, law):
    """Ends and truth in logs of the variable that reaches the loss of some larger runs.

    On a grid the size is given and compute is asked for.
    """
    points, n = row["points"], len(row["truth"])
    variable = next(v for v in "CND" if law.table.varies(v) and v in points)
    fixed = ("N",) if variable == "C" and "N" in law.variables and law.path is None else ()
    for i in np.unique(np.linspace(0, n - 1, min(SOLVED, n)).round().astype(int)):
        given = {k: float(points[k][i]) for k in fixed}
        found = law.solve(float(np.exp(row["truth"][i])), variable, **given)
        yield found, float(np.log(points[variable][i]))


def solve_frontier(row, law):
    """The same for the lowest losses of held-out budgets."""
    for _, loss, c in row["ahead"]:
        yield law.solve(float(np.exp(loss))), c


def judged(row, answers):
    """Coverage, error and width of one hold-out; infinite widths stay infinite."""
    rows = []
    for found, truth in answers:
        with np.errstate(divide="ignore"):
            lo, value, hi = np.log([found.interval[0], found.value, found.interval[1]])
        rows.append((lo <= truth <= hi, abs(value - truth), hi - lo))
    if not rows:
        return None
    covered, error, width = np.array(rows, float).T
    return {"group": row["group"], "covered": covered.mean(),
            "error": np.median(error), "width": np.median(width)}  # fmt: skip


def solved(rows, tables, ask):
    """The inverse answers by the constants of the other groups, and before the calibration."""
    for label in ("left out", "before"):
        lines = []
        for row in rows:
            table = tables[row["group"]] if label == "left out" else calibrate.BEFORE
            with calibrate.constants(table):
                law = calibrate.recalibrated(row["law"], label == "left out")
                if "allocation" in row["law"].__dict__:
                    law.__dict__["allocation"] = row["law"].allocation
                lines.append(judged(row, ask(row, law)))
        yield label, pd.DataFrame([x for x in lines if x])


def crossed(rows, tables):
    """Crossovers by the constants of the other groups, and before the calibration."""
    for label in ("left out", "before"):
        lines = []
        for row in rows:
            table = tables[row["group"]] if label == "left out" else calibrate.BEFORE
            with calibrate.constants(table):
                pair = [calibrate.recalibrated(law, label == "left out") for law in row["laws"]]
                lines.append(crossovers.scored(row, crossing_of(*pair, row["variable"])))
        yield label, pd.DataFrame(lines)


def show(title, frame, columns=("covered", "error", "width")):
    """One line per group, then the mean coverage and medians over groups."""
    g = frame.groupby("group")[list(columns)].agg(
        {c: "mean" if c == "covered" else "median" for c in columns}
    )
    print(f"\n{title}: {len(frame)} hold-outs, {len(g)} groups")
    print(g.join(frame.groupby("group").size().rename("hold-outs")).round(3).to_string())
    rest = ", ".join(f"{c} {g[c].median():.3f}" for c in columns if c != "covered")
    print(f"coverage {g.covered.mean():.3f}, worst {g.covered.min():.2f}; medians: {rest}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--cache", help="the fits of bench/calibrate.py")
    parser.add_argument("--answers", help="keep the fits of this program in FILE.sizes and .pairs")
    options = parser.parse_args()
    draws, kept = options.draws, options.answers
    name = (lambda part: f"{kept}.{part}") if kept else (lambda part: None)
    budgets = calibrate.cached(name("sizes"), lambda: best_sizes.measured(draws))
    settings = best_sizes.chosen(budgets)
    print("constants of best sizes without each group:", settings)
    columns = ("covered", "error", "signed", "width", "score")
    for title, by in (("today's constants", dict.fromkeys(settings, best_sizes.TODAY)),
                      ("constants of the other groups", settings)):  # fmt: skip
        lines = [best_sizes.scored(r, best_sizes.sizes(r, by[r["group"]])) for r in budgets]
        show(f"best sizes, {title}", pd.DataFrame(lines), columns)
    pairs = calibrate.cached(name("pairs"), lambda: crossovers.measured(draws))
    rows = calibrate.cached(options.cache, lambda: list(calibrate.measured(draws)))
    _, tables = calibrate.left_out(model.pack([calibrate.features(row) for row in rows]))
    for label, frame in solved(budgets, tables, solve_frontier):
        show(f"compute that reaches the lowest loss of a budget, {label}", frame)
    for label, frame in solved(rows, tables, solve_line):
        show(f"what reaches the loss of a larger run, {label}", frame)
    for label, frame in crossed(pairs, tables):
        for which in (True, False):
            part = frame[frame.crosses == which]
            show(f"pairs that {'cross' if which else 'do not cross'}, {label}", part)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        needs.run(main, needs.DATA)
