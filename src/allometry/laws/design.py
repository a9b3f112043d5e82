"""The next runs: which would narrow an asked-for prediction most for their compute.

Letters: p parameters, k candidates, n runs.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.component import covariance
from allometry.laws.intervals import BETWEEN, half_width, unseen
from allometry.laws.law import Law


@final
@dataclass(frozen=True)
class ProposedRun:
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
    """Runs to do within a budget, in order of worth; the interval's width now and afterwards.

    `why` says in words what the width is made of, and so what would narrow it.
    """

    runs: list[ProposedRun]
    now: float
    after: float
    spent: float
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The design as plain values, ready for JSON."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "now": self.now,
            "after": self.after,
            "spent": self.spent,
            "why": self.why,
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
    the parameters' covariance S into $S - S j j^T S / (\sigma^2 + j^T S j)$. A run nearer the
    target also shortens the extrapolation, and with it the drift. Several ways of spending are
    tried: always the largest decrease of the squared width per FLOP, and the largest decrease by
    a run that costs no more than a share of the budget, for several shares. The way that ends
    narrowest is taken; among ways that end within 3 % of it, the cheapest.

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
    given = {k: np.log([v]) for k, v in (("N", N), ("D", D), ("C", compute)) if v is not None}
    require(bool(given), "next_runs", "be given a target: N and D, or compute", "none")
    require(most >= 1, "next_runs.most", "be at least 1", most)
    task = _task(law, given, _candidates(law, budget))
    now = float(_widths(law, task, task.S, task.seen, nothing=True)[0])
    ways = [_greedy(law, task, now, budget, most, None)]
    for share in sorted({1, 2, 3, most}):
        if share <= most:
            ways.append(_greedy(law, task, now, budget, most, budget / share))
    best = min(way.after for way in ways)
    fix = "Look for runs whose size or loss lies far from the others'."
    finite = math.isfinite(now) and math.isfinite(best)
    require(finite, "next_runs", "be asked for a run whose interval is finite", now, fix)
    taken = min((w for w in ways if w.after <= 1.03 * best), key=lambda w: w.spent)
    return replace(taken, why=_why(law, task))


@final
@dataclass(frozen=True)
class _Task:
    """The target's gradient, the runs that could be done with theirs, what is known now."""

    goal: Float[ndarray, " p"]
    target: dict[str, ndarray]
    options: dict[str, ndarray]
    slopes: Float[ndarray, "p k"]
    S: Float[ndarray, "p p"]
    sigma2: float
    seen: dict[str, ndarray]
    between: float


def _why(law: Law, task: _Task) -> str:
    """What the width at the target is made of."""
    far = float(_far(task, task.seen, nothing=True)[0])
    parts = {
        "what the form may get wrong further out": (law.drift.typical * far) ** 2,
        "doubt about the parameters": float(task.goal @ task.S @ task.goal),
        "doubt about the form": task.between,
        "the noise of a run": law.noise**2,
    }
    total = sum(parts.values())
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    said = [f"{name} {value / total:.0%}" for name, value in ranked if value > 0.05 * total]
    words = f"Of the interval's squared width: {', '.join(said)}."
    if ranked[0][0].startswith("what the form"):
        words += " Only runs nearer the target make that less."
    elif ranked[0][0].startswith("the noise"):
        words += " The noise no run makes less."
    return words


