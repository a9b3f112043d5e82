"""One fitted form: its optimum, its bootstrap draws, its weight among others.

Letters: m draws, p parameters, n runs, v variables, k points asked for.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.intervals import noise_of
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import SLOW, Prior, Problem, Solution, minimise, negligible, search

SAMPLE = 2000
"""Runs used for the search over starts; larger tables are subsampled to this size."""


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
    resampling: str = "none"
    agreed: int | None = None

    @property
    def objective(self) -> float:
        """The lowest objective found."""
        return float(self.solution.objective.min())

    @property
    def agree(self) -> int:
        """How many starts reached the optimum, to a relative 1e-6 of the objective."""
        if self.agreed is not None:
            return self.agreed
        return int((self.solution.objective <= self.objective * (1 + 1e-6) + 1e-15).sum())

    def at(self, logs: dict[str, ndarray]) -> Float[ndarray, "v k"]:
        """The form's variables at some points, centred as in the fit."""
        if "D_unique" in self.form.variables and "D_unique" not in logs:
            logs = logs | {"D_unique": logs["D"]}  # by default no data are repeated
        return np.stack([logs[name] for name in self.form.variables]) - self.centre[:, None]

    def value(self, logs: dict[str, ndarray]) -> Float[ndarray, " k"]:
        """Log loss of the optimum at some points."""
        return self.form.value(self.theta[None], self.at(logs))[0]

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


def fit_component(
    form: Form,
    table: RunsTable,
    objective: Objective,
    *,
    starts: int,
    rng: np.random.Generator,
    tolerance: float = 1e-13,
) -> Component:
    """The best of many starts.

    For thousands of runs, all starts run on a subsample; its optimum starts the fit of all runs.
    """
    begin = agreed = None
    if table.n > SAMPLE:
        part = fit_component(
            form, subsample(table, rng), objective, starts=starts, rng=rng, tolerance=1e-9
        )
        begin, agreed = _recentred(part, table), part.agree
    X = np.stack([table.logs[name] for name in form.variables])
    centre = X.mean(1) if form.centred else np.zeros(len(X))
    X = X - centre[:, None]
    weights = objective.weights(table)
    prior = objective.prior(form, X, table.y, 0.0)
    begin = form.starts(X, table.y, starts, rng) if begin is None else begin
    found = search(objective.problem(form, X, table.y, weights, prior), begin, tolerance=tolerance)
    theta, noise, dof = _best(form, X, table.y, found, weights)
    if prior is not None:
        # The strength of the prior depends on the noise, which is known only now.
        prior = objective.prior(form, X, table.y, noise)
        problem = objective.problem(form, X, table.y, weights, prior)
        found = minimise(problem, found.theta, tolerance=tolerance, crawl=SLOW)
        theta, noise, dof = _best(form, X, table.y, found, weights)
    none = np.empty((0, form.p))
    return Component(form, theta, centre, noise, dof, found, prior, none, agreed=agreed)


