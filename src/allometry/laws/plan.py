"""Plans: what a law says to do with a budget, and what it takes to reach a loss.

Letters: m draws, g grid points, v variables.
"""

import math
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.laws.law import Law

GRID = 600


@final
@dataclass(frozen=True)
class Plan:
    """The size and data to spend a budget on, with the loss to expect.

    Args:
        compute: The budget in FLOPs.
        N: Parameters.
        D: Data.
        loss: Loss of a run like that, with its 95 % prediction interval.
        form: The law's form.
        warnings: What to doubt about the plan.
        method: How N and D were found.
    """

    compute: float
    N: Estimate | None
    D: Estimate | None
    loss: Estimate
    form: str
    warnings: list[str] = field(default_factory=list)
    method: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, ready for JSON."""
        none = {"value": None, "se": None, "lo": None, "hi": None}
        return {
            "compute": self.compute,
            "N": none if self.N is None else self.N.to_dict(),
            "D": none if self.D is None else self.D.to_dict(),
            "loss": self.loss.to_dict(),
            "form": self.form,
            "warnings": list(self.warnings),
            "method": self.method,
        }

    def __str__(self) -> str:
        lines = [f"with {self.compute:.3g} FLOPs ({self.form}):"]
        lines += [f"  {k} = {v}" for k, v in (("N", self.N), ("D", self.D), ("loss", self.loss))]
        return "\n".join(lines + [f"  warning: {sentence}" for sentence in self.warnings])


def plan(law: Law, compute: float) -> Plan:
    """The plan that a law makes of a budget.

    For a law in N and D: the split of the budget between them with the least loss, found on each
    bootstrap draw as well, so that N and D carry intervals. For a law in one variable: the point
    on the runs' own path with that compute.

    Args:
        law: A fitted law.
        compute: The budget in FLOPs.

    References:
        `hoffmann2022` Eq. (4), approach 3.
    """
    require(compute > 0 and math.isfinite(compute), "plan.compute", "be positive", compute)
    warnings = list(law.warnings) + _beyond(law, compute)
    c = float(np.log(compute))
    if {"N", "D"} <= set(law.variables):
        N, D, said = _optimum(law, c)
        loss = law.predict(N=[float(N)], D=[float(D)])[0]
        return Plan(compute, N, D, loss, law.form, warnings + said, "least loss at that compute")
    if law.path is not None:
        n, d = (law.path.at(name, np.array([c])) for name in ("N", "D"))
        if law.path.of["D"][1] == 0.0:
            n = law.cost.size(np.array([c]), d)
        warnings.append(
            "The runs lie on one path of N and D, so the plan follows that path; whether another "
            "split of the budget would be better can't be told from them."
        )
        N, D = (Estimate(float(np.exp(v[0])), method="the runs' own path") for v in (n, d))
        loss = law.predict(N=[float(N)], D=[float(D)])[0]
        return Plan(compute, N, D, loss, law.form, warnings, "path")
    if law.variables == ("C",):
        warnings.append(
            "The law is in compute alone, so it says what to expect but not how to split the "
            "budget into N and D."
        )
        N, D, said = _trend(law, c)
        loss = law.predict(C=[compute])[0]
        return Plan(compute, N, D, loss, law.form, warnings + said, "trend of runs")
    require(
        False,
        "law",
        "know N and D, or C, to plan for a budget of compute",
        law.variables,
        "Give the runs a C column, or both N and D.",
    )
    raise AssertionError


def _beyond(law: Law, compute: float) -> list[str]:
    """A warning where the budget is far beyond the runs."""
    if "C" not in law.table.logs:
        return []
    ratio = compute / float(np.exp(law.table.logs["C"].max()))
    span = float(np.exp(np.ptp(law.table.logs["C"])))
    if ratio > max(span, 10.0):
        return [
            f"The budget is {ratio:.3g} times the largest run, further than the runs themselves "
            f"span ({span:.3g} times): backtests don't reach that far."
        ]
    return []


def _optimum(law: Law, c: float) -> tuple[Estimate, Estimate, list[str]]:
    """Compute-optimal N and D at log compute `c`, with intervals from the draws."""
    seen = law.table.logs["N"]
    middle = float(seen.mean()) + 0.5 * (c - float(law.table.logs["C"].mean()))
    n = np.linspace(middle - 12.0, middle + 12.0, GRID)
    d = law.cost.data(np.full_like(n, c), n)
    best, edge = lowest(n, law.curves({"N": n, "D": d, "C": np.full_like(n, c)}))
    warnings = []
    share = float(edge[1:].mean()) if len(edge) > 1 else 0.0
    if edge[0] or share > 0.025:
        warnings.append(
            f"The split between N and D is not determined: in {max(share, float(edge[0])):.0%} of "
            "the fits the best size lies at no finite value."
        )
    data = law.cost.data(np.full_like(best, c), best)
    return from_draws(best), from_draws(data), warnings


def lowest(
    x: Float[ndarray, " g"], curves: Float[ndarray, "m g"]
) -> tuple[Float[ndarray, " m"], ndarray]:
    """Where each curve is lowest (by a parabola through three points), and whether at an edge."""
    i = curves.argmin(1)
    edge = (i == 0) | (i == len(x) - 1)
    j = np.clip(i, 1, len(x) - 2)
    rows = np.arange(len(curves))
    a, b, c = curves[rows, j - 1], curves[rows, j], curves[rows, j + 1]
    bend = a - 2 * b + c
    shift = np.where(bend > 0, 0.5 * (a - c) / np.where(bend > 0, bend, 1.0), 0.0)
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


def _trend(law: Law, c: float) -> tuple[Estimate | None, Estimate | None, list[str]]:
    """Where the runs' own trend of N and D goes at that compute: a habit, not an optimum."""
    if not {"N", "D"} <= set(law.table.logs):
        return None, None, []
    x = law.table.logs["C"]
    n = law.table.logs["N"]
    slope = float(np.cov(x, n)[0, 1] / x.var(ddof=1))
    at = float(n.mean() + slope * (c - x.mean()))
    d = float(law.cost.data(np.array([c]), np.array([at]))[0])
    how = "the runs' own trend, not an optimum"
    return Estimate(float(np.exp(at)), method=how), Estimate(float(np.exp(d)), method=how), []


