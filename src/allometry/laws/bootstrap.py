"""Bootstrap draws of a fitted form's parameters.

Letters: m draws, p parameters, n runs, v variables.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.component import Component
from allometry.laws.intervals import curvature
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import minimise, negligible

Resample = Literal["auto", "pairs", "cluster", "residual", "delta"]

MANY = 5000
"""Runs from which `auto` uses the delta method, as it then agrees with a bootstrap."""

ENOUGH = 1e-5
"""Predicted decrease of the objective, relative to it and times n, at which a draw stops: a few
millionths of a unit of log likelihood, or 1/300 of a standard error."""

LIMIT = 45
"""Step limit of a draw. From the optimum of all runs a few steps suffice; a draw that needs more
moves towards infinity."""

NEGLIGIBLE = 1e-6
"""Weight of a run, relative to the largest, below which draws leave it out: steep weights leave
few runs that matter."""

PUBLISHED = 42
"""The seed of the published bootstrap of the Chinchilla points, used for the default seed 0."""

FEW = 40
"""Below this many configurations a pairs bootstrap often draws too few distinct runs to fit."""


def bootstrap_draws(
    component: Component,
    table: RunsTable,
    objective: Objective,
    *,
    draws: int,
    resample: Resample,
    rng: np.random.Generator,
    seed: int = 0,
    resampling: np.random.Generator | None = None,
) -> tuple[Float[ndarray, "m p"], str]:
    """Refitted parameters of resampled runs, and the name of the resampling.

    `pairs` resamples runs, `cluster` whole configurations (all seeds of one together), `residual`
    adds resampled, leverage-corrected residuals to the fitted curve, `delta` draws from the
    asymptotic normal distribution of the parameters. `auto` uses residuals for few
    configurations, the delta method for thousands of runs, clusters if configurations have
    several seeds, and pairs otherwise.

    Pairs are drawn from numpy's legacy generator by `seed`, as published analyses draw them, so
    that those can be repeated draw for draw. The default seed of 0 stands for their usual 42.

    With a prior, each refit uses its own draw of the prior mean. A direction that the runs do not
    identify then has the uncertainty of the prior.

    Forms whose draws are averaged can be given generators `resampling` of one seed: the runs or
    residuals drawn are then the same for each. By default they come from `rng` as well.
    """
    resampling = rng if resampling is None else resampling
    form, theta, prior = component.form, component.theta, component.prior
    X, y, cluster = component.at(table.logs), table.y, table.cluster
    weights = objective.weights(table)
    groups = int(cluster.max()) + 1
    if resample == "auto":
        resample = "cluster" if groups < len(y) else "pairs"
        if groups < FEW:
            resample = "residual"
        elif len(y) >= MANY:
            resample = "delta"
    starts = np.repeat(theta[None], draws, 0)
    if resample == "delta":
        cov = _sandwich(component, table, objective)
        spread = rng.multivariate_normal(np.zeros(form.p), cov, size=draws, method="eigh")
        return theta + spread, resample
    if prior is not None:
        sd = component.noise / np.sqrt(prior[1])
        prior = prior[0] + sd * rng.standard_normal((draws, form.p)), prior[1]
    target, w = y, weights
    if resample == "residual":
        scale = table.se if objective.measured else None
        target = _with_residuals(component, table, draws, resampling, weights, scale)
    else:
        if resample == "pairs":
            counts = pair_counts(len(y), draws, seed)
        else:
            drawn = resampling.multinomial(groups, np.full(groups, 1 / groups), size=draws)
            counts = drawn[:, cluster]
        w = counts.astype(float) * (1.0 if weights is None else weights)
    if w is not None and weights is not None:
        heavy = weights > NEGLIGIBLE * weights.max()
        X, target, w = X[:, heavy], target[..., heavy], w[..., heavy]
    found = minimise(
        objective.problem(form, X, target, w, prior),
        starts,
        tolerance=ENOUGH / len(y),
        iterations=LIMIT,
        crawl=negligible(len(y)),
    )
    bad = ~np.isfinite(found.objective)
    return np.where(bad[:, None], theta, found.theta), resample


def _sandwich(
    component: Component, table: RunsTable, objective: Objective
) -> Float[ndarray, "p p"]:
    r"""Delta-method covariance $H^{-1} (\sum_g s_g s_g^T) H^{-1}$ of the parameters.

    $s_g$ is the sum of $w \psi_\delta(r) J$ over the runs of configuration g and
    $H = E\rho''_\delta \sum w J J^T$.

    References:
        `huber1964` section 4.
    """
    form, y, delta = component.form, table.y, objective.delta
    f, J = form.evaluate(component.theta[None], component.at(table.logs))
    value, slope = (np.exp(f[0]), J[0] * np.exp(f[0])) if objective.raw else (f[0], J[0])
    r = objective.response(y) - value
    weights = objective.weights(table)
    w = np.ones(len(y)) if weights is None else weights
    # The mean over runs: which of them lie within delta is chance.
    curved = float(curvature(r, delta, form.p).mean())
    scores = np.zeros((int(table.cluster.max()) + 1, form.p))
    np.add.at(scores, table.cluster, (w * np.clip(r, -delta, delta) * slope).T)
    H = (slope * (w * curved)) @ slope.T
    if component.prior is not None:
        H = H + np.diag(component.prior[1])
    inverse = np.linalg.pinv(H, hermitian=True)
    return inverse @ (scores.T @ scores) @ inverse


def pair_counts(n: int, draws: int, seed: int) -> Int[ndarray, "m n"]:
    """How often each of n runs is drawn in each resample of n runs."""
    rows = np.random.RandomState(seed or PUBLISHED).randint(0, n, size=(draws, n))
    flat = rows + n * np.arange(draws)[:, None]
    return np.bincount(flat.reshape(-1), minlength=draws * n).reshape(draws, n)


def _with_residuals(
    component: Component,
    table: RunsTable,
    draws: int,
    rng: np.random.Generator,
    weights: Float[ndarray, " n"] | None,
    scale: Float[ndarray, " n"] | None,
) -> Float[ndarray, "m n"]:
    """Log losses of the fitted curve plus resampled residuals, scaled by each run's own error."""
    y = table.y
    f, J = component.form.evaluate(component.theta[None], component.at(table.logs))
    own = np.ones(len(y)) if scale is None else scale / scale.mean()
    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    # Residuals are smaller than errors by sqrt(1 - h), with h the leverage of the run.
    q, _ = np.linalg.qr((J[0] * root).T)
    leverage = np.minimum((q**2).sum(1), 0.9)
    errors = (y - f[0]) / own / np.sqrt(1 - leverage)
    errors -= errors.mean()
    return f[0] + rng.choice(errors, (draws, len(y))) * own