def _task(law: Law, given: dict[str, ndarray], options: dict[str, ndarray]) -> _Task:
    # Of an average of forms, one that knows both N and D can tell their runs apart.
    member = max(law.members, key=lambda m: (len(m.form.variables), m.weight))
    names = dict.fromkeys((*member.form.variables, "C"))
    target = {v: law.coordinate(v, given) for v in names if v in law.table.logs}
    _, J = member.form.evaluate(member.theta[None], member.at(law.table.logs))
    _, g = member.form.evaluate(member.theta[None], member.at(target))
    _, K = member.form.evaluate(member.theta[None], member.at(options))
    every = {v: law.coordinate(v, given) for v in law.variables}
    values = np.array([m.form.value(m.theta[None], m.at(every))[0, 0] for m in law.members])
    weights = np.array([m.weight for m in law.members])
    return _Task(
        g[0][:, 0],
        target,
        options,
        K[0],
        covariance(J[0], member.noise, None, member.prior),
        max(member.noise, 1e-4) ** 2,
        {v: law.table.logs[v] for v in target},
        BETWEEN * float(weights @ (values - weights @ values) ** 2),
    )


def _greedy(
    law: Law, task: _Task, now: float, budget: float, most: int, cap: float | None
) -> Design:
    """One run after the other: the best per FLOP, or with `cap` the best that costs no more."""
    S, seen, left, width = task.S, task.seen, budget, now
    cost = np.exp(task.options["C"])
    runs: list[ProposedRun] = []
    while left > 0 and len(runs) < most:
        widths = _widths(law, task, S, seen)
        widths[cost > left * (1 + 1e-9)] = np.inf
        worth = width**2 - widths**2
        if cap is None:
            worth = worth / cost
        else:
            worth[cost > cap * (1 + 1e-9)] = -np.inf
        i = int(np.argmax(np.where(np.isfinite(worth), worth, -np.inf)))
        if not np.isfinite(worth[i]) or width - widths[i] < 1e-3 * now:
            break
        j = task.slopes[:, i]
        S = S - np.outer(S @ j, S @ j) / (task.sigma2 + j @ S @ j)
        seen = {v: np.append(x, task.options[v][i]) for v, x in seen.items()}
        left, width = left - float(cost[i]), float(widths[i])
        at = {
            k: float(np.exp(task.options[k][i])) if k in task.options else None for k in ("N", "D")
        }
        runs.append(ProposedRun(at["N"], at["D"], float(cost[i]), width))
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
        else:
            # Runs no more lopsided than those done, give or take a factor of two.
            ratio = logs["D"] - logs["N"]
            near = (d - n >= ratio.min() - 0.7) & (d - n <= ratio.max() + 0.7)
            n, d = n[near], d[near]
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


def _widths(
    law: Law,
    task: _Task,
    S: Float[ndarray, "p p"],
    seen: dict[str, ndarray],
    *,
    nothing: bool = False,
) -> Float[ndarray, " k"]:
    """Relative width of the interval at the target once each option (or nothing) has been run."""
    variance = np.array([task.goal @ S @ task.goal + task.between])
    if not nothing:
        K = task.slopes
        gain = (task.goal @ S @ K) ** 2 / (task.sigma2 + np.einsum("pk,pq,qk->k", K, S, K))
        variance = variance - gain
    far = _far(task, seen, nothing=nothing)
    runs = len(next(iter(seen.values()))) + (not nothing)
    variance = np.maximum(variance, 0.0) + unseen(far, runs, len(law.variables))
    half = half_width(variance, law.noise, law.dof, far, law.drift)
    return 2 * np.sinh(half)


def _far(task: _Task, seen: dict[str, ndarray], *, nothing: bool) -> Float[ndarray, " k"]:
    """How far beyond the runs the target lies once each option (or nothing) has been run."""
    count = 1 if nothing else task.slopes.shape[1]
    far, deep = np.zeros(count), np.zeros(count)
    for v, x in seen.items():
        at = x[:1] if nothing else task.options[v]
        above = task.target[v] - np.maximum(x.max(), at)
        outside = np.maximum(0.0, np.maximum(above, np.minimum(x.min(), at) - task.target[v]))
        if v == "C" and len(seen) > 2:  # a corner that no run has counts by its compute
            deep = np.maximum(0.0, above) / np.sqrt(2)
        elif v != "C" or len(seen) == 1:
            far += outside**2
    return np.maximum(np.sqrt(far), deep)
