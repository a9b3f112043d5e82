r"""Optimal transport of discrete measures: primal plans and dual potentials.

Letters: a, b weights of the two measures, C the cost, $\pi$ a plan, f and g potentials.
"""

from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from scipy.optimize import linprog

from allometry._core.errors import require, require_extra

Weights = Float[ndarray, " _"]


@final
@dataclass(frozen=True)
class TransportPlan:
    """The value of a transport problem with its optimal plan and potentials.

    Attributes:
        primal: Cost of the optimal plan.
        dual: Value of the optimal potentials; equal to `primal` up to rounding, and below it.
        plan: The mass moved from each point to each.
        f: Potential on the points of the first measure.
        g: Potential on the points of the second.
    """

    primal: float
    dual: float
    plan: Float[ndarray, "n m"]
    f: Float[ndarray, " n"]
    g: Float[ndarray, " m"]


def kantorovich(a: Weights, b: Weights, cost: Float[ndarray, "n m"]) -> TransportPlan:
    r"""Primal and dual solution of the Kantorovich problem.

    $$\min_{\pi \ge 0,\ \pi 1 = a,\ \pi^T 1 = b} \langle C, \pi\rangle
      = \max_{f_i + g_j \le C_{ij}} a^T f + b^T g$$

    Plan and potentials come from POT's network simplex (extra `transport`). The potentials are
    then lowered until every constraint holds and raised as far as feasible, so that `dual` is
    never above the optimum and `primal - dual` bounds the error of both. Costs are shifted and
    scaled first.

    References: `villani2009` Theorem 5.10; `flamary2021`.
    """
    ot = require_extra("ot", "transport")
    a, b, C = _probabilities(a, "a"), _probabilities(b, "b"), np.asarray(cost, dtype=np.float64)
    n, m = len(a), len(b)
    require(C.shape == (n, m), "cost", f"have the shape ({n}, {m})", C.shape)
    require(bool(np.isfinite(C).all()), "cost", "be finite", "nan or inf")
    low = float(C.min())
    above = (C - low)[(C - low) > 0]
    # The median cost becomes 1: a few huge costs must not push the others below the tolerance.
    unit = float(np.median(above)) if len(above) else 1.0
    c = (C - low) / unit
    plan, f, g = _simplex(ot, a, b, c)
    left = c - f[:, None] - g
    if float((plan * left).sum()) > 1e-12 * float((plan * c).sum()):
        # Huge costs reduced the precision: solve for the reduced costs once more, with those
        # clipped that no nearly optimal plan uses.
        plan, _, other = _simplex(ot, a, b, np.minimum(left, 1.0))
        f, g = _feasible(c, a, b, g + other)
    f, g = f - f[0], g + f[0]  # normalise the free shift: f of the first point is 0
    return TransportPlan(
        low + unit * float((plan * c).sum()),
        low + unit * float(a @ f + b @ g),
        plan,
        unit * f,
        low + unit * g,
    )


def _simplex(ot: Any, a: Weights, b: Weights, c: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """Plan and feasible potentials of the network simplex."""
    # A point without mass has no potential and must not constrain the others.
    some = np.ix_(a > 0, b > 0)
    part, log = ot.emd(a[a > 0], b[b > 0], c[some], numItermax=10_000_000, log=True)
    plan, g = np.zeros(c.shape), np.full(len(b), -np.inf)
    plan[some], g[b > 0] = part, log["v"]
    return plan, *_feasible(c, a, b, g)


def _feasible(c: ndarray, a: Weights, b: Weights, g: ndarray) -> tuple[ndarray, ndarray]:
    """The largest feasible potentials for the given second potential."""
    f = (c[:, b > 0] - g[b > 0]).min(1)
    g = (c[a > 0] - f[a > 0, None]).min(0)
    return (c - g).min(1), g


def kantorovich_rubinstein(
    x: Float[ndarray, "n d"], y: Float[ndarray, "m d"], a: Weights, b: Weights
) -> tuple[float, Float[ndarray, " k"]]:
    r"""$W_1$ by the optimal 1-Lipschitz critic, and that critic on all points.

    $W_1 = \sup_{\|f\|_L \le 1} E_a f - E_b f$, a linear programme with a constraint for each
    pair of points; the critic of a Wasserstein GAN approximates this f by a network.

    References: `villani2009` Remark 6.5; `arjovsky2017` Eq. (2).
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    a, b = _probabilities(a, "a"), _probabilities(b, "b")
    require(len(a) == len(x), "a", f"have {len(x)} entries", len(a))
    require(len(b) == len(y), "b", f"have {len(y)} entries", len(b))
    z = np.concatenate([x, y])
    z = z - z[0]
    k = len(z)
    unit = float(np.abs(z).max()) or 1.0
    every = np.linalg.norm(z[:, None] / unit - z[None] / unit, axis=2)
    i, j = np.nonzero(~np.eye(k, dtype=bool))
    distance = every[i, j]
    at = np.tile(np.arange(len(i)), 2)
    signs = np.concatenate([np.ones(len(i)), -np.ones(len(i))])
    system = sparse.csr_array((signs, (at, np.concatenate([i, j]))), shape=(len(i), k))
    bounds = [(0, 0)] + [(None, None)] * (k - 1)
    weights = np.concatenate([a, -b])
    solved: Any = linprog(-weights, A_ub=cast("Any", system), b_ub=distance, bounds=bounds)
    # The solver satisfies constraints to 1e-7; this critic is 1-Lipschitz up to rounding.
    critic = (solved.x + every).min(1)
    critic = critic - critic[0]
    return unit * float(weights @ critic), unit * critic


def _probabilities(weights: Weights, name: str) -> Float[ndarray, " _"]:
    w = np.asarray(weights, dtype=np.float64)
    fine = bool(w.ndim == 1 and len(w) > 0 and (w >= 0).all() and abs(w.sum() - 1) < 1e-9)
    require(fine, name, "be probabilities that sum to 1", w if len(w) < 9 else w.sum())
    return w / w.sum()
