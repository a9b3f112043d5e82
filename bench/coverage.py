"""Coverage of the 95 % intervals, width and error on real and synthetic larger runs.

A hold-out is one public family of runs, or one learning or training curve, cut at some compute.
Everything at or below the cut is fitted with `auto`. Everything at three times the largest fitted
compute or more is predicted (see `bench/holdouts.py`).

Each hold-out gives the share of its larger runs inside the interval, the median width of the
interval relative to the prediction, and the mean relative error. Coverage and error are then
averaged over hold-outs and the median of the widths is taken; each hold-out counts once. The last
lines count every data set once instead. The baseline is a pairs bootstrap with residual noise.

Constants of the intervals and of the averaging of forms were chosen on the calibration set, which
`holdouts.assigned_set` selects by a hash of the family's or curve's name, and on synthetic sweeps
with seeds below 1,000. The held-out set tests them.

Run: `python bench/coverage.py [--draws 300] [--only grid,ladder] [--efficient] [--json FILE]`
"""

import argparse
import json
import time

import holdouts
import needs
import numpy as np
import pandas as pd

import allometry as al


def baseline(small, large, draws, rng):
    """Lower end, prediction and upper end: one form, pairs bootstrap, normal residuals."""
    form = "chinchilla" if {"N", "D"} <= set(small) else "floor"
    law = al.laws.fit(small, form, bootstrap=draws, resample="pairs")
    points = {k: large[k].to_numpy(float) for k in ("N", "D", "C") if k in large}
    logs, _ = law.points(points)
    curves = law.curves(logs)
    noisy = curves[1:] + law.noise * rng.standard_normal(curves[1:].shape)
    lo, hi = np.quantile(noisy, [0.025, 0.975], axis=0)
    return np.exp(lo), np.exp(curves[0]), np.exp(hi)


def evaluate(ends, truth):
    """Coverage, median relative width and mean relative error of one hold-out."""
    lo, mid, hi = ends
    return {
        "coverage": float(((lo <= truth) & (truth <= hi)).mean()),
        "width": float(np.median((hi - lo) / mid)),
        "error": float(np.abs(mid / truth - 1).mean()),
    }


def synthetic_sweep(seed):
    """A well-specified sweep: the additive law with noise, to predict at 3 times the compute."""
    rng = np.random.default_rng(seed)
    ratios = [(20.0,), (10.0, 40.0), (5.0, 20.0, 80.0)][seed % 3]
    sizes, seeds = int(rng.integers(7, 11)), int(rng.integers(1, 3))
    N = np.repeat(np.geomspace(1e3, 5e5, sizes), seeds * len(ratios))
    D = N * np.tile(np.repeat(ratios, seeds), sizes)
    E, alpha, beta = rng.uniform(1.0, 2.0), rng.uniform(0.25, 0.45), rng.uniform(0.25, 0.45)
    A, B = rng.uniform(0.5, 2) * 1e3**alpha, rng.uniform(0.5, 2) * 2e4**beta
    noise = rng.choice([0.002, 0.005, 0.01])
    loss = (E + A / N**alpha + B / D**beta) * np.exp(noise * rng.standard_normal(len(N)))
    frame = pd.DataFrame({"N": N, "D": D, "loss": loss})
    C = frame.N * frame.D
    small = C.max() / 9 * 1.0001 >= C
    return frame[small], frame[holdouts.FACTOR * C[small].max() * 0.9999 <= C]


def synthetic_law(rng):
    """E, A, alpha, B and beta of a synthetic grid, the first draws of its generator."""
    E, alpha, beta = rng.uniform(1.4, 2.0), rng.uniform(0.28, 0.4), rng.uniform(0.28, 0.4)
    return E, rng.uniform(0.5, 2) * 1e7**alpha, alpha, rng.uniform(0.5, 2) * 1e9**beta, beta


