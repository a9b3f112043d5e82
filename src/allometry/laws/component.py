"""One fitted form: its optimum, its bootstrap draws, its weight among others.

Letters: m draws, p parameters, n runs, v variables, k points asked for.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.intervals import Resample, noise_of, resampled
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import SLOW, Prior, Solution, minimise, negligible, search

SAMPLE = 2000
"""Runs that are searched from every start; of more, so many are drawn."""


@final
@dataclass(frozen=True)
class Component:
    """A form fitted to runs."""

    form: Form
    theta: Float[ndarray, " p"]
    centre: Float[ndarray, " v"]
    noise: float
    dof: int
    solution: Solution = field(repr=False)
    prior: Prior | None = field(repr=False)
    draws: Float[ndarray, "m p"] = field(repr=False)
    weight: float = 1.0
    how: str = "none"
    agreed: int | None = None

    @property
    def objective(self) -> float:
        """The least objective found."""
        return float(self.solution.objective.min())

    @property
    def agree(self) -> int:
        """How many starts reached the optimum, to a millionth of the objective."""
        if self.agreed is not None:
            return self.agreed
        return int((self.solution.objective <= self.objective * (1 + 1e-6) + 1e-15).sum())

    def at(self, logs: dict[str, ndarray]) -> Float[ndarray, "v k"]:
        """The form's variables at some points, centred as the fit was."""
        return np.stack([logs[name] for name in self.form.variables]) - self.centre[:, None]

    def curves(self, logs: dict[str, ndarray]) -> Float[ndarray, "m k"]:
        """Log loss of the optimum (first row) and of each draw at some points."""
        theta = np.concatenate([self.theta[None], self.draws])
        return self.form.value(theta, self.at(logs))

    def variance(
        self, table: RunsTable, objective: Objective, logs: dict[str, ndarray]
    ) -> ndarray:
        """Delta-method variance of the log loss at some points."""
        X = self.at(table.logs)
        _, J = self.form.evaluate(self.theta[None], X)
        cov = covariance(J[0], self.noise, objective.weights(table), self.prior)
        _, K = self.form.evaluate(self.theta[None], self.at(logs))
        return np.einsum("pk,pq,qk->k", K[0], cov, K[0])


def fit_member(
    form: Form,
    table: RunsTable,
    objective: Objective,
    *,
    starts: int,
    rng: np.random.Generator,
    tolerance: float = 1e-13,
) -> Component:
    """The best of many starts.

    Of thousands of runs, a sample is searched from all starts; what that finds starts the fit of
    all runs.
    """
    begin = agreed = None
    if table.n > SAMPLE:
        part = fit_member(
            form, thinned(table, rng), objective, starts=starts, rng=rng, tolerance=1e-9
        )
        begin, agreed = _moved(part, table), part.agree
    X = np.stack([table.logs[name] for name in form.variables])
    centre = X.mean(1) if form.centred else np.zeros(len(X))
    X = X - centre[:, None]
    weights = objective.weights(table)
    prior = objective.prior(form, X, table.y, 0.0)
    begin = form.starts(X, table.y, starts, rng) if begin is None else begin
    goal = objective.goal(table.y)
    found = search(
        form,
        X,
        goal,
        begin,
        weights=weights,
        delta=objective.delta,
        prior=prior,
        tolerance=tolerance,
        raw=objective.raw,
    )
    theta, noise, dof = _best(form, X, table.y, found, weights)
    if prior is not None:
        # The noise is known only now, and with it how much the habits weigh.
        prior = objective.prior(form, X, table.y, noise)
        found = minimise(
            form,
            X,
            goal,
            found.theta,
            weights=weights,
            delta=objective.delta,
            prior=prior,
            tolerance=tolerance,
            crawl=SLOW,
            raw=objective.raw,
        )
        theta, noise, dof = _best(form, X, table.y, found, weights)
    none = np.empty((0, form.p))
    return Component(form, theta, centre, noise, dof, found, prior, none, agreed=agreed)


