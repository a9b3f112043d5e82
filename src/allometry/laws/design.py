"""Optimal design: the next runs that narrow a prediction most for their compute.

Letters: p parameters, k candidates, n runs.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.design_problem import (
    Problem,
    State,
    candidates,
    distance_after,
    problem_of,
    spread,
    widths,
)
from allometry.laws.law import Law

HELPS = 0.03
"""Smallest decrease of the interval's width, as a share of it, that is worth new runs."""

LEAST = 0.005
"""Smallest decrease of the width by one more run, as a share of the width now."""


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

    Args:
        runs: The runs; none if no run within the budget narrows the interval by 3 % of its width.
        now: Relative width of the 95 % interval of the target loss now.
        after: Its expected width after the runs.
        spent: FLOPs of the runs.
        why: The sources of the width.
        needed: If no affordable run helps, the FLOPs from which runs do, or None if no run below
            the compute of the target helps.
    """

    runs: list[ProposedRun]
    now: float
    after: float
    spent: float
    why: str = ""
    needed: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The design as plain values, ready for JSON."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "now": self.now,
            "after": self.after,
            "spent": self.spent,
            "why": self.why,
            "needed": self.needed,
        }


def next_runs(
    law: Law,
    budget: float,
    *,
    N: float | None = None,
    D: float | None = None,
    compute: float | None = None,
    most: int = 12,
    replicas: bool = False,
) -> Design:
    r"""Runs within a budget that narrow the prediction at a target most.

    Greedy optimal design for one prediction (c-optimality). The losses at the target and at the
    candidates are jointly normal, with the covariance K of the forms' parameters. A run at
    candidate i changes it to $K - K_{\cdot i} K_{i \cdot} / (\sigma^2 + K_{ii})$. With $v_i$ the
    variance between the forms there and $v$ the largest at a run so far, it tests the form and
    multiplies the variance between the forms by $\sigma^2 / (\sigma^2 + \max(v_i - v, 0))$. A run
    nearer the target also reduces the extrapolation error. Several strategies are compared: the
    largest decrease of the squared width per FLOP, and the largest decrease by a run that costs
    at most a share of the budget, for several shares. The result is the cheapest strategy within
    3 % of the narrowest.

    The runs differ from each other and from the existing ones by a factor 1.5 in N or D, and no
    more than half of them share a size or a ratio D/N: replicas measure the noise, not the form.

    Args:
        law: A fitted law.
        budget: FLOPs to spend on new runs.
        N: Size at the target.
        D: Data at the target.
        compute: Compute at the target, instead of N and D; its planned N and D are used.
        most: Largest number of runs.
        replicas: Whether to repeat existing configurations instead, spread over their sizes, to
            measure the noise between runs.

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
    problem = problem_of(law, given, candidates(law, budget))
    now = float(widths(law, problem, State.first(problem), no_run=True)[0])
    chosen = _best(law, problem, now, budget, most)
    fix = "Check for runs whose size or loss lies far from the others."
    finite = math.isfinite(now) and math.isfinite(chosen.after)
    require(finite, "next_runs", "have a target with a finite interval", now, fix)
    why = _why(law, problem)
    if replicas:
        return _replicas(law, problem, now, budget, most)
    if chosen.after > (1 - HELPS) * now:
        needed = _needed(law, given, budget, now, most)
        return Design([], now, now, 0.0, why, needed)
    return replace(chosen, why=why)


def _why(law: Law, problem: Problem) -> str:
    """The sources of the width at the target."""
    far = float(distance_after(problem, problem.seen, no_run=True)[0])
    extrapolation, noise = "extrapolation error", "noise between runs"
    parts = {
        extrapolation: (law.extrapolation_error.typical * far) ** 2
        + (law.calibration.spread * problem.decline) ** 2,
        "parameter uncertainty": float(problem.K[0, 0]),
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


def _best(law: Law, problem: Problem, now: float, budget: float, most: int) -> Design:
    """The cheapest of several greedy designs within 3 % of the narrowest."""
    designs = [_greedy(law, problem, now, budget, most, None)]
    for share in sorted({1, 2, 3, most}):
        if share <= most:
            designs.append(_greedy(law, problem, now, budget, most, budget / share))
    best = min(design.after for design in designs)
    return min((d for d in designs if d.after <= 1.03 * best), key=lambda d: d.spent)


def _needed(
    law: Law, given: dict[str, ndarray], budget: float, now: float, most: int
) -> float | None:
    """The least budget, in steps of a factor 10^(1/2), at which runs help; up to the target's."""
    top = float(np.exp(law.coordinate("C", given)[0])) if "C" in law.table.logs else 0.0
    larger = budget * math.sqrt(10.0)
    while larger < top:
        problem = problem_of(law, given, candidates(law, larger))
        design = _best(law, problem, now, larger, most)
        if design.after <= (1 - HELPS) * now:
            return design.spent
        larger *= math.sqrt(10.0)
    return None


def _replicas(law: Law, problem: Problem, now: float, budget: float, most: int) -> Design:
    """Repetitions of existing runs, each within its share of the budget, spread over sizes."""
    cost = np.unique(np.exp(law.table.logs["C"])) if "C" in law.table.logs else np.array([])
    cost = cost[cost <= budget / most]
    fix = "Give a larger budget, or fewer runs with --most."
    require(len(cost) > 0, "next_runs.budget", "pay for repeating a run", budget, fix)
    runs = []
    for c in dict.fromkeys(cost[np.linspace(0, len(cost) - 1, most).round().astype(int)]):
        i = int(np.abs(law.table.logs["C"] - math.log(c)).argmin())
        at = {k: float(np.exp(x[i])) for k, x in law.table.logs.items() if k in ("N", "D")}
        state = State.first(problem)
        dof = law.dof + len(runs) + 1
        width = float(widths(law, problem, state, no_run=True, dof=dof)[0])
        runs.append(ProposedRun(at.get("N"), at.get("D"), float(c), min(width, now)))
    why = (
        f"Repetitions raise the degrees of freedom of the noise from {law.dof} to "
        f"{law.dof + len(runs)}; they do not test the form."
    )
    return Design(runs, now, runs[-1].width, sum(run.compute for run in runs), why)


def _greedy(
    law: Law, problem: Problem, now: float, budget: float, most: int, cap: float | None
) -> Design:
    """Add one run at a time: the best per FLOP, or the best that costs at most `cap`."""
    state, left, width = State.first(problem), budget, now
    cost = np.exp(problem.options["C"])
    allowed, taken = problem.allowed, []
    runs: list[ProposedRun] = []
    while left > 0 and len(runs) < most:
        after = widths(law, problem, state)
        after[(cost > left * (1 + 1e-9)) | ~allowed] = np.inf
        decrease = width**2 - after**2
        if cap is None:
            decrease = decrease / cost
        else:
            decrease[cost > cap * (1 + 1e-9)] = -np.inf
        i = int(np.argmax(np.where(np.isfinite(decrease), decrease, -np.inf)))
        if not np.isfinite(decrease[i]) or width - after[i] < LEAST * now:
            break
        state = state.after(problem, i)
        left, width = left - float(cost[i]), float(after[i])
        taken.append(i)
        allowed = problem.allowed & spread(problem, state.seen, taken, most)
        at = {
            k: float(np.exp(problem.options[k][i])) if k in problem.options else None
            for k in ("N", "D")
        }
        runs.append(ProposedRun(at["N"], at["D"], float(cost[i]), width))
    return Design(runs, now, width, budget - left)
