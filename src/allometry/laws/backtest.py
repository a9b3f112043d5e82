"""Rolling-origin backtests: fit on the small runs, predict the larger ones, see what happens.

Letters: n runs, v variables, p parameters, k held-out runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.interval import Drift, drift, half_width, noise_of
from allometry.laws.solve import search
from allometry.laws.table import Table


@final
@dataclass(frozen=True)
class Fold:
    """One backtest: what was predicted for runs beyond the ones fitted, and what they did."""

    error: Float[ndarray, " k"]
    variance: Float[ndarray, " k"]
    distance: Float[ndarray, " k"]
    noise: float
    dof: int
    trained: int

    @property
    def size(self) -> float:
        """Mean absolute log error, which is the relative error."""
        return float(np.abs(self.error).mean())


@final
@dataclass(frozen=True)
class Backtest:
    """Summary of the folds: mean relative error, coverage of the 95 % interval, their number."""

    error: float | None
    coverage: float | None
    folds: int

    def to_dict(self) -> dict[str, float | int | None]:
        """`{"error", "coverage", "folds"}`."""
        return {"error": self.error, "coverage": self.coverage, "folds": self.folds}


def cuts(table: Table, need: int, limit: int = 8) -> list[ndarray]:
    """Row masks of the runs to fit on, smallest first, each leaving larger runs to predict."""
    t = table.order()
    configurations = np.array([t[table.cluster == c].max() for c in range(table.configurations)])
    levels = np.unique(np.round(configurations, 6))
    fits = []
    for level in levels[:-1]:
        small = configurations <= level + 1e-6
        if small.sum() >= need:
            fits.append(small[table.cluster])
    if len(fits) > limit:
        fits = [
            fits[i] for i in np.unique(np.linspace(0, len(fits) - 1, limit).round().astype(int))
        ]
    return fits


def distance(
    form: Form, logs: dict[str, ndarray], seen: dict[str, ndarray]
) -> Float[ndarray, " k"]:
    """How far outside the fitted runs a point lies, in e-folds of the form's variables."""
    far = 0.0
    for name in form.variables:
        x, s = logs[name], seen[name]
        far = far + np.maximum(0.0, np.maximum(x - s.max(), s.min() - x)) ** 2
    return np.sqrt(np.asarray(far))


def run_folds(
    form: Form,
    table: Table,
    masks: list[ndarray],
    *,
    delta: float,
    rng: np.random.Generator,
    weights: Float[ndarray, " n"] | None = None,
    starts: int = 16,
) -> list[Fold]:
    """Fit the form to each mask's runs and confront it with all runs beyond."""
    folds = []
    for mask in masks:
        X = np.stack([table.logs[name] for name in form.variables])
        centre = X[:, mask].mean(1, keepdims=True)
        X = X - centre
        w = None if weights is None else weights[mask]
        theta0 = form.starts(X[:, mask], table.y[mask], starts, rng)
        prior = weak_prior(form, theta0)
        found = search(
            form, X[:, mask], table.y[mask], theta0, weights=w, delta=delta, prior=prior
        )
        theta = found.theta[[found.objective.argmin()]]
        f, J = form.evaluate(theta, X)
        r = table.y - f[0]
        noise, dof = noise_of(r[mask], form.p, w)
        cov = covariance(J[0][:, mask], noise, w, prior)
        ahead = ~mask
        variance = np.einsum("pk,pq,qk->k", J[0][:, ahead], cov, J[0][:, ahead])
        logs = {k: v[ahead] for k, v in table.logs.items()}
        far = distance(form, logs, {k: v[mask] for k, v in table.logs.items()})
        folds.append(Fold(r[ahead], variance, far, noise, dof, int(mask.sum())))
    return folds


def weak_prior(
    form: Form, theta: Float[ndarray, "m p"]
) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
    """A penalty too weak to move a fit, strong enough to stop a flat direction at infinity."""
    return theta.mean(0), np.full(form.p, 1e-9)


def covariance(
    J: Float[ndarray, "p n"],
    noise: float,
    weights: Float[ndarray, " n"] | None,
    prior: tuple[Float[ndarray, " p"], Float[ndarray, " p"]] | None,
) -> Float[ndarray, "p p"]:
    """Delta-method covariance of the parameters, no wider than 3 in any of them.

    The limit of 3 (a factor of 20 in a level) keeps a parameter that the runs don't determine
    from claiming that anything may happen.
    """
    w = np.ones(J.shape[1]) if weights is None else weights
    information = (J * w) @ J.T / max(noise, 1e-9) ** 2
    return np.linalg.inv(information + np.eye(len(J)) / 9.0)


def drift_of(folds: list[Fold]) -> Drift:
    """The drift that explains the folds' errors."""
    return drift(
        [fold.error for fold in folds],
        [fold.variance + fold.noise**2 for fold in folds],
        [fold.distance for fold in folds],
    )


def summary(folds: list[Fold]) -> Backtest:
    """Mean error, and the coverage of intervals that knew only the folds before.

    Each fold's interval uses the drift learnt from smaller folds alone, as a user's would have.
    """
    if not folds:
        return Backtest(None, None, 0)
    inside = []
    for i, fold in enumerate(folds):
        half = half_width(fold.variance, fold.noise, fold.dof, fold.distance, drift_of(folds[:i]))
        inside.append(float((np.abs(fold.error) <= half).mean()))
    return Backtest(
        float(np.mean([fold.size for fold in folds])), float(np.mean(inside)), len(folds)
    )
