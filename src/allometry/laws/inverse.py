"""Inverse questions: where a law reaches a loss; and the compute-optimal frontier.

Letters: m draws, g grid points.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry._core.errors import UnidentifiedError, require
from allometry._core.estimate import Estimate

if TYPE_CHECKING:
    from allometry.laws.law import Law

GRID = 240
FARTHEST = float(np.log(1e40))


def solve(law: "Law", loss: float, variable: str, fixed: dict[str, float]) -> Estimate:
    """Where the law reaches `loss` along `variable`; the interval is that of its 95 % band."""
    require(loss > 0, "solve.loss", "be positive", loss)
    require(variable in ("N", "D", "C"), "solve.variable", "be N, D or C", variable)
    for name, value in fixed.items():
        require(
            name in ("N", "D", "C") and value > 0, f"solve.{name}", "be N, D or C, positive", value
        )

    def band(x: Float[ndarray, " g"]) -> Float[ndarray, "3 g"]:
        return law.log_band(points_along(law, variable, x, fixed))

    found = first_below(band, np.linspace(0.0, FARTHEST, GRID), float(np.log(loss)))
    lo, value, hi = (float(v) for v in np.exp(found))
    draws = law.curves(points_along(law, variable, np.array([FARTHEST]), fixed))[1:, 0]
    never = float((draws > np.log(loss)).mean()) if len(draws) else float(np.isinf(value))
    method = "95 % band" + (f"; {never:.1%} of the fits never reach {loss:g}" if never else "")
    if len(draws) < 20:
        return Estimate(value, n=law.n, method=method)
    return Estimate(value, lo=min(lo, value), hi=max(hi, value), n=law.n, method=method)


def points_along(
    law: "Law", variable: str, x: Float[ndarray, " g"], fixed: Mapping[str, float] | None = None
) -> dict[str, ndarray]:
    """Logs of the law's variables where log `variable` is x; compute is allocated optimally."""
    at: dict[str, Any] = {variable: np.exp(x), **(fixed or {})}
    if variable == "C" and {"N", "D"} <= set(law.variables) and not fixed:
        at["N"] = np.exp(best_size(law, x))
    return law.points(at)[0]


def first_below(
    lines: Callable[[Float[ndarray, " g"]], Float[ndarray, "k g"]],
    x: Float[ndarray, " g"],
    target: float,
) -> Float[ndarray, " k"]:
    """The first x at which each line is at or below `target`; infinity if it never is.

    A coarse search is followed by a fine one around its result.

    Args:
        lines: The values of the lines at increasing x.
        x: The coarse grid.
        target: The value to reach.
    """
    rough = crossing(x, lines(x), target)
    step = x[1] - x[0]
    for k, at in enumerate(rough):
        if np.isfinite(at):
            near = np.linspace(max(at - step, x[0]), at + step, 41)
            rough[k] = crossing(near, lines(near)[k : k + 1], target)[0]
    return rough


def frontier(law: "Law", c: Float[ndarray, " g"]) -> Float[ndarray, "m g"]:
    """The lowest log loss at each log compute over all allocations, for the law and each draw."""
    middle = central_size(law, c)
    steps = np.linspace(-12.0, 12.0, 121)
    coarse = range(0, len(steps), 8)

    def curves(i: int) -> Float[ndarray, "m g"]:
        n = middle + steps[i]
        return law.curves({"N": n, "D": law.cost.data(c, n), "C": c})

    best = curves(coarse[0])
    at = np.zeros(best.shape, int)
    for i in coarse[1:]:
        here = curves(i)
        at[here < best] = i
        np.minimum(best, here, out=best)
    # A draw has one lowest size at a compute, within a coarse step of the lowest one found.
    for i in range(max(at.min() - 7, 0), min(at.max() + 8, len(steps))):
        if i not in coarse:
            np.minimum(best, curves(i), out=best)
    return best


def best_size(law: "Law", c: Float[ndarray, " g"]) -> Float[ndarray, " g"]:
    """Log of the compute-optimal size at each log compute.

    If the loss is monotone in size, it is the end of the searched range, twelve e-folds from the
    sizes of the runs.
    """
    return lowest_size(law.allocation.law, c) + law.allocation.prior_shift(c)