def reach(law: Law, loss: float, variable: str, fixed: dict[str, float]) -> Estimate:
    """Where the law reaches `loss` along `variable`, with an interval from the draws."""
    require(loss > 0, "solve.loss", "be positive", loss)
    require(variable in ("N", "D", "C"), "solve.variable", "be N, D or C", variable)
    for name, value in fixed.items():
        require(
            name in ("N", "D", "C") and value > 0, f"solve.{name}", "be N, D or C, positive", value
        )
    start = float(np.log(1.0))
    x = np.linspace(start, np.log(1e40), 4 * GRID)
    if variable == "C" and {"N", "D"} <= set(law.variables) and not fixed:
        # Each point of the frontier is a search over splits: look coarsely, then where it counts.
        x = x[:: len(x) // 80]
        rough = crossing(x, _frontier(law, x), float(np.log(loss)))
        near = rough[np.isfinite(rough)]
        if len(near):
            x = np.linspace(near.min() - (x[1] - x[0]), near.max() + (x[1] - x[0]), 80)
        curves = _frontier(law, x)
    else:
        given = {variable: x} | {k: np.full_like(x, np.log(v)) for k, v in fixed.items()}
        curves = law.curves({v: law.coordinate(v, given) for v in law.variables})
    found = crossing(x, curves, float(np.log(loss)))
    never = float(np.isinf(found[1:]).mean()) if len(found) > 1 else float(np.isinf(found[0]))
    lo, hi = (
        (np.exp(np.quantile(found[1:], [0.025, 0.975], method="nearest")))
        if len(found) > 20
        else (None, None)
    )
    value = float(np.exp(found[0]))
    method = "bootstrap"
    if never > 0:
        method += f"; {never:.1%} of the fits never reach {loss:g}"
    return Estimate(
        value,
        lo=None if lo is None else float(min(lo, value)),
        hi=None if hi is None else float(max(hi, value)),
        n=law.n,
        method=method,
    )


def _frontier(law: Law, c: Float[ndarray, " g"]) -> Float[ndarray, "m g"]:
    """The least log loss at each log compute, over a grid of splits."""
    middle = float(law.table.logs["N"].mean()) + 0.5 * (c - float(law.table.logs["C"].mean()))
    best = None
    for away in np.linspace(-12.0, 12.0, 121):
        n = middle + away
        curves = law.curves({"N": n, "D": law.cost.data(c, n), "C": c})
        best = curves if best is None else np.minimum(best, curves)
    assert best is not None
    return best


def crossing(
    x: Float[ndarray, " g"], curves: Float[ndarray, "m g"], target: float
) -> Float[ndarray, " m"]:
    """First place where each falling curve is at or below `target`; infinity where it never is."""
    below = curves <= target
    reached = below.any(1)
    i = np.clip(below.argmax(1), 1, len(x) - 1)
    rows = np.arange(len(curves))
    a, b = curves[rows, i - 1], curves[rows, i]
    part = np.clip((a - target) / np.where(a > b, a - b, 1.0), 0, 1)
    return np.where(reached, x[i - 1] + part * (x[i] - x[i - 1]), np.inf)
