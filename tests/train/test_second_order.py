"""Levenberg-Marquardt against scipy and problems whose answer is known."""

import numpy as np
import torch
from scipy.optimize import least_squares

from allometry.models.polynomial import PolynomialNetwork
from allometry.targets.high_rank_functions import chebyshev
from allometry.train.second_order import fit_with_kicks, levenberg_marquardt, residuals_of


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def rosenbrock(t):
    return torch.stack([10 * (t[1] - t[0] ** 2), 1 - t[0]])


def test_every_start_finds_the_bottom_of_the_valley():
    starts = 2 * torch.randn(20, 2, generator=rng())
    found = levenberg_marquardt(rosenbrock, starts, steps=300)
    assert found.loss.max() <= 1e-12
    torch.testing.assert_close(found.parameters, torch.ones(20, 2), atol=1e-4, rtol=0)


def test_it_ends_where_scipy_does():
    g = np.random.default_rng(0)
    x, noise = np.linspace(0, 3, 40), 0.1 * g.normal(size=40)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + noise
    theirs = least_squares(lambda t: t[0] * np.exp(-t[1] * x) + t[2] - y, [1.0, 1.0, 0.0])
    X, Y = torch.from_numpy(x), torch.from_numpy(y)
    found = levenberg_marquardt(
        lambda t: t[0] * torch.exp(-t[1] * X) + t[2] - Y, torch.tensor([[1.0, 1.0, 0.0]])
    )
    np.testing.assert_allclose(found.parameters[0], theirs.x, rtol=1e-5)
    np.testing.assert_allclose(found.loss[0], 2 * theirs.cost / 40, rtol=1e-9)


def test_linear_problems_take_the_normal_equations():
    A, b = torch.randn(30, 5, generator=rng()), torch.randn(30, generator=rng(1))
    found = levenberg_marquardt(lambda t: A @ t - b, torch.zeros(1, 5), steps=60)
    torch.testing.assert_close(
        found.parameters[0], torch.linalg.lstsq(A, b[:, None]).solution[:, 0]
    )


def test_degrees_separate_on_chebyshev_polynomials():
    """Degree 9 is out of reach for three quadratic layers and within that of two cubic ones."""
    x = 2 * torch.rand(200, 2, generator=rng(1)) - 1
    y = chebyshev(9)(x)
    least = {}
    for degrees in ((2, 2, 2), (3, 3)):
        nets = [PolynomialNetwork(2, 1, degrees, rng=rng(s)) for s in range(12)]
        first = [torch.cat([p.detach().flatten() for p in n.parameters()]) for n in nets]
        fit = fit_with_kicks(
            residuals_of(nets[0], x, y), torch.stack(first), kicks=1, steps=60, enough=1e-5
        )
        least[degrees] = float((fit.loss / y.square().mean()).min())
    assert least[3, 3] < 1e-3 < 0.1 < least[2, 2, 2]


def test_kicks_never_make_it_worse():
    starts = torch.randn(5, 2, generator=rng(3))
    plain = levenberg_marquardt(rosenbrock, starts, steps=3)
    kicked = fit_with_kicks(rosenbrock, starts, steps=3, kicks=4, rng=rng(1))
    assert bool((kicked.loss <= plain.loss).all())
