"""Optimal design: the next runs that narrow a prediction most for their compute.

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
from allometry.laws.intervals import BETWEEN_FORMS, few_runs_variance, half_width
from allometry.laws.law import Law


@final
@dataclass(frozen=True)
class ProposedRun:
    """A proposed run, and the expected width of the interval after it.

    `width` is the relative width of the 95 % interval of the target loss after this run and those
    listed before it.
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
    """Proposed runs within a budget, best first; the width of the interval now and afterwards.

    `why` states the sources of the width.
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
    r"""Runs within a budget that narrow the prediction at a target most.

    Greedy optimal design for one prediction (c-optimality): a run at x with Jacobian j changes the
    parameter covariance S to $S - S j j^T S / (\sigma^2 + j^T S j)$. A run nearer the target also
    reduces the extrapolation error. Several strategies are compared: the largest decrease of the
    squared width per FLOP, and the largest decrease by a run that costs at most a share of the
    budget, for several shares. The result is the cheapest strategy within 3 % of the narrowest.

    Args:
        law: A fitted law.
        budget: FLOPs to spend on new runs.
        N: Size at the target.
        D: Data at the target.
        compute: Compute at the target, instead of N and D; its planned N and D are used.
        most: Largest number of runs.

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
    problem = _problem(law, given, _candidates(law, budget))
    now = float(_widths(law, problem, problem.S, problem.seen, no_run=True)[0])
    designs = [_greedy(law, problem, now, budget, most, None)]
    for share in sorted({1, 2, 3, most}):
        if share <= most:
            designs.append(_greedy(law, problem, now, budget, most, budget / share))
    best = min(design.after for design in designs)
    fix = "Check for runs whose size or loss lies far from the others."
    finite = math.isfinite(now) and math.isfinite(best)
    require(finite, "next_runs", "have a target with a finite interval", now, fix)
    chosen = min((d for d in designs if d.after <= 1.03 * best), key=lambda d: d.spent)
    return replace(chosen, why=_why(law, problem))


@final
@dataclass(frozen=True)
class _Problem:
    """Gradients at the target and at the candidate runs, and the current covariance."""

    goal: Float[ndarray, " p"]
    target: dict[str, ndarray]
    options: dict[str, ndarray]
    slopes: Float[ndarray, "p k"]
    S: Float[ndarray, "p p"]
    sigma2: float
    seen: dict[str, ndarray]
    between: float


def _why(law: Law, problem: _Problem) -> str:
    """The sources of the width at the target."""
    far = float(_far(problem, problem.seen, no_run=True)[0])
    extrapolation, noise = "extrapolation error", "noise between runs"
    parts = {
        extrapolation: (law.extrapolation_error.typical * far) ** 2,
        "parameter uncertainty": float(problem.goal @ problem.S @ problem.goal),
        "model uncertainty": problem.between,
        noise: law.noise**2,
    }
    total = sum(parts.values())
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    shares = [f"{name} {value / total:.0%}" for name, value in ranked if value > 0.05 * total]
    text = f"Sources of the interval's squared width: {', '.join(shares)}."
    if ranked[0][0] == extrapolation:
        text += " Only runs nearer the target reduce the extrapolation error."
    elif ranked[0][0] == noise:
        text += " No run reduces the noise."
    return text


def _problem(law: Law, given: dict[str, ndarray], options: dict[str, ndarray]) -> _Problem:
    # In an average of forms, prefer one in both N and D, so that its runs differ in both.
    member = max(law.members, key=lambda m: (len(m.form.variables), m.weight))
    names = dict.fromkeys((*member.form.variables, "C"))
    target = {v: law.coordinate(v, given) for v in names if v in law.table.logs}
    _, J = member.form.evaluate(member.theta[None], member.at(law.table.logs))
    _, g = member.form.evaluate(member.theta[None], member.at(target))
    _, K = member.form.evaluate(member.theta[None], member.at(options))
    every = {v: law.coordinate(v, given) for v in law.variables}
    values = np.array([m.value(every)[0] for m in law.members])
    weights = np.array([m.weight for m in law.members])
    return _Problem(
        g[0][:, 0],
        target,
        options,
        K[0],
        covariance(J[0], member.noise, None, member.prior),
        max(member.noise, 1e-4) ** 2,
        {v: law.table.logs[v] for v in target},
        BETWEEN_FORMS * float(weights @ (values - weights @ values) ** 2),
    )


