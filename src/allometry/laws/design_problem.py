"""The candidates of an optimal design, and what is known after some of them have been run.

Letters: k target and candidates, c candidates, f forms, n runs.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.component import Component, covariance
from allometry.laws.intervals import BETWEEN_FORMS, few_runs_variance, half_width
from allometry.laws.law import Law

APART = math.log(1.5)
"""Two configurations are replicas if neither N nor D differs by this log factor."""


@final
@dataclass(frozen=True)
class Problem:
    """Joint covariance of the log losses at the target (first) and at the candidate runs.

    `between` is the variance between the forms at the target, `apart` at each candidate and
    `apart_seen` the largest at a run. `decline` is the predicted decline of the log loss from the
    runs to the target.
    """

    target: dict[str, ndarray]
    options: dict[str, ndarray]
    K: Float[ndarray, "k k"]
    sigma2: float
    seen: dict[str, ndarray]
    between: float
    apart: Float[ndarray, " c"]
    apart_seen: float
    decline: float
    allowed: Bool[ndarray, " c"]


@final
@dataclass(frozen=True)
class State:
    """What is known after some runs: the covariance, the runs, and the test of the forms."""

    K: Float[ndarray, "k k"]
    seen: dict[str, ndarray]
    between: float
    apart_seen: float

    @staticmethod
    def first(problem: Problem) -> "State":
        """Before any new run."""
        return State(problem.K, problem.seen, problem.between, problem.apart_seen)

    def kept(self, problem: Problem) -> Float[ndarray, " c"]:
        """Share of the variance between the forms that is left after each candidate."""
        return problem.sigma2 / (problem.sigma2 + np.maximum(problem.apart - self.apart_seen, 0.0))

    def after(self, problem: Problem, i: int) -> "State":
        """After a run at candidate i."""
        column = self.K[:, i + 1]
        return State(
            self.K - np.outer(column, column) / (problem.sigma2 + column[i + 1]),
            {v: np.append(x, problem.options[v][i]) for v, x in self.seen.items()},
            self.between * float(self.kept(problem)[i]),
            max(self.apart_seen, float(problem.apart[i])),
        )


def problem_of(law: Law, given: dict[str, ndarray], options: dict[str, ndarray]) -> Problem:
    """The problem of choosing among `options` for a prediction at `given`, both as logs."""
    names = [v for v in dict.fromkeys((*law.variables, "C")) if v in law.table.logs]
    target = {v: law.coordinate(v, given) for v in names}
    points = {v: np.append(target[v], law.coordinate(v, options)) for v in names}
    members = [m for m in law.members if set(m.form.variables) <= set(points)]
    weights = np.array([m.weight for m in members])
    weights = weights / weights.sum()
    apart = _between(members, weights, points)
    apart_seen = float(_between(members, weights, law.table.logs).max())
    K = np.zeros((len(apart), len(apart)))
    noise = max(min(m.noise for m in members), 1e-4)
    for member, weight in zip(members, weights, strict=True):
        _, J = member.form.evaluate(member.theta[None], member.at(law.table.logs))
        _, G = member.form.evaluate(member.theta[None], member.at(points))
        # The residuals of a form that fits worse are misfit, which no run averages away.
        S = covariance(J[0], noise, None, member.prior)
        K = K + weight * G[0].T @ S @ G[0]
    shown = {v: target[v] for v in target if v in options or v == "C"}
    seen = {v: law.table.logs[v] for v in shown}
    return Problem(
        shown,
        options,
        K,
        noise**2,
        seen,
        BETWEEN_FORMS * float(apart[0]),
        apart[1:],
        apart_seen,
        float(law.beyond_runs(target)[0][0]),
        _distinct(options, seen),
    )


def _between(
    members: list[Component], weights: Float[ndarray, " f"], logs: dict[str, ndarray]
) -> Float[ndarray, " n"]:
    """Variance of the log loss between the forms."""
    values = np.stack([m.value(logs) for m in members])
    return weights @ (values - weights @ values) ** 2


def _distinct(options: dict[str, ndarray], seen: dict[str, ndarray]) -> Bool[ndarray, " c"]:
    """Which candidates differ from every run seen by a factor in N or D (or else in C)."""
    names = [v for v in ("N", "D") if v in options and v in seen] or list(seen)
    gaps = [np.abs(options[v][:, None] - seen[v][None, :]) for v in names]
    return (np.max(gaps, axis=0) >= APART).all(1)


def spread(
    problem: Problem, seen: dict[str, ndarray], taken: list[int], most: int
) -> Bool[ndarray, " c"]:
    """Which candidates are no replicas and keep a spread of sizes and ratios D/N."""
    options = problem.options
    allowed = _distinct(options, seen)
    if not {"N", "D"} <= set(options):
        return allowed
    limit = max(1, most // 2)
    for x in (options["N"], options["D"] - options["N"]):
        if np.ptp(x) > APART:  # not where every candidate has the same ratio
            same = np.abs(x[:, None] - x[taken][None, :]) < APART
            allowed &= same.sum(1) < limit
    return allowed


def candidates(law: Law, budget: float) -> dict[str, ndarray]:
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


def widths(
    law: Law, problem: Problem, state: State, *, no_run: bool = False, dof: int | None = None
) -> Float[ndarray, " c"]:
    """Relative width of the interval at the target after each candidate run (or no run)."""
    K = state.K
    variance = K[:1, 0] + state.between
    if not no_run:
        variance = K[0, 0] - K[0, 1:] ** 2 / (problem.sigma2 + np.diag(K)[1:])
        variance = variance + state.between * state.kept(problem)
    far = distance_after(problem, state.seen, no_run=no_run)
    runs = len(next(iter(state.seen.values()))) + (not no_run)
    # The decline that is left to predict shrinks with the distance.
    start = float(distance_after(problem, problem.seen, no_run=True)[0])
    decline = problem.decline * far / max(start, 1e-9)
    known, error = law.calibration, law.extrapolation_error
    few = few_runs_variance(far, runs, len(law.variables), decline, known.few_runs)
    variance = np.maximum(variance, 0.0) + few + (known.spread * decline) ** 2
    free = dof or law.dof
    half = half_width(variance, law.noise, free, far, error, prior=known.noise_prior)
    return 2 * np.sinh(half)


def distance_after(
    problem: Problem, seen: dict[str, ndarray], *, no_run: bool
) -> Float[ndarray, " c"]:
    """Distance of the target beyond the runs after each candidate run (or no run)."""
    count = 1 if no_run else len(problem.options["C"])
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
