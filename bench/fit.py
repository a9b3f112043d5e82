"""Speed of fits: ours and the usual loop of scipy's BFGS over resamples.

Each part prints CPU seconds of one thread, medians of several repetitions, ours and the peer's
interleaved in one process. The peer is the published analysis of the 240 Chinchilla points: one
BFGS search per resample from the published parameters, here with an analytic gradient (the
original uses automatic differentiation and is slower still). It is timed on some of the resamples
and scaled up.

Run: `OMP_NUM_THREADS=1 python bench/fit.py [--parts bootstrap,point,curves,file] [--goes 3]`
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import holdouts
import needs
import numpy as np
import pandas as pd
from scipy import optimize

import allometry as al
from allometry._core.process import available_cores

START = np.array([6.0073404, 6.0179186, 0.5267228, 0.33917084, 0.2849083])


def chinchilla_points():
    e = pd.read_csv(holdouts.DATA / "epoch_chinchilla/svg_extracted_data.csv")
    e = e.rename(columns={"Model Size": "N", "Training FLOP": "C"})
    keep = e.loss < np.sort(e.loss)[-5]
    return {"N": e.N[keep].to_numpy(), "C": e.C[keep].to_numpy(), "loss": e.loss[keep].to_numpy()}


def objective(theta, n, d, y, delta=1e-3):
    a, b, e, alpha, beta = theta
    z = np.exp(np.stack([a - alpha * n, b - beta * d, np.full_like(n, e)]))
    total = z.sum(0)
    r = y - np.log(total)
    psi = np.clip(r, -delta, delta)
    pull = -psi * z / total
    gradient = [pull[0].sum(), pull[1].sum(), pull[2].sum(), -pull[0] @ n, -pull[1] @ d]
    return (psi * (r - psi / 2)).sum(), np.array(gradient)


def peer(runs, rows):
    n, d, y = np.log(runs["N"]), np.log(runs["C"] / 6 / runs["N"]), np.log(runs["loss"])
    return np.array(
        [
            optimize.minimize(objective, START, (n[r], d[r], y[r]), jac=True, method="BFGS").x
            for r in rows
        ]
    )


def timed(function):
    clock = time.process_time()
    made = function()
    return time.process_time() - clock, made


def bootstrap(goes):
    runs = chinchilla_points()
    rows = np.random.RandomState(42).randint(0, 240, size=(4000, 240))
    ours, theirs, part = [], [], 250
    law = None
    for go in range(goes):
        seconds, law = timed(lambda: al.laws.fit(runs, "chinchilla", bootstrap=4000, seed=42))
        ours.append(seconds)
        some = rows[go * part : (go + 1) * part]
        seconds, found = timed(lambda some=some: peer(runs, some))
        theirs.append(seconds * len(rows) / part)
        if go == 0:
            draws = law.members[0].form.public(law.members[0].draws[:part], law.members[0].centre)
            gap = np.median(np.abs(np.log(draws["B"] / np.exp(found[:, 1]))))
            print(f"bootstrap: same resamples, median difference of log B {gap:.1e}")
    a, b = statistics.median(ours), statistics.median(theirs)
    print(
        f"bootstrap: 4,000 of 240 points with backtests and point fit {a:.2f} s, BFGS loop "
        f"{b:.1f} s, ratio {b / a:.0f}"
    )


def point(goes):
    runs = chinchilla_points()
    from allometry.laws import forms
    from allometry.laws.component import fit_component
    from allometry.laws.objective import PLAIN
    from allometry.laws.runs_table import read

    table = read(runs)
    rng = np.random.default_rng(0)
    seconds, agree = [], []
    for _ in range(5 * goes):
        clock, member = timed(
            lambda: fit_component(forms.chinchilla(), table, PLAIN, starts=32, rng=rng)
        )
        seconds.append(clock)
        agree.append(member.agree)
    whole = [
        timed(lambda: al.laws.fit(runs, "chinchilla", bootstrap=0))[0] for _ in range(5 * goes)
    ]
    many = fit_component(forms.chinchilla(), table, PLAIN, starts=1000, rng=rng)
    print(
        f"point: 32 starts {statistics.median(seconds):.3f} s, with backtests "
        f"{statistics.median(whole):.3f} s; {many.agree} of 1,000 random starts reach the optimum"
    )


def ninety_two():
    """57 learning curves, 27 training curves under schedules, 8 of routed models."""
    for name, frame in holdouts.curves():
        yield name, frame.D.to_numpy(float), frame.loss.to_numpy(float)
    for path in sorted((holdouts.DATA / "multipowerlaw").rglob("*.csv")):
        frame = pd.read_csv(path)
        yield path.stem, frame.step.to_numpy(float), frame.loss.to_numpy(float)
    r = pd.read_csv(holdouts.DATA / "routing_unified/curves.csv.gz")
    keys = ["router_type", "num_experts", "dense_parameter_count", "k", "routing_frequency"]
    groups = [g for _, g in r.groupby(keys) if len(g) >= 12][:8]
    for g in groups:
        g = g.groupby("step", as_index=False).loss_validation.mean()
        g = g[g.step > 0]
        yield "routing", g.step.to_numpy(float), g.loss_validation.to_numpy(float)


def curves(goes):
    forms = ("power", "floor", "m3", "m4", "logistic", "broken", "broken2")
    sets = list(ninety_two())
    tables = [{"D": x, "loss": y} for _, x, y in sets]
    clock, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    found = al.laws.fit_many(tables, forms, bootstrap=200)
    seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    points = sum(len(x) for _, x, _ in sets)
    fitted = sum(isinstance(law, al.laws.Law) for laws in found for law in laws.values())
    print(
        f"curves: {len(sets)} curves ({points} points) x {len(forms)} forms x 200 bootstraps, "
        f"with backtests, {fitted} laws, {seconds:.1f} s on {available_cores()} cores "
        f"({work:.1f} CPU s)"
    )


def file(goes):
    rng = np.random.default_rng(0)
    n = 100_000
    N, D = 10 ** rng.uniform(6, 9, n), 10 ** rng.uniform(8, 11, n)
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * np.exp(0.01 * rng.standard_normal(n))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        pd.DataFrame({"params": N, "tokens": D, "loss": loss}).to_csv(path, index=False)
        code = "import sys; from allometry.cli import main; main()"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", code, "fit", str(path), "--json"],
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"file: `allometry fit` of {n:,} runs in a CSV {seconds:.1f} s, "
        f"{after.ru_maxrss / 1024:.0f} MB peak"
    )


PARTS = {"bootstrap": bootstrap, "point": point, "curves": curves, "file": file}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--goes", type=int, default=3)
    options = parser.parse_args()
    for name in options.parts.split(","):
        PARTS[name](options.goes)


if __name__ == "__main__":
    needs.run(main)
