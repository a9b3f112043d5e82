"""Extrapolation of public learning curves: root mean square log error, ours and M1 to M4.

The curves, the split into points to fit and points to predict, and the reference errors are those
of Alabdulmohsin et al. 2022.

Run: `python bench/curves.py`
"""

import time

import holdouts
import needs
import numpy as np
import pandas as pd

import allometry as al


def main():
    folder = holdouts.DATA / "google_learning_curves"
    both = pd.concat([pd.read_csv(p) for p in sorted(folder.glob("benchmark.*.csv"))])
    rows, clock = [], time.process_time()
    for (domain, task, model), part in both.groupby(["Domain", "Task", "Model"]):
        part = part.sort_values("Seen Examples")
        seen = part.Training == 1
        law = al.laws.fit(
            {"D": part["Seen Examples"][seen], "loss": part.Loss[seen]}, bootstrap=100
        )
        x, y = part["Seen Examples"][~seen].to_numpy(float), part.Loss[~seen].to_numpy(float)
        lo, mid, hi = law.band(D=x)
        rows.append(
            {
                "dom": domain,
                "task": task,
                "model": model,
                "ours": float(np.sqrt(np.mean(np.log(mid / y) ** 2))),
                "coverage": float(((lo <= y) & (y <= hi)).mean()),
                "width": float(np.median((hi - lo) / mid)),
            }
        )
    frame = pd.DataFrame(rows)
    reference = pd.read_csv(folder / "reference_rmse.csv")
    frame = frame.merge(reference, on=["dom", "task", "model"])
    names = ["ours", "M1", "M2", "M3", "M4", "coverage", "width"]
    print(frame.groupby("dom")[names].mean().round(4).to_string())
    print(f"all {len(frame)} curves:", frame[names].mean().round(4).to_dict())
    print(f"{time.process_time() - clock:.0f} CPU seconds")


if __name__ == "__main__":
    needs.run(main, needs.DATA)