def synthetic_grid(seed):
    """A well-specified grid of 10 to 24 sizes by as many lengths; the largest are held out."""
    rng = np.random.default_rng(seed)
    k = (10, 16, 24)[seed % 3]
    N, D = np.repeat(np.geomspace(1e6, 1e9, k), k), np.tile(np.geomspace(1e8, 1e11, k), k)
    E, A, alpha, B, beta = synthetic_law(rng)
    loss = (E + A / N**alpha + B / D**beta) * np.exp(0.005 * rng.standard_normal(len(N)))
    frame = pd.DataFrame({"N": N, "D": D, "loss": loss})
    C = frame.N * frame.D
    return frame[C.max() / 100 >= C], frame[C.max() / 100 * holdouts.FACTOR <= C]


def summed(part):
    """Mean coverage and error and median width over hold-outs, ours and the baseline's."""
    out = part[["coverage", "error", "baseline coverage", "baseline error"]].mean()
    for name in ("width", "baseline width"):
        out[name] = part[name].median()
    out["median error"] = part.error.median()
    return out


def describe(row):
    return (
        f"coverage {row.coverage:.3f}, width {row.width:.3f}, error {row.error:.4f} (median "
        f"{row['median error']:.4f}); baseline: coverage {row['baseline coverage']:.3f}, "
        f"width {row['baseline width']:.3f}, error {row['baseline error']:.4f}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--synthetic", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--efficient", action="store_true", help="as `fit(efficient=True)`")
    parser.add_argument("--json")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows, clock = [], time.process_time()
    jobs = [(n, a, b) for n, a, b in holdouts.cases()]
    seeds = range(1000, 1000 + options.synthetic)
    jobs += [(f"synthetic {s}", *synthetic_sweep(s)) for s in seeds]
    jobs += [(f"synthetic-grid {s}", *synthetic_grid(s)) for s in seeds[: options.synthetic // 4]]
    for name, small, large in jobs:
        if options.only and name.split()[0] not in options.only.split(","):
            continue
        truth = large.loss.to_numpy(float)
        law = al.laws.fit(small, bootstrap=options.draws, efficient=options.efficient)
        points = {k: large[k].to_numpy(float) for k in ("N", "D", "C") if k in large}
        row = {
            "name": name,
            "kind": name.split()[0],
            "dataset": holdouts.dataset(name),
            "set": holdouts.assigned_set(name),
            "n": len(small),
            **evaluate(law.band(**points), truth),
        }
        row |= {
            f"baseline {k}": v
            for k, v in evaluate(baseline(small, large, options.draws, rng), truth).items()
        }
        row["form"] = "+".join(m.form.name for m in law.members)
        row["tau"] = law.extrapolation_error.typical
        rows.append(row)
    frame = pd.DataFrame(rows)
    if options.json:
        frame.to_json(options.json, orient="records", lines=True)
    real = frame[~frame.kind.str.startswith("synthetic")]
    parts = [(f"{name} {part}", p) for (name, part), p in frame.groupby(["dataset", "set"])]
    for part in ("calibration", "held-out"):
        some = real[real["set"] == part]
        parts += [
            (f"runs {part}", some[some.kind.isin(["grid", "ladder"])]),
            (f"other losses {part}", some[some.kind == "other"]),
            (f"curves {part}", some[some.kind.isin(["curve", "training"])]),
            (f"all {part}", some),
        ]
    parts += [("runs both", real[real.kind.isin(["grid", "ladder"])]), ("all both", real)]
    for name, part in parts:
        if len(part):
            print(f"{name:26s} {len(part):4d} hold-outs: {describe(summed(part))}")
    for part, some in [*real.groupby("set"), ("both", real)]:
        each = pd.DataFrame([summed(p) for _, p in some.groupby("dataset")])
        print(f"{'data sets ' + part:26s} {len(each):4d} data sets: {describe(each.mean())}")
    print(json.dumps({"cpu seconds": round(time.process_time() - clock, 1)}))


if __name__ == "__main__":
    needs.run(main, needs.DATA)