def lowest_size(law: "Law", c: Float[ndarray, " g"]) -> Float[ndarray, " g"]:
    """Log of the size at which the law itself is lowest, at each log compute."""
    n, logs = _sizes(law, c)
    each = np.stack([m.weight * m.value(logs) for m in law.members])
    return _lowest_of(n, each.sum(0).reshape(1, *n.shape))[0]


def lowest_sizes(law: "Law", c: Float[ndarray, " g"]) -> Float[ndarray, "m g"]:
    """The same for the law (first row) and each of its draws."""
    n, logs = _sizes(law, c)
    return _lowest_of(n, law.curves(logs).reshape(-1, *n.shape))


def central_size(law: "Law", c: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """Log size on the line through the mean of the runs that grows as the root of compute."""
    return float(law.table.logs["N"].mean()) + 0.5 * (c - float(law.table.logs["C"].mean()))


def _sizes(
    law: "Law", c: Float[ndarray, " g"]
) -> tuple[Float[ndarray, "g a"], dict[str, Float[ndarray, " ga"]]]:
    """Log sizes to search at each log compute, and the same points flattened."""
    n = central_size(law, c)[:, None] + np.linspace(-12.0, 12.0, 241)
    flat, total = n.reshape(-1), np.repeat(c, n.shape[1])
    return n, {"N": flat, "D": law.cost.data(total, flat), "C": total}


def _lowest_of(n: Float[ndarray, "g a"], curves: Float[ndarray, "m g a"]) -> Float[ndarray, "m g"]:
    columns = [lowest(n[i], curves[:, i])[0] for i in range(len(n))]
    return np.stack(columns, 1)


def crossing(
    x: Float[ndarray, " g"], curves: Float[ndarray, "m g"], target: float
) -> Float[ndarray, " m"]:
    """The first x at which each falling curve is at or below `target`; infinity if none."""
    below = curves <= target
    reached = below.any(1)
    i = np.clip(below.argmax(1), 1, len(x) - 1)
    rows = np.arange(len(curves))
    a, b = curves[rows, i - 1], curves[rows, i]
    part = np.clip((a - target) / np.where(a > b, a - b, 1.0), 0, 1)
    return np.where(reached, x[i - 1] + part * (x[i] - x[i - 1]), np.inf)


def lowest(
    x: Float[ndarray, " g"], curves: Float[ndarray, "m g"]
) -> tuple[Float[ndarray, " m"], Bool[ndarray, " m"]]:
    """Minimum of each curve (by a parabola through three points), and whether at an edge."""
    i = curves.argmin(1)
    edge = (i == 0) | (i == len(x) - 1)
    j = np.clip(i, 1, len(x) - 2)
    rows = np.arange(len(curves))
    a, b, c = curves[rows, j - 1], curves[rows, j], curves[rows, j + 1]
    with np.errstate(invalid="ignore"):
        bend = a - 2 * b + c
    fine = np.isfinite(bend) & (bend > 0)
    shift = np.where(fine, 0.5 * (a - c) / np.where(fine, bend, 1.0), 0.0) if fine.any() else 0.0
    return np.where(edge, x[i], x[j] + np.clip(shift, -1, 1) * (x[1] - x[0])), edge


def from_draws(logs: Float[ndarray, " m"]) -> Estimate:
    """The exponential of the first entry, with an interval from the others."""
    value = float(np.exp(logs[0]))
    if len(logs) < 20:
        return Estimate(value, method="no bootstrap draws")
    lo, hi = np.exp(np.quantile(logs[1:], [0.025, 0.975]))
    return Estimate(
        value,
        lo=float(min(lo, value)),
        hi=float(max(hi, value)),
        n=len(logs) - 1,
        method="bootstrap",
    )


def budget(law: "Law", compute: float | None, loss: float | None = None) -> Estimate:
    """The given compute, or the compute that reaches a loss, with its interval."""
    require(
        (compute is None) != (loss is None),
        "plan",
        "be given compute, or a loss to reach",
        (compute, loss),
    )
    if compute is not None:
        return Estimate(compute, exact=True, method="given")
    assert loss is not None
    at = solve(law, loss, "C", {})
    if not np.isfinite(at.value):
        raise UnidentifiedError(
            f"The loss to reach must lie above the law's irreducible loss; the law never reaches "
            f"{loss:g}. Choose a higher loss.",
            at,
        )
    return at
