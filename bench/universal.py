"""Sizes, errors and seconds of the universal construction and of its compact form.

    python bench/universal.py [--quick]

One thread, CPU seconds. Each line: a grid, blocks, parameters, distance d_2 of both forms, whether
softmax equals hardmax on every grid point, and the equivariance error. Then the slope of log
error against log delta, and seconds to build and to evaluate. No peer implements this network.
"""

import argparse
import math
import statistics
import time

import needs
import numpy as np
import torch

import allometry as al
from allometry.construct.sequence_functions import grid_columns

GRIDS = (
    (1, 2, False, (4, 8, 16)),
    (1, 3, False, (4, 8, 16)),
    (2, 2, False, (2, 4, 8)),
    (1, 3, True, (4, 8)),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="skip the finest grids")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    f = al.targets.functions
    print("target: attention, X softmax(X^T X); with positions: reversal")
    for d, n, positions, cells in GRIDS:
        target = f.ORDERED["reverse"] if positions else f.attention
        errors = {}
        for k in cells[:-1] if arguments.quick else cells:
            errors[k] = row(target, d, n, k, positions)
        slope = np.polyfit(np.log([1 / k for k in errors]), np.log(list(errors.values())), 1)[0]
        name = f"d = {d}, n = {n}{', positions' if positions else ''}"
        print(f"  {name}: slope of log error against log delta {slope:.3f}", flush=True)
    seconds()


def row(target, d, n, k, positions):
    thin = al.construct.universal(target, d, n, 1 / k, positions=positions)
    wide = al.construct.compact(target, d, n, 1 / k, positions=positions)
    hard = al.construct.universal(target, d, n, 1 / k, positions=positions, softmax=False)
    columns = grid_columns(d, k).double()
    number = torch.cartesian_prod(*[torch.arange(k**d)] * n)
    grid = columns[number].mT  # every sequence of the grid, repeated columns included
    same = torch.equal(thin(grid), hard(grid))
    a, b = thin.certificate, wide.certificate
    print(
        f"  d {d} n {n} 1/{k:<2} {'pos' if positions else '   '} "
        f"blocks {a.blocks:>6,} and {b.blocks} ({a.blocks / b.blocks:,.0f}x fewer)  "
        f"parameters {a.parameters:>8,}, non-zero {a.nonzero:>7,} and {b.nonzero:>6,} "
        f"({a.nonzero / b.nonzero:.1f}x fewer)  d_2 {a.d_p} and {b.d_p}  "
        f"softmax = hardmax on {len(grid):,} points: {same}  "
        f"equivariance {a.equivariance_error.value:.1g}",
        flush=True,
    )
    return a.d_p.value


def seconds(repeats=5):
    x = torch.from_numpy(np.random.default_rng(0).random((4000, 2, 2)))
    spent = {}
    for _ in range(repeats):
        for name, make in (
            ("universal", al.construct.universal),
            ("compact", al.construct.compact),
        ):
            start = time.process_time()
            made = make(al.targets.functions.attention, 2, 2, 1 / 8)
            built = time.process_time()
            made(x)
            done = time.process_time()
            spent.setdefault(name, []).append((built - start, done - built))
    for name, times in spent.items():
        build, run = (statistics.median(t) for t in zip(*times, strict=True))
        print(f"  {name}, d = 2, n = 2, 1/8: build {build:.2f} s, 4,000 inputs {run:.2f} s")
        assert math.isfinite(build + run)


if __name__ == "__main__":
    needs.run(main)
