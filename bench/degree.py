"""Do layers of degree 3 learn more than layers of degree 2 or 4 at the same budget?

    python bench/degree.py [--starts 48] [--kicks 10]

Networks of width 1 on two inputs, six linear forms each: three layers of degree 2 (16 parameters)
and two of degree 3 (17), and controls, fitted to Chebyshev polynomials of the inputs' mean by
Levenberg-Marquardt, plainly and with kicks. Solved means a relative squared error below 1e-3.
"""

import argparse
import time

import torch

from allometry._core.estimate import proportion
from allometry.models.polynomial import PolynomialNetwork
from allometry.targets.high_rank import chebyshev
from allometry.train.second_order import fit_with_kicks, residuals_of

CASES = [
    (9, [2, 2, 2], 1),
    (9, [3, 3], 1),
    (8, [2, 2, 2], 1),
    (8, [3, 3], 1),
    (8, [2, 2, 2], 2),
    (8, [3, 3], 2),
]


def fitted(k, degrees, width, starts, kicks):
    x = 2 * torch.rand(200, 2, generator=torch.Generator().manual_seed(1)) - 1
    y = chebyshev(k)(x)
    rng = [torch.Generator().manual_seed(s) for s in range(starts)]
    nets = [PolynomialNetwork(2, width, degrees, rng=r) for r in rng]
    first = torch.stack([torch.cat([p.detach().flatten() for p in n.parameters()]) for n in nets])
    found = fit_with_kicks(residuals_of(nets[0], x, y), first, kicks=kicks, enough=1e-5)
    solved = int((found.loss / y.square().mean() < 1e-3).sum())
    return first.shape[1], proportion(solved, starts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=48)
    parser.add_argument("--kicks", type=int, default=10)
    given = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for kicks in sorted({0, given.kicks}):
        for k, degrees, width in CASES:
            begun = time.process_time()
            size, share = fitted(k, degrees, width, given.starts, kicks)
            lo, hi = share.interval
            print(
                f"kicks {kicks:2d}  Chebyshev-{k}  degrees {degrees}  width {width}  "
                f"{size} parameters  solved {share.value:.2f} ({lo:.2f} to {hi:.2f}) of "
                f"{given.starts}  {time.process_time() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
