"""Does one learning rate serve every size? Losses over rates x sizes, and the best rate of each.

Run: python bench/learning_rate.py [--folder DIR] [--tokens D]
"""

import argparse
import functools
import tempfile

import numpy as np

import allometry as al

SIZES = [2e3, 1e4, 6e4, 3.4e5]
RATES = [0.002, 0.004, 0.008, 0.016, 0.032]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--tokens", type=float, default=3e5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    folder = arguments.folder or tempfile.mkdtemp(prefix="rates-")
    recipes = [functools.partial(al.study.recipes.transformer, lr=lr) for lr in RATES]
    study = al.study.Study(
        al.targets.Text.embedded(), recipes, SIZES, arguments.seeds, arguments.tokens
    )
    rates = {spec.key: spec.arguments["lr"] for spec in study.specs()}
    frame = study.run(folder).frame()
    frame["lr"] = frame["key"].map(rates)
    table = frame.pivot_table(index="N", columns="lr", values="loss")
    print(table.round(4).to_string())
    for N, row in table.iterrows():
        # The best rate between the grid's points: vertex of the parabola through the three lowest.
        x, y = np.log2(row.index.to_numpy()), row.to_numpy()
        i = int(np.clip(np.argmin(y), 1, len(y) - 2))
        a, b, _ = np.polyfit(x[i - 1 : i + 2], y[i - 1 : i + 2], 2)
        best = 2 ** (-b / (2 * a)) if a > 0 else float("nan")
        print(f"N = {N:>7,.0f}: best rate {best:.4f}")


if __name__ == "__main__":
    main()
