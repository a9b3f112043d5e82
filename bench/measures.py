"""Speed and memory of metrics and their peers: 10,000 x 64 features, one thread, one process.

Run: python bench/measures.py [--rows 10000] [--rounds 3] [--large 100000] [--battery]

Ours and the peer are interleaved in one process; the table shows the minimum CPU seconds of each
and their ratio. The full discrepancy of 100,000 rows runs in its own process, whose peak memory is
reported. `--battery` times the whole command `allometry measure` instead. A peer that is not
installed is left out with a sentence.
"""

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import needs
import numpy as np
import torch

from allometry.measure import frechet_distance, kid, mmd2, prdc, sliced_wasserstein, wasserstein


def data(n, d=64, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    return x, (0.1 + 1.1 * rng.normal(size=(n, d))).astype(np.float32)


class Given(torch.nn.Module):
    """An identity feature extractor."""

    num_features = 64

    def forward(self, z):
        """Return the features unchanged."""
        return z


def torchmetrics_kid(x, y):
    from torchmetrics.image.kid import KernelInceptionDistance

    metric = KernelInceptionDistance(feature=Given(), subsets=100, subset_size=1000)
    metric.update(torch.as_tensor(x), real=True)
    metric.update(torch.as_tensor(y), real=False)
    return float(metric.compute()[0])


def torchmetrics_fid(x, y):
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(feature=Given(), input_img_size=(64,))
    metric = metric.set_dtype(torch.float64)
    metric.update(torch.as_tensor(x), real=True)
    metric.update(torch.as_tensor(y), real=False)
    return float(metric.compute())


def peer_prdc(x, y):
    from prdc import compute_prdc

    with contextlib.redirect_stdout(io.StringIO()):
        return float(compute_prdc(x, y, nearest_k=5)["coverage"])


def sklearn_mmd(x, y):
    """Three full n x n kernel matrices, at our bandwidth."""
    from sklearn.metrics.pairwise import rbf_kernel

    n, width = len(x), 11.8
    g = 1 / (2 * width**2)
    xx, yy, xy = rbf_kernel(x, x, g), rbf_kernel(y, y, g), rbf_kernel(x, y, g)
    same = (xx.sum() - n + yy.sum() - n) / (n * (n - 1))
    return float(same - 2 * xy.mean())


def pot_sliced(x, y):
    import ot

    return float(ot.sliced_wasserstein_distance(x, y, n_projections=500, seed=0))


def pot_exact(x, y):
    import ot

    cost = ot.dist(x[:2000].astype(float), y[:2000].astype(float))
    return float(ot.emd2([], [], cost, numItermax=10_000_000)) ** 0.5


PAIRS = {
    "precision, recall, density, coverage": (
        lambda x, y: prdc(x, y)["coverage"],
        peer_prdc,
        "prdc",
    ),
    "KID, 100 subsets of 1,000": (kid, torchmetrics_kid, "torchmetrics"),
    "Fréchet distance": (frechet_distance, torchmetrics_fid, "torchmetrics"),
    "MMD, rbf, all pairs": (mmd2, sklearn_mmd, "scikit-learn"),
    "sliced Wasserstein, 500 directions": (sliced_wasserstein, pot_sliced, "POT"),
    "exact Wasserstein, 2,000 rows": (wasserstein, pot_exact, "POT"),
}


def timed(call, x, y):
    started = time.process_time()
    found = call(x, y)
    return time.process_time() - started, float(found)


def race(rows, rounds):
    x, y = data(rows)
    print("| | ours, s | peer, s | ratio | value | peer's |\n|---|---|---|---|---|---|")
    for name, (ours, peer, who) in PAIRS.items():
        a, b = [], []
        try:
            for _ in range(rounds):
                a.append(timed(ours, x, y))
                b.append(timed(peer, x, y))
        except ImportError as error:
            print(f"| {name} | left out: {who} is not installed ({error.name}). | | | | |")
            continue
        mine, theirs = min(a)[0], min(b)[0]
        row = f"| {name} | {mine:.2f} | {theirs:.2f} ({who}) | {theirs / mine:.1f} |"
        print(row, f"{a[0][1]:.5g} | {b[0][1]:.5g} |", flush=True)


def large(rows):
    x, y = data(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, value = timed(mmd2, x, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "value": value, "before": before, "peak": peak}))


def battery(rows):
    """CPU seconds of `allometry measure` on two files: every metric that applies to vectors."""
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder) / f"{name}.npy") for name in ("real", "samples")]
        for name, part in zip(names, data(rows), strict=True):
            np.save(name, part)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = str(Path(sys.executable).with_name("allometry"))
        command = [program, "measure", *names, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        print(f"allometry measure ended with code {done.returncode}: {done.stderr[-300:]}")
        return
    print(
        f"allometry measure, {rows:,} x 64: {len(json.loads(done.stdout))} metrics in "
        f"{spent:.1f} CPU s, imports included; peak {after.ru_maxrss / 2**20:.2f} GB"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--battery", action="store_true", help="the whole command only")
    parser.add_argument("--alone", action="store_true", help="only the large MMD, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.battery:
        battery(arguments.rows)
        return
    if arguments.alone:
        large(arguments.large)
        return
    race(arguments.rows, arguments.rounds)
    if arguments.large:
        command = [sys.executable, __file__, "--alone", "--large", str(arguments.large)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        peak, before = result["peak"] / 2**20, result["before"] / 2**20
        print(
            f"MMD of {arguments.large:,} x 64, all pairs: {result['seconds']:.0f} CPU s, "
            f"peak memory {peak:.2f} GB, of which {before:.2f} before it began."
        )


if __name__ == "__main__":
    needs.run(main)
