"""Point fits of the law in size and data beside public fitters: CPU seconds at equal optimum.

    OMP_NUM_THREADS=1 python bench/laws.py [--rounds 5] [--peers vpnls bfgs chinchilla]

The law is L = E + A / N^alpha + B / D^beta with Huber's loss. `vpnls` (variable projection) fits
the losses themselves; it has a grid of exponents (0.01 apart) and L-BFGS from the best grid point.
`bfgs` is the usual loop over 32 random starts with an analytic gradient. `chinchilla` is the
package of that name: BFGS from a grid of 32 starts in long doubles, on the log of the loss. Ours
has 32 starts too, and is timed once with backtests and the checks of `laws.fit`, once as the
search alone, and once with 8 starts. Each peer gets the objective that it minimises. One thread,
CPU seconds, medians of interleaved rounds; "excess" is by how much an objective exceeds the lowest
of all methods.

Peers that are not installed and data that are not there are named and left out. Synthetic runs at
known parameters are always among the data.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings

import holdouts
import needs
import numpy as np
import pandas as pd
from scipy import optimize

from allometry import laws
from allometry.laws import forms
from allometry.laws.component import fit_component
from allometry.laws.objective import Objective
from allometry.laws.runs_table import read

DELTA, STARTS = 1e-3, 32


def synthetic():
    """Eight budgets of sixteen sizes each, with the published parameters and 0.2 % noise."""
    rng = np.random.default_rng(0)
    C, ratio = np.meshgrid(np.geomspace(1e17, 1e22, 8), np.geomspace(1 / 16, 16, 16))
    N = np.sqrt(C / 6 / 20 * ratio).ravel()
    D = C.ravel() / 6 / N
    loss = 1.69 + 406.4 / N**0.34 + 410.7 / D**0.28
    return {"N": N, "D": D, "loss": loss * np.exp(0.002 * rng.normal(size=len(N)))}


def public():
    """Name and runs of each public set that is there."""
    path = holdouts.DATA / "openathena_isoflops/isoflops_extract.csv"
    if not path.exists():
        print(f"Left out: Chinchilla's, Llama 3's and misfitting's isoFLOP runs ({path.name}).")
        return
    frame = pd.read_csv(path).rename(columns={"params": "N", "tokens": "D"})
    named = {"Chinchilla": "ml_scalefit__massivetext__chinchilla", "Llama 3": "llama_3__raw_loss",
             "misfitting": "misfitting__fineweb_c4__transformer"}  # fmt: skip
    for name, experiment in named.items():
        rows = frame[frame.experiment == experiment]
        yield name, {k: rows[k].to_numpy(float).copy() for k in ("N", "D", "loss")}


def huber(r):
    size = np.abs(r)
    return np.where(size <= DELTA, r**2 / 2, DELTA * (size - DELTA / 2)).sum()


def objective(theta, runs, raw):
    """Summed Huber loss of (E, A, B, alpha, beta)."""
    E, A, B, alpha, beta = (float(v) for v in theta)
    made = E + A / runs["N"] ** alpha + B / runs["D"] ** beta
    return huber(runs["loss"] - made if raw else np.log(runs["loss"]) - np.log(made))


def whole(runs, raw):
    law = laws.fit(runs, "chinchilla", raw=raw, delta=DELTA, bootstrap=0, starts=STARTS)
    return [law.params[k].value for k in ("E", "A", "B", "alpha", "beta")]


def search(runs, raw, starts=STARTS):
    table, form = read(runs), forms.chinchilla()
    rule = Objective(delta=DELTA, raw=raw)
    found = fit_component(form, table, rule, starts=starts, rng=np.random.default_rng(0))
    public = form.public(found.theta[None], found.centre)
    return [float(public[k].ravel()[0]) for k in ("E", "A", "B", "alpha", "beta")]


def few(runs, raw):
    return search(runs, raw, 8)


def bfgs(runs, raw):
    """The lowest of 32 searches; parameters are log A, log B, log E and the exponents."""
    n, d, y = np.log(runs["N"]), np.log(runs["D"]), runs["loss"]

    def value(theta):
        a, b, e, alpha, beta = theta
        z = np.exp(np.stack([a - alpha * n, b - beta * d, np.full_like(n, e)]))
        made = z.sum(0)
        r = y - made if raw else np.log(y / made)
        psi = np.clip(r, -DELTA, DELTA)
        pull = -psi * (z if raw else z / made)
        slope = [pull[0].sum(), pull[1].sum(), -pull[0] @ n, -pull[1] @ d]
        gradient = [slope[0], slope[1], pull[2].sum(), slope[2], slope[3]]
        return (psi * (r - psi / 2)).sum(), np.array(gradient)

    rng, best = np.random.default_rng(0), None
    for _ in range(STARTS):
        start = rng.uniform([0, 0, -1, 0, 0], [25, 25, 1.5, 2, 2])
        found = optimize.minimize(value, start, jac=True, method="BFGS")
        best = found if best is None or found.fun < best.fun else best
    a, b, e, alpha, beta = best.x
    return np.exp(e), np.exp(a), np.exp(b), alpha, beta


def vpnls(method):
    def fit(runs, raw):
        from vpnls.api import fit_vpnls
        from vpnls.api import huber as loss

        assert raw
        # Its default bounds are made for N in millions and D in billions, as in its examples.
        scaled = (runs["N"] / 1e6, runs["D"] / 1e9, runs["loss"])
        r = fit_vpnls(*scaled, method=method, resolution=0.01, loss=loss(DELTA))
        return r.E, r.A * 1e6**r.alpha, r.B * 1e9**r.beta, r.alpha, r.beta

    return fit


def package(runs, raw):
    from chinchilla import Chinchilla
    from chinchilla._metrics import log_huber

    assert not raw
    grid = {"e": [-1.0, 1.0], "a": [5.0, 15.0], "b": [5.0, 15.0],
            "alpha": [0.3, 1.0], "beta": [0.3, 1.0]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        peer = Chinchilla(
            folder, grid, loss_fn=lambda y, made: log_huber(y, made, DELTA), log_level=50
        )
        peer.visualizer.optim = lambda *_, **__: None  # its figure is no part of a fit
        peer.database.df = pd.DataFrame({"C": 6 * runs["N"] * runs["D"], **runs})
        peer.fit(parallel=False)
    return peer.E, peer.A, peer.B, peer.alpha, peer.beta


PEERS = {
    "vpnls": {"vpnls, grid": (vpnls("grid"), True), "vpnls, L-BFGS": (vpnls("scipy"), True)},
    "bfgs": {"BFGS, 32 starts": (bfgs, True)},
    "chinchilla": {"chinchilla 0.2": (package, False)},
}


def race(name, runs, asked, rounds):
    for raw in (True, False):
        jobs = {k: f for key in asked for k, (f, own) in PEERS[key].items() if own == raw}
        jobs = {"ours": whole, "ours, search alone": search, "ours, 8 starts": few} | jobs
        if len(jobs) == 3:
            continue
        for peer in list(jobs):
            try:
                jobs[peer](runs, raw)  # imports and warm-up do not count
            except ImportError as error:
                print(f"Left out: {peer} ({error.name} is not installed).")
                del jobs[peer]
        spent, found = {k: [] for k in jobs}, {}
        slow = [k for k in jobs if k.startswith("chinchilla")]
        for turn in range(rounds):
            for peer, fit in jobs.items():
                if turn and peer in slow:
                    continue  # tens of seconds, whose spread does not matter
                started = time.process_time()
                found[peer] = objective(fit(runs, raw), runs, raw)
                spent[peer].append(time.process_time() - started)
        show(name, raw, {k: statistics.median(v) for k, v in spent.items()}, found)


def show(name, raw, seconds, found):
    least = min(found.values())
    for peer, value in found.items():
        ratio = "" if peer == "ours" else f"{seconds[peer] / seconds['ours']:.1f}x"
        print(
            f"| {name} | {'loss' if raw else 'log loss'} | {peer} | {1e3 * seconds[peer]:.1f} | "
            f"{ratio} | {value:.6g} | {value / least - 1:.1e} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = {"synthetic": synthetic()} | dict(public())
    print("| runs | residuals | method | CPU ms | of ours | objective | excess |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in sets.items():
        race(f"{name} ({len(runs['loss'])})", runs, asked.peers, asked.rounds)


if __name__ == "__main__":
    needs.run(main)
