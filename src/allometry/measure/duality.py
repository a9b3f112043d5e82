r"""Optimal transport of discrete measures from both sides: plans and potentials.

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
class Transport:
    """The value of a transport problem and what attains it.

    Attributes:
        primal: Cost of the best plan.
        dual: Value of the best potentials; equal to `primal` up to rounding.
        plan: The mass taken from each point to each.
        f: Potential on the first measure's points.
        g: On the second's.
    """

    primal: float
    dual: float
    plan: Float[ndarray, "n m"]
    f: Float[ndarray, " n"]
    g: Float[ndarray, " m"]


def kantorovich(a: Weights, b: Weights, cost: Float[ndarray, "n m"]) -> Transport:
    r"""Both sides of Kantorovich's duality, each solved on its own.

    $$\min_{\pi \ge 0,\ \pi 1 = a,\ \pi^T 1 = b} \langle C, \pi\rangle
      = \max_{f_i + g_j \le C_{ij}} a^T f + b^T g$$

    The plan is POT's network simplex (extra `transport`), the potentials a linear programme.

    References: `villani2009` Theorem 5.10; `flamary2021`.
    """
    ot = require_extra("ot", "transport")
    a, b, C = _law(a, "a"), _law(b, "b"), np.asarray(cost, dtype=np.float64)
    n, m = len(a), len(b)
    require(C.shape == (n, m), "cost", f"have the shape ({n}, {m})", C.shape)
    require(bool(np.isfinite(C).all()), "cost", "be finite", "nan or inf")
    plan = ot.emd(a, b, C, numItermax=10_000_000)
    rows = np.repeat(np.arange(n), m)
    columns = np.tile(np.arange(m), n) + n
    which = np.concatenate([rows, columns])
    at = np.tile(np.arange(n * m), 2)
    system = sparse.csr_array((np.ones(2 * n * m), (at, which)), shape=(n * m, n + m))
    # One potential may be shifted against the other: f of the first point is held at 0.
    bounds = [(0, 0)] + [(None, None)] * (n + m - 1)
    objective = -np.concatenate([a, b])
    solved: Any = linprog(objective, A_ub=cast("Any", system), b_ub=C.ravel(), bounds=bounds)
    return Transport(float((plan * C).sum()), -float(solved.fun), plan, solved.x[:n], solved.x[n:])


def kantorovich_rubinstein(
    x: Float[ndarray, "n d"], y: Float[ndarray, "m d"], a: Weights, b: Weights
) -> tuple[float, Float[ndarray, " k"]]:
    r"""$W_1$ as the best 1-Lipschitz critic sees it, and that critic on all points.

    $W_1 = \sup_{\|f\|_L \le 1} E_a f - E_b f$, a linear programme with a bound for each pair of
    points; the critic of a Wasserstein GAN seeks this f among networks.

    References: `villani2009` Remark 6.5; `arjovsky2017` Eq. (2).
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    a, b = _law(a, "a"), _law(b, "b")
    require(len(a) == len(x), "a", f"have {len(x)} entries", len(a))
    require(len(b) == len(y), "b", f"have {len(y)} entries", len(b))
    z = np.concatenate([x, y])
    k = len(z)
    i, j = np.nonzero(~np.eye(k, dtype=bool))
    distance = np.linalg.norm(z[i] - z[j], axis=1)
    at = np.tile(np.arange(len(i)), 2)
    signs = np.concatenate([np.ones(len(i)), -np.ones(len(i))])
    system = sparse.csr_array((signs, (at, np.concatenate([i, j]))), shape=(len(i), k))
    bounds = [(0, 0)] + [(None, None)] * (k - 1)
    weights = np.concatenate([a, -b])
    solved: Any = linprog(-weights, A_ub=cast("Any", system), b_ub=distance, bounds=bounds)
    return -float(solved.fun), solved.x


def _law(weights: Weights, name: str) -> Float[ndarray, " _"]:
    w = np.asarray(weights, dtype=np.float64)
    fine = bool(w.ndim == 1 and len(w) > 0 and (w >= 0).all() and abs(w.sum() - 1) < 1e-9)
    require(fine, name, "be probabilities that sum to 1", w if len(w) < 9 else w.sum())
    return w / w.sum()
