"""The next runs: which would narrow an asked-for prediction most for their compute.

Letters: p parameters, k candidates, n runs.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.interval import half_width
from allometry.laws.law import Law
from allometry.laws.member import covariance


@final
@dataclass(frozen=True)
class Next:
    """A run to do next, and what the asked-for interval would become after it.

    `width` is the relative width of the 95 % interval of the asked-for loss after this run and
    those listed before it.
    """

    N: float | None
    D: float | None
    compute: float
    width: float

    def to_dict(self) -> dict[str, float | None]:
        """The run as plain values."""
        return {"N": self.N, "D": self.D, "compute": self.compute, "width": self.width}


@final
@dataclass(frozen=True)
class Design:
    """Runs to do within a budget, in order of worth; the interval's width now and afterwards."""

    runs: list[Next]
    now: float
    after: float
    spent: float

    def to_dict(self) -> dict[str, Any]:
        """The design as plain values, ready for JSON."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "now": self.now,
            "after": self.after,
            "spent": self.spent,
        }


def next_runs(
    law: Law,
    budget: float,
    *,
    N: float | None = None,
    D: float | None = None,
    compute: float | None = None,
    most: int = 12,
) -> Design:
    r"""Runs that narrow the prediction at a target most per FLOP, within a budget.

    Optimal design for one prediction (c-optimality), greedily: a run at x with Jacobian j turns
    the parameters' covariance S into $S - S j j^T S / (\sigma^2 + j^T S j)$; each step takes the
    candidate with the largest decrease of the target interval's squared width per FLOP. A run
    nearer the target also shortens the extrapolation, and with it the drift.

    Args:
        law: A fitted law.
        budget: FLOPs to spend on new runs.
        N: Size at the target.
        D: Data at the target.
        compute: Or its compute; the plan's N and D are then the target.
        most: How many runs at most.

    References:
        `pukelsheim2006` (optimal design of experiments).
    """
    require(budget > 0, "next_runs.budget", "be positive", budget)
    if compute is not None:
        planned = law.plan(compute)
        N = None if planned.N is None else planned.N.value
        D = None if planned.D is None else planned.D.value
    member = law.members[0]
    given = {k: np.log([v]) for k, v in (("N", N), ("D", D), ("C", compute)) if v is not None}
    require(bool(given), "next_runs", "be given a target: N and D, or compute", "none")
    names = member.form.variables
    target = {v: law.coordinate(v, given) for v in names}
    options = _candidates(law, budget)
    _, J = member.form.evaluate(member.theta[None], member.at(law.table.logs))
    S = covariance(J[0], member.noise, None, member.prior)
    _, g = member.form.evaluate(member.theta[None], member.at(target))
    goal = g[0][:, 0]
    _, K = member.form.evaluate(member.theta[None], member.at(options))
    seen = {v: law.table.logs[v] for v in names}
    cost = np.exp(options["C"])
    sigma2 = max(member.noise, 1e-4) ** 2
    nothing = {v: x[:1] for v, x in seen.items()}
    now = float(_widths(law, np.array([goal @ S @ goal]), target, seen, nothing)[0])
    runs: list[Next] = []
    left, width = budget, now
    while left > 0 and len(runs) < most:
        hit = S @ goal
        gain = (hit @ K[0]) ** 2 / (sigma2 + np.einsum("pk,pq,qk->k", K[0], S, K[0]))
        widths = _widths(law, goal @ S @ goal - gain, target, seen, options)
        widths[cost > left] = np.inf
        worth = (width**2 - widths**2) / cost
        i = int(np.argmax(np.where(np.isfinite(worth), worth, -np.inf)))
        if not np.isfinite(worth[i]) or width - widths[i] < 1e-4 * now:
            break
        S = S - np.outer(S @ K[0][:, i], S @ K[0][:, i]) / (sigma2 + K[0][:, i] @ S @ K[0][:, i])
        seen = _with(seen, options, i)
        left, width = left - float(cost[i]), float(widths[i])
        runs.append(
            Next(
                float(np.exp(options["N"][i])) if "N" in options else None,
                float(np.exp(options["D"][i])) if "D" in options else None,
                float(cost[i]),
                width,
            )
        )
    return Design(runs, now, width, budget - left)


def _candidates(law: Law, budget: float) -> dict[str, ndarray]:
    """Runs that could be done: a grid of sizes and data around and beyond those done."""
    logs = law.table.logs
    c_top = math.log(budget)
    if {"N", "D"} <= set(logs):
        span = [np.linspace(logs[v].min(), logs[v].max() + 3.0, 24) for v in ("N", "D")]
        n, d = (a.reshape(-1) for a in np.meshgrid(*span))
        if law.path is not None:
            c = np.linspace(logs["C"].min(), logs["C"].max() + 4.0, 60)
            n, d = law.path.at("N", c), law.path.at("D", c)
        c = law.cost.compute(n, d)
        keep = c <= c_top
        made = {"N": n[keep], "D": d[keep], "C": c[keep]}
    else:
        name = "C" if "C" in logs else next(iter(logs))
        x = np.linspace(logs[name].min(), logs[name].max() + 4.0, 80)
        # With one variable alone, cost is taken to grow with its square (C ~ N^2 along a path).
        c = x if name == "C" else 2 * x
        made = {name: x[c <= c_top], "C": c[c <= c_top]}
    require(
        len(made["C"]) > 0,
        "next_runs.budget",
        "pay for at least one run of the smallest size",
        budget,
    )
    return made


def _with(seen: dict[str, ndarray], options: dict[str, ndarray], i: int) -> dict[str, ndarray]:
    return {v: np.append(x, options[v][i]) for v, x in seen.items()}


def _widths(
    law: Law,
    variance: Float[ndarray, " k"],
    target: dict[str, ndarray],
    seen: dict[str, ndarray],
    options: dict[str, ndarray],
) -> Float[ndarray, " k"]:
    """Relative width of the interval at the target once each option has been run."""
    far = np.zeros(len(variance))
    for v, x in seen.items():
        high, low = np.maximum(x.max(), options[v]), np.minimum(x.min(), options[v])
        far += np.maximum(0.0, np.maximum(target[v] - high, low - target[v])) ** 2
    half = half_width(np.maximum(variance, 0.0), law.noise, law.dof, np.sqrt(far), law.drift)
    return 2 * np.sinh(half)