def fit_subsets(
    form: Form,
    table: RunsTable,
    masks: list[Bool[ndarray, " n"]],
    objective: Objective,
    *,
    starts: int,
    rng: np.random.Generator,
    tolerance: float = 1e-7,
) -> list[Component]:
    """The form fitted to the runs of each mask, all in one search.

    Runs outside a subset have weight 0. Each subset has its own centre.
    """
    whole = np.stack([table.logs[name] for name in form.variables])
    parts = [table.take(mask) for mask in masks]
    X = np.empty((len(whole), len(masks), table.n))
    weights = np.zeros((len(masks), table.n))
    begin, priors = [], []
    centres = [whole[:, mask].mean(1) * form.centred for mask in masks]
    for k, (mask, part, centre) in enumerate(zip(masks, parts, centres, strict=True)):
        X[:, k] = whole - centre[:, None]
        # Runs outside the subset take the place of one inside, so that no form overflows.
        X[:, k, ~mask] = X[:, k, mask][:, :1]
        own = objective.weights(part)
        weights[k, mask] = np.ones(part.n) if own is None else own
        begin.append(form.starts(X[:, k, mask], part.y, starts, rng))
        priors.append(objective.prior(form, X[:, k, mask], part.y, 0.0))

    def problem(count: int) -> Problem:
        """All subsets, each repeated for so many starts."""
        rows = np.repeat(X, count, 1), table.y, np.repeat(weights, count, 0)
        return objective.problem(form, *rows, _stacked(priors, count))

    found = search(problem(starts), np.concatenate(begin), tolerance=tolerance)

    def best() -> list[tuple[Float[ndarray, " p"], float, int]]:
        return [
            _best(form, X[:, k, mask], parts[k].y, _subset(found, k, starts), weights[k, mask])
            for k, mask in enumerate(masks)
        ]

    ends = best()
    if priors[0] is not None:
        priors = [
            objective.prior(form, X[:, k, mask], parts[k].y, ends[k][1])
            for k, mask in enumerate(masks)
        ]
        crawl = negligible(table.n)
        found = minimise(problem(starts), found.theta, tolerance=tolerance, crawl=crawl)
        # Only the best start of each subset is refined.
        lead = [
            k * starts + int(np.argmin(_subset(found, k, starts).objective))
            for k in range(len(masks))
        ]
        refined = minimise(problem(1), found.theta[lead], tolerance=tolerance, crawl=crawl / 50)
        found.update(lead, refined)
        ends = best()
    none = np.empty((0, form.p))
    return [
        Component(form, theta, centres[k], noise, dof, _subset(found, k, starts), priors[k], none)
        for k, (theta, noise, dof) in enumerate(ends)
    ]


def _stacked(priors: list[Prior | None], starts: int) -> Prior | None:
    """One row of means and of precisions for each subset and start."""
    known = [prior for prior in priors if prior is not None]
    if not known:
        return None
    mean, precision = (np.repeat(np.stack(rows), starts, 0) for rows in zip(*known, strict=True))
    return mean, precision


def _subset(found: Solution, k: int, starts: int) -> Solution:
    return found.rows(slice(k * starts, (k + 1) * starts))


def subsample(table: RunsTable, rng: np.random.Generator) -> RunsTable:
    """The table, or a random sample of thousands of runs that includes the 50 largest."""
    if table.n <= SAMPLE:
        return table
    rows = np.append(rng.permutation(table.n)[: SAMPLE - 50], np.argsort(table.order())[-50:])
    return table.take(np.unique(rows))


def _recentred(part: Component, table: RunsTable) -> Float[ndarray, "m p"]:
    """The optimum of a subsample, with parameters relative to the centre of all runs."""
    if not part.form.centred:
        return part.theta[None]
    X = np.stack([table.logs[name] for name in part.form.variables])
    grid = X[:, :: max(1, table.n // SAMPLE)]
    centre = X.mean(1)
    target = part.form.value(part.theta[None], grid - part.centre[:, None])[0]
    # The same curve about another centre: a noiseless refit that starts at the optimum.
    problem = Problem(part.form, grid - centre[:, None], target, delta=np.inf)
    return minimise(problem, part.theta[None]).theta


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


def covariance(
    J: Float[ndarray, "p n"],
    noise: float,
    weights: Float[ndarray, " n"] | None,
    prior: Prior | None,
) -> Float[ndarray, "p p"]:
    """Delta-method covariance of the parameters, regularised by the prior.

    Without a prior the standard deviation of a parameter is bounded by 3 (a factor of 20 in a
    level), so that an unidentified parameter does not make every prediction unbounded.
    """
    w = np.ones(J.shape[1]) if weights is None else weights
    sigma2 = max(noise, 1e-4) ** 2
    loose = np.full(len(J), sigma2 / 9.0) if prior is None else prior[1]
    bread = np.linalg.inv((J * w) @ J.T + np.diag(loose))
    # The weights are not inverse variances: a sandwich with each run's noise in the middle.
    meat = (J * w**2) @ J.T + np.diag(loose)
    return sigma2 * bread @ meat @ bread
