"""Downstream error or accuracy as a function of the loss.

Letters: n points, m draws, k points asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.laws.law import Law, Values

Shape = Literal["sigmoid", "decay"]


def decay(L: ndarray, eps: float, k: float, gamma: float) -> ndarray:
    r"""Error $\epsilon - k e^{-\gamma L}$.

    References:
        `gadre2024` Eq. (5).
    """
    return np.asarray(eps - k * np.exp(-gamma * L))


def sigmoid(L: ndarray, a: float, x0: float, k: float, b: float) -> ndarray:
    r"""Accuracy $a / (1 + e^{-k (L - x_0)}) + b$.

    References:
        `bhagia2024` Eq. (3).
    """
    return np.asarray(a / (1 + np.exp(-k * (L - x0))) + b)


_SHAPES: dict[str, tuple[Callable[..., ndarray], tuple[str, ...]]] = {
    "decay": (decay, ("eps", "k", "gamma")),
    "sigmoid": (sigmoid, ("a", "x0", "k", "b")),
}


@final
@dataclass(frozen=True)
class TaskCurve:
    """The score of a task as a function of loss, with its residual standard deviation."""

    shape: str
    params: dict[str, float]
    scatter: float
    n: int
    draws: Float[ndarray, "m p"] = field(repr=False)

    def __call__(self, loss: Any) -> ndarray:
        """The score at given losses."""
        return _SHAPES[self.shape][0](np.asarray(loss, float), *self.params.values())

    def after(self, law: Law, **at: Values) -> ndarray:
        """The score at the predicted losses of a law, as an array of `Estimate`.

        Draws of the predicted loss pass through draws of the curve, with added residual noise.
        """
        lo, mid, hi = (np.atleast_1d(a) for a in law.band(level=0.95, **at))
        rng = np.random.default_rng(0)
        out = np.empty(len(mid), dtype=object)
        function = _SHAPES[self.shape][0]
        for i in range(len(mid)):
            z = rng.standard_normal(max(len(self.draws), 1))
            side = np.where(z > 0, np.log(hi[i] / mid[i]), np.log(mid[i] / lo[i])) / 1.96
            loss = mid[i] * np.exp(z * side)
            score = np.array(
                [function(np.array(x), *t) for x, t in zip(loss, self.draws, strict=False)]
            )
            score = score + self.scatter * rng.standard_normal(len(score))
            value = float(self(mid[i]))
            if len(score) < 20:
                out[i] = Estimate(value, method="no bootstrap draws")
                continue
            ends = np.quantile(score, [0.025, 0.975])
            out[i] = Estimate(
                value,
                lo=float(min(ends[0], value)),
                hi=float(max(ends[1], value)),
                n=self.n,
                method="law and task curve, bootstrap",
            )
        return out


def task_curve(
    loss: Any,
    score: Any,
    *,
    shape: Shape = "sigmoid",
    perfect: float | None = None,
    bootstrap: int = 200,
    seed: int = 0,
) -> TaskCurve:
    """Fit a task's score to loss by least squares.

    Args:
        loss: Losses of models or checkpoints.
        score: Their accuracy (`sigmoid`) or error (`decay`).
        shape: Which curve.
        perfect: For `sigmoid`: the score at a loss of zero, added as a data point.
        bootstrap: Number of bootstrap draws for the intervals.
        seed: Seed of the draws.
    """
    x, y = np.asarray(loss, float).reshape(-1), np.asarray(score, float).reshape(-1)
    require(shape in _SHAPES, "task_curve.shape", "be sigmoid or decay", shape)
    function, letters = _SHAPES[shape]
    require(len(x) == len(y), "task_curve.score", f"have {len(x)} values like loss", len(y))
    require(len(x) >= len(letters), "task_curve.loss", f"have {len(letters)} values", len(x))
    if shape == "sigmoid" and perfect is not None:
        x, y = np.append(x, 0.0), np.append(y, perfect)
    best = _fit(function, shape, x, y, None)
    scatter = float(np.sqrt(((function(x, *best) - y) ** 2).sum() / max(len(x) - len(best), 1)))
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(bootstrap):
        rows = rng.integers(0, len(x), len(x))
        draws.append(_fit(function, shape, x[rows], y[rows], best))
    params = dict(zip(letters, map(float, best), strict=True))
    return TaskCurve(shape, params, scatter, len(x), np.array(draws).reshape(-1, len(best)))


def _fit(
    function: Callable[..., ndarray], shape: str, x: ndarray, y: ndarray, start: ndarray | None
) -> ndarray:
    """Least squares from several starts, or from one given start."""
    from scipy import optimize  # imported here because it is slow

    if shape == "decay":
        starts = [[y.max() + 0.05, 1.0, g] for g in (0.3, 1.0, 2.0)]
        bounds = ([-np.inf] * 3, [np.inf] * 3)
    else:
        low, high = float(y.min()), float(y.max())
        starts = [[low - high, c, k, high] for c in (0.7, 0.9, 1.2) for k in (3.0, 6.0)]
        bounds = ([-1.0, 0.0, 0.0, 0.0], [0.0, np.inf, np.inf, 1.0])
        starts = [
            [min(max(s[0], -0.99), -0.01), *s[1:3], min(max(s[3], 0.01), 1.0)] for s in starts
        ]
    found = None
    for begin in starts if start is None else [start]:
        result = optimize.least_squares(
            lambda t: function(x, *t) - y,
            np.clip(begin, np.array(bounds[0]) + 1e-9, np.array(bounds[1]) - 1e-9),
            bounds=bounds,
            max_nfev=2000 if start is None else 60,
        )
        if found is None or result.cost < found.cost:
            found = result
    assert found is not None
    return found.x