def _greedy(
    law: Law, problem: _Problem, now: float, budget: float, most: int, cap: float | None
) -> Design:
    """Add one run at a time: the best per FLOP, or the best that costs at most `cap`."""
    S, seen, left, width = problem.S, problem.seen, budget, now
    cost = np.exp(problem.options["C"])
    runs: list[ProposedRun] = []
    while left > 0 and len(runs) < most:
        widths = _widths(law, problem, S, seen)
        widths[cost > left * (1 + 1e-9)] = np.inf
        decrease = width**2 - widths**2
        if cap is None:
            decrease = decrease / cost
        else:
            decrease[cost > cap * (1 + 1e-9)] = -np.inf
        i = int(np.argmax(np.where(np.isfinite(decrease), decrease, -np.inf)))
        if not np.isfinite(decrease[i]) or width - widths[i] < 1e-3 * now:
            break
        j = problem.slopes[:, i]
        S = S - np.outer(S @ j, S @ j) / (problem.sigma2 + j @ S @ j)
        seen = {v: np.append(x, problem.options[v][i]) for v, x in seen.items()}
        left, width = left - float(cost[i]), float(widths[i])
        at = {
            k: float(np.exp(problem.options[k][i])) if k in problem.options else None
            for k in ("N", "D")
        }
        runs.append(ProposedRun(at["N"], at["D"], float(cost[i]), width))
    return Design(runs, now, width, budget - left)


def _candidates(law: Law, budget: float) -> dict[str, ndarray]:
    """Candidate runs: a grid of sizes and data around and beyond the existing runs."""
    logs = law.table.logs
    c_top = math.log(budget)
    if {"N", "D"} <= set(logs):
        span = [np.linspace(logs[v].min(), logs[v].max() + 3.0, 24) for v in ("N", "D")]
        n, d = (a.reshape(-1) for a in np.meshgrid(*span))
        if law.path is not None:
            c = np.linspace(logs["C"].min(), logs["C"].max() + 4.0, 60)
            n, d = law.path.at("N", c), law.path.at("D", c)
        else:
            # D/N in the range of the existing runs, up to a factor of two.
            ratio = logs["D"] - logs["N"]
            near = (d - n >= ratio.min() - 0.7) & (d - n <= ratio.max() + 0.7)
            n, d = n[near], d[near]
        c = law.cost.compute(n, d)
        keep = c <= c_top
        candidates = {"N": n[keep], "D": d[keep], "C": c[keep]}
    else:
        name = "C" if "C" in logs else next(iter(logs))
        x = np.linspace(logs[name].min(), logs[name].max() + 4.0, 80)
        # With one variable the cost is assumed to grow with its square (C ~ N^2 along a path).
        c = x if name == "C" else 2 * x
        candidates = {name: x[c <= c_top], "C": c[c <= c_top]}
    require(
        len(candidates["C"]) > 0,
        "next_runs.budget",
        "pay for at least one run of the smallest size",
        budget,
    )
    return candidates


def _widths(
    law: Law,
    problem: _Problem,
    S: Float[ndarray, "p p"],
    seen: dict[str, ndarray],
    *,
    no_run: bool = False,
) -> Float[ndarray, " k"]:
    """Relative width of the interval at the target after each candidate run (or no run)."""
    variance = np.array([problem.goal @ S @ problem.goal + problem.between])
    if not no_run:
        K = problem.slopes
        gain = (problem.goal @ S @ K) ** 2 / (problem.sigma2 + np.einsum("pk,pq,qk->k", K, S, K))
        variance = variance - gain
    far = _far(problem, seen, no_run=no_run)
    runs = len(next(iter(seen.values()))) + (not no_run)
    variance = np.maximum(variance, 0.0) + few_runs_variance(far, runs, len(law.variables))
    half = half_width(variance, law.noise, law.dof, far, law.extrapolation_error)
    return 2 * np.sinh(half)


def _far(problem: _Problem, seen: dict[str, ndarray], *, no_run: bool) -> Float[ndarray, " k"]:
    """Distance of the target beyond the runs after each candidate run (or no run)."""
    count = 1 if no_run else problem.slopes.shape[1]
    far, deep = np.zeros(count), np.zeros(count)
    for v, x in seen.items():
        at = x[:1] if no_run else problem.options[v]
        above = problem.target[v] - np.maximum(x.max(), at)
        outside = np.maximum(0.0, np.maximum(above, np.minimum(x.min(), at) - problem.target[v]))
        if v == "C" and len(seen) > 2:  # a point large in both N and D counts by its compute
            deep = np.maximum(0.0, above) / np.sqrt(2)
        elif v != "C" or len(seen) == 1:
            far += outside**2
    return np.maximum(np.sqrt(far), deep)