def fit_parts(
    form: Form,
    table: RunsTable,
    masks: list[Bool[ndarray, " n"]],
    objective: Objective,
    *,
    starts: int,
    rng: np.random.Generator,
    tolerance: float = 1e-7,
) -> list[Component]:
    """The form fitted to the runs of each mask, all of them in one search.

    A part's problems have the weight of 0 for the runs that it does not see, and its own centre.
    """
    whole = np.stack([table.logs[name] for name in form.variables])
    parts = [table.take(mask) for mask in masks]
    X = np.empty((len(whole), len(masks), table.n))
    weights = np.zeros((len(masks), table.n))
    begin, priors = [], []
    centres = [whole[:, mask].mean(1) * form.centred for mask in masks]
    for k, (mask, part, centre) in enumerate(zip(masks, parts, centres, strict=True)):
        X[:, k] = whole - centre[:, None]
        # A run that is not seen stands where one is, so that no form overflows on it.
        X[:, k, ~mask] = X[:, k, mask][:, :1]
        weights[k, mask] = _or_ones(objective.weights(part), part.n)
        begin.append(form.starts(X[:, k, mask], part.y, starts, rng))
        priors.append(objective.prior(form, X[:, k, mask], part.y, 0.0))
    repeated = {"weights": np.repeat(weights, starts, 0), "raw": objective.raw}
    repeated |= {"delta": objective.delta, "tolerance": tolerance}
    many, goal = np.repeat(X, starts, 1), objective.goal(table.y)
    found = search(
        form, many, goal, np.concatenate(begin), prior=_stacked(priors, starts), **repeated
    )

    def best() -> list[tuple[Float[ndarray, " p"], float, int]]:
        return [
            _best(form, X[:, k, mask], parts[k].y, _part(found, k, starts), weights[k, mask])
            for k, mask in enumerate(masks)
        ]

    ends = best()
    if priors[0] is not None:
        priors = [
            objective.prior(form, X[:, k, mask], parts[k].y, ends[k][1])
            for k, mask in enumerate(masks)
        ]
        stacked = _stacked(priors, starts)
        crawl = negligible(table.n)
        found = minimise(form, many, goal, found.theta, prior=stacked, crawl=crawl, **repeated)
        # Of each part the best start is followed on: the others only had to show which it is.
        lead = [
            k * starts + int(np.argmin(_part(found, k, starts).objective))
            for k in range(len(masks))
        ]
        further = minimise(
            form,
            X,
            goal,
            found.theta[lead],
            weights=weights,
            delta=objective.delta,
            prior=_stacked(priors, 1),
            tolerance=tolerance,
            crawl=crawl / 50,
            raw=objective.raw,
        )
        for name in Solution.ARRAYS:
            getattr(found, name)[lead] = getattr(further, name)
        ends = best()
    none = np.empty((0, form.p))
    return [
        Component(
            form, *ends[k][:1], centres[k], *ends[k][1:], _part(found, k, starts), priors[k], none
        )
        for k in range(len(masks))
    ]


def _or_ones(weights: Float[ndarray, " n"] | None, n: int) -> Float[ndarray, " n"]:
    return np.ones(n) if weights is None else weights


def _stacked(priors: list[Prior | None], starts: int) -> Prior | None:
    """One row of means and of precisions for each part and start."""
    known = [prior for prior in priors if prior is not None]
    if not known:
        return None
    mean, precision = (np.repeat(np.stack(rows), starts, 0) for rows in zip(*known, strict=True))
    return mean, precision


def _part(found: Solution, k: int, starts: int) -> Solution:
    rows = slice(k * starts, (k + 1) * starts)
    return Solution(*(getattr(found, name)[rows] for name in Solution.ARRAYS))


def thinned(table: RunsTable, rng: np.random.Generator) -> RunsTable:
    """The table, or of thousands of runs some at random, with the largest of them."""
    if table.n <= SAMPLE:
        return table
    rows = np.append(rng.permutation(table.n)[: SAMPLE - 50], np.argsort(table.order())[-50:])
    return table.take(np.unique(rows))


def _moved(part: Component, table: RunsTable) -> Float[ndarray, "m p"]:
    """The best parameters of a sample, for the centre of all runs."""
    if not part.form.centred:
        return part.theta[None]
    X = np.stack([table.logs[name] for name in part.form.variables])
    grid = X[:, :: max(1, table.n // SAMPLE)]
    centre = X.mean(1)
    goal = part.form.value(part.theta[None], grid - part.centre[:, None])[0]
    # The same curve about another centre: refitted without noise, from itself.
    return minimise(part.form, grid - centre[:, None], goal, part.theta[None], delta=np.inf).theta


def _best(
    form: Form,
    X: Float[ndarray, "v n"],
    y: Float[ndarray, " n"],
    found: Solution,
    weights: Float[ndarray, " n"] | None,
) -> tuple[Float[ndarray, " p"], float, int]:
    theta = found.theta[int(np.argmin(found.objective))]
    noise, dof = noise_of(y - form.value(theta[None], X)[0], form.p, weights)
    return theta, noise, dof


def draw(
    member: Component,
    table: RunsTable,
    objective: Objective,
    *,
    draws: int,
    resample: Resample,
    rng: np.random.Generator,
    seed: int = 0,
) -> tuple[Float[ndarray, "m p"], str]:
    """Refitted parameters of resampled runs, and the name of the resampling."""
    X = member.at(table.logs)
    return resampled(
        member.form,
        X,
        table.y,
        member.theta,
        draws=draws,
        rng=rng,
        cluster=table.cluster,
        resample=resample,
        weights=objective.weights(table),
        scale=table.se if objective.measured else None,
        delta=objective.delta,
        prior=member.prior,
        noise=member.noise,
        raw=objective.raw,
        seed=seed,
    )


def covariance(
    J: Float[ndarray, "p n"],
    noise: float,
    weights: Float[ndarray, " n"] | None,
    prior: Prior | None,
) -> Float[ndarray, "p p"]:
    """Delta-method covariance of the parameters, with the habits' spread where runs are silent.

    Without habits no parameter is let wider than 3 (a factor of 20 in a level), so that one the
    runs don't determine can't claim that anything may happen.
    """
    w = np.ones(J.shape[1]) if weights is None else weights
    sigma2 = max(noise, 1e-4) ** 2
    loose = np.full(len(J), sigma2 / 9.0) if prior is None else prior[1]
    bread = np.linalg.inv((J * w) @ J.T + np.diag(loose))
    # Weights that are not inverse variances: a sandwich, with each run's noise in the middle.
    meat = (J * w**2) @ J.T + np.diag(loose)
    return sigma2 * bread @ meat @ bread
