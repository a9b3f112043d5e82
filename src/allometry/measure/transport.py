r"""Wasserstein distances: exact, sliced, and a lower bound by a trained critic.

Letters: $x_1..x_n$ real, $y_1..y_m$ samples, $u, v$ the dual potentials.
"""

import math
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from allometry._core.errors import require, require_extra
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import centred, squared_distances
from allometry.measure.sample_inputs import Array, Map, generator, halves, pair, subset, whole_seed


def wasserstein(
    real: Array,
    samples: Array,
    *,
    p: int = 2,
    most: int = 2000,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Exact p-Wasserstein distance of the two empirical distributions, by linear programming.

    The squared standard error is $\mathrm{var}(u)/n + \mathrm{var}(v)/m$. It is about the
    expectation at these sizes, which exceeds the distance of the distributions by order
    $n^{-1/d}$: compare only values of equal n.

    Args:
        real: Real data.
        samples: Samples of the model.
        p: 1 or 2.
        most: Largest number of rows used of each set; the cost is cubic in it.
        features: Feature map.
        rng: Random generator for rows.

    References: `delbarrio2019` for the central limit theorem; `flamary2021` for the solver.
    """
    require(p in (1, 2), "wasserstein.p", "be 1 or 2", p)
    ot = require_extra("ot", "transport")
    x, y = pair(real, samples, features=features)
    rng = generator(rng)
    x, y = centred(subset(x, most, rng).double(), subset(y, most, rng).double())
    cost = squared_distances(x, y)
    cost = cost if p == 2 else cost.sqrt()
    n, m = cost.shape
    # The tolerances of the solver are absolute: costs are scaled to at most 1.
    unit = float(cost.max()) or 1.0
    value, log = ot.emd2(
        np.full(n, 1 / n),
        np.full(m, 1 / m),
        (cost / unit).numpy(),
        log=True,
        numItermax=10_000_000,
    )
    method = f"exact at n = {n}, m = {m}; dual potentials; about the expectation at these sizes"
    found = uncertainty.influence(
        float(value) * unit, log["u"] * unit, log["v"] * unit, method=method
    )
    return _root(found, p)


def sliced_wasserstein(
    real: Array,
    samples: Array,
    *,
    p: int = 2,
    projections: int = 500,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Sliced p-Wasserstein distance: $(E_\theta W_p^p(\theta^\top x, \theta^\top y))^{1/p}$.

    In one dimension optimal transport matches quantiles, so a direction costs one sort. The
    standard error includes the mean potentials over directions and the sampling of directions. It
    is about the expectation at these sizes; the bias is of order 1/n.

    References: `bonneel2015`.
    """
    require(p in (1, 2), "sliced_wasserstein.p", "be 1 or 2", p)
    require(projections >= 2, "sliced_wasserstein.projections", "be at least 2", projections)
    x, y = pair(real, samples, features=features)
    x, y = centred(x.double(), y.double())
    rng, d = generator(rng), x.shape[1]
    directions = torch.randn(d, projections, generator=rng, dtype=torch.float64)
    directions /= directions.norm(dim=0)
    levels = _Levels(len(x), len(y))
    u, v = torch.zeros(len(x)).double(), torch.zeros(len(y)).double()
    values = []
    # A batch of directions has about four million numbers.
    for theta in directions.split(max(1, 2**22 // (len(x) + len(y))), dim=1):
        a, a_order = (theta.T @ x.T).sort(1)
        b, b_order = (theta.T @ y.T).sort(1)
        values.append(levels.cost(a, b, p))
        u += _potential(a, levels.partner(b, real=True), a_order, p)
        v += _potential(b, levels.partner(a, real=False), b_order, p)
    found = torch.cat(values)
    base = uncertainty.influence(float(found.mean()), u / projections, v / projections)
    drawing = float(found.var()) / projections if d > 1 else 0.0
    se = math.sqrt((base.se or 0.0) ** 2 + drawing)
    method = f"{projections} directions; potentials; about the expectation at these sizes"
    return _root(Estimate(base.value, se=se, n=len(x) + len(y), method=method), p)


@final
class _Levels:
    """The joint steps of both quantile functions; n and m may differ."""

    def __init__(self, n: int, m: int) -> None:
        # Integer multiples of 1/(nm), so that equal levels compare equal.
        ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
        starts = np.concatenate([[0], ends[:-1]])
        self.weights = torch.as_tensor((ends - starts) / (n * m))
        self.i = torch.as_tensor(starts // m)
        self.j = torch.as_tensor(starts // n)
        self.n, self.m = n, m

    def cost(self, a: Float[Tensor, "t n"], b: Float[Tensor, "t m"], p: int) -> Tensor:
        gap = (a[:, self.i] - b[:, self.j]).abs()
        return (gap if p == 1 else gap * gap) @ self.weights

    def partner(self, other: Float[Tensor, "t k"], *, real: bool) -> Tensor:
        """The mean destination of the mass of each sorted row."""
        rows, columns, size = (self.i, self.j, self.n) if real else (self.j, self.i, self.m)
        if self.n == self.m:
            return other
        out = torch.zeros(len(other), size, dtype=other.dtype)
        return out.index_add_(1, rows, other[:, columns] * self.weights) * size


def _potential(sorted_: Tensor, partner: Tensor, order: Tensor, p: int) -> Float[Tensor, " k"]:
    """Sum over directions of the dual potential of each row, by integration of its slope."""
    gap = sorted_ - partner
    slope = gap.sign() if p == 1 else 2 * gap
    steps = (slope[:, 1:] + slope[:, :-1]) / 2 * sorted_.diff(dim=1)
    potential = torch.nn.functional.pad(steps.cumsum(1), (1, 0))
    potential -= potential.mean(1, keepdim=True)
    out = torch.zeros_like(potential).scatter_(1, order, potential)
    return out.sum(0)


def _root(powered: Estimate, p: int) -> Estimate:
    if p == 1:
        return uncertainty.transformed(powered, lambda v: v, 1.0, floor=0.0)
    top = math.sqrt(max(powered.value, 0.0))
    slope = 0.5 / top if top > 0 else 0.0
    return uncertainty.transformed(powered, lambda v: math.sqrt(max(v, 0.0)), slope, floor=0.0)


def wasserstein_critic(
    real: Array,
    samples: Array,
    *,
    width: int = 32,
    steps: int = 200,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Lower bound of the 1-Wasserstein distance by a trained critic: $\bar f(x) - \bar f(y)$.

    The critic is trained on one half of each set and evaluated on the other. Orthogonal layers
    between MaxMin units make it 1-Lipschitz by construction, so the expectation is a lower bound
    of the distance, and near 0 for equal distributions.

    Differs from the paper: no weight clipping and no gradient penalty.

    References: `arjovsky2017`; `anil2019` for the architecture.
    """
    x, y = pair(real, samples, rows=4, features=features)
    rng = generator(rng)
    x, y = centred(x.double(), y.double())
    scale = float(torch.cat([x, y]).std()) or 1.0
    x, y = (x / scale).float(), (y / scale).float()
    (a, a_test), (b, b_test) = halves(x, rng), halves(y, rng)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(whole_seed(rng))
        critic = _critic(x.shape[1], width)
    optimiser = torch.optim.Adam(critic.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    for _ in range(steps):
        rows, columns = (torch.randint(len(s), (256,), generator=rng) for s in (a, b))
        loss = critic(b[columns]).mean() - critic(a[rows]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        on_real, on_samples = critic(a_test)[:, 0].double(), critic(b_test)[:, 0].double()
    method = "held-out rows, given a 1-Lipschitz critic: a lower bound"
    return uncertainty.difference(on_real * scale, on_samples * scale, method)


def _critic(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        orthogonal(nn.Linear(inputs, width).float()),
        _MaxMin(),
        orthogonal(nn.Linear(width, width).float()),
        _MaxMin(),
        orthogonal(nn.Linear(width, 1).float()),
    )


@final
class _MaxMin(nn.Module):
    """Sorts neighbouring pairs: gradient norm preserving, unlike ReLU."""

    def forward(self, x: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        a, b = x.unflatten(1, (-1, 2)).unbind(-1)
        return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)
