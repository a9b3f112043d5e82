"""Does one learning rate fit every size? Losses over rates x sizes, and the best rate of each.

Run: python bench/learning_rate.py [--folder DIR] [--tokens D] [--text FILE] [--sizes N ...]
    [--rates LR ...] [--family transformer rnn ...]
"""

import argparse
import functools
import sys
import tempfile

import needs
import numpy as np

import allometry as al
from allometry.study import recipes as all_recipes
from allometry.study.job_table import TEXT_FAMILIES

SIZES = [2e3, 1e4, 6e4, 3.4e5]
RATES = [0.002, 0.004, 0.008, 0.016, 0.032]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--tokens", type=float, default=3e5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--text", default=None)
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--family", nargs="+", default=["transformer"], choices=TEXT_FAMILIES)
    arguments = parser.parse_args()
    folder = arguments.folder or tempfile.mkdtemp(prefix="rates-")
    recipes = [
        functools.partial(getattr(all_recipes, family), lr=lr)
        for family in arguments.family
        for lr in sorted(arguments.rates)
    ]
    text = al.targets.Text(arguments.text) if arguments.text else al.targets.Text.embedded()
    study = al.study.Study(text, recipes, arguments.sizes, arguments.seeds, arguments.tokens)
    rates = {spec.key: spec.arguments["lr"] for spec in study.specs()}
    frame = study.run(folder, watch=show_progress).frame()
    frame["lr"] = frame["key"].map(rates)
    for family, runs in frame.dropna(subset="lr").groupby("family"):
        print(family)
        print_best_rates(runs)


def show_progress(event):
    if event.kind in ("done", "failed"):
        print(event.kind, event.task.spec.arguments["lr"], file=sys.stderr, flush=True)


def print_best_rates(runs):
    table = runs.pivot_table(index="N", columns="lr", values="loss")
    print(table.round(4).to_string())
    for N, row in table.iterrows():
        # Best rate between grid points: vertex of the parabola through the three lowest losses.
        x, y = np.log2(row.index.to_numpy()), row.to_numpy()
        i = int(np.clip(np.argmin(y), 1, len(y) - 2))
        a, b, _ = np.polyfit(x[i - 1 : i + 2], y[i - 1 : i + 2], 2)
        best = 2 ** (-b / (2 * a)) if a > 0 else float("nan")
        print(f"N = {N:>7,.0f}: best rate {best:.4f}")


if __name__ == "__main__":
    needs.run(main)
