"""Fits of one form to many sets of runs at once, with priors, noise and covariance.

Letters: m problems, p parameters, n runs, v variables, k points asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.solver import Prior, Problem, minimise, negligible, search

SHRINK = 1.0
"""Noise of a run, as the prior counts it, over the residuals' noise."""

SIGMA = (0.003, 0.03)
"""Range of the noise per run that the prior is weighted against."""

LEAST_NOISE = 5e-4
"""Least standard deviation of a run on the scale of the link."""


@final
@dataclass(frozen=True)
class Member:
    """A form fitted to runs, with the covariance of its parameters.

    `factor` has `factor @ factor.T` equal to the covariance.
    """

    form: Form
    theta: Float[ndarray, " p"]
    noise: float
    dof: int
    factor: Float[ndarray, "p p"] = field(repr=False)
    objective: float = 0.0
    agree: int = 1

    def value(self, X: Float[ndarray, "v k"]) -> Float[ndarray, " k"]:
        """The value at some points on the scale of the link."""
        return self.form.value(self.theta[None], X)[0]

    def spread(self, X: Float[ndarray, "v k"]) -> Float[ndarray, "k p"]:
        """Derivatives at some points times the factor: rows whose products are covariances."""
        _, J = self.form.evaluate(self.theta[None], X)
        return np.nan_to_num(J[0].T) @ self.factor


def fit_sets(
    form: Form,
    X: Float[ndarray, "v n"],
    z: Float[ndarray, " n"],
    sets: Sequence[Int[ndarray, "..."]],
    *,
    starts: int,
    rng: np.random.Generator,
    delta: float,
    weights: Float[ndarray, " n"] | None = None,
    priors: Sequence[Prior] | None = None,
    fine: bool = False,
    shrink: bool = True,
) -> list[Member]:
    """The form fitted to each set of rows, in one batched search.

    Args:
        form: The form; its input is the variables as they are.
        X: The variables.
        z: The response on the scale of the link.
        sets: Rows of each problem.
        starts: Starting points of each problem.
        rng: Random numbers of the starts.
        delta: Threshold of Huber's loss.
        weights: Weights of the rows.
        priors: Means and standard deviations for each set. Default: those of the form.
        fine: Whether to refine to full precision.
        shrink: Whether to use priors at all.
    """
    w = np.ones(len(z)) if weights is None else weights
    longest = max(len(rows) for rows in sets)
    # Sets of different lengths are filled with repetitions of their first row at weight 0.
    index = np.stack([np.append(rows, np.full(longest - len(rows), rows[0])) for rows in sets])
    use = np.stack([np.arange(longest) < len(rows) for rows in sets])
    XS, ZS, WS = X[:, index], z[index], w[index] * use
    begin = np.concatenate([form.starts(X[:, rows], z[rows], starts, rng) for rows in sets])
    if priors is None:
        priors = [form.prior(X[:, rows], z[rows]) for rows in sets]
    mean = np.repeat(np.stack([prior[0] for prior in priors]), starts, 0)
    sd = np.repeat(np.stack([prior[1] for prior in priors]), starts, 0)
    many = [np.repeat(a, starts, axis) for a, axis in ((XS, 1), (ZS, 0), (WS, 0))]

    def problem(sigma: Float[ndarray, " m"]) -> Problem:
        prior = (mean, (sigma[:, None] / sd) ** 2) if shrink else None
        return Problem(form, many[0], many[1], many[2], delta, prior)

    sigma = np.full(len(begin), 0.01)
    tolerance = 1e-12 if fine else 1e-7
    found = search(problem(sigma), begin, tolerance=1e-7)
    if fine:
        found = minimise(problem(sigma), found.theta, tolerance=tolerance, iterations=150)
    if shrink:
        noise = [
            _noise(form, XS, ZS, WS, found.theta, found.objective, k, starts)[0]
            for k in range(len(sets))
        ]
        sigma = np.repeat(np.clip(SHRINK * np.array(noise), *SIGMA), starts)
        found = minimise(
            problem(sigma),
            found.theta,
            tolerance=tolerance,
            crawl=negligible(longest) / 5,
            iterations=60,
        )
    out = []
    for k in range(len(sets)):
        noise, dof, theta, best = _noise(form, XS, ZS, WS, found.theta, found.objective, k, starts)
        near = found.objective[k * starts : (k + 1) * starts]
        agree = int((near <= best * (1 + 1e-4) + 1e-12).sum())
        s = np.full(form.p, np.inf) if not shrink else sd[k * starts]
        factor = _factor(form, XS[:, k], WS[k], theta, noise, s)
        out.append(Member(form, theta, noise, dof, factor, best, agree))
    return out


def _noise(
    form: Form,
    XS: ndarray,
    ZS: ndarray,
    WS: ndarray,
    theta: ndarray,
    objective: ndarray,
    k: int,
    starts: int,
) -> tuple[float, int, ndarray, float]:
    """Noise, degrees of freedom, parameters and objective of the best start of one set."""
    lead = k * starts + int(np.argmin(objective[k * starts : (k + 1) * starts]))
    use = WS[k] > 0
    r = (ZS[k] - form.value(theta[lead][None], XS[:, k])[0])[use]
    w = np.sqrt(WS[k][use] / WS[k].max())
    count = float(w.sum() ** 2 / (w**2).sum())
    free = max(count * (1 - form.p / len(r)), 1.0) if len(r) > form.p else 1.0
    middle = 1.4826 * float(np.median(np.abs(r)))
    if middle > 0 and len(r) >= 10:
        r = np.clip(r, -4 * middle, 4 * middle)
    with np.errstate(over="ignore", invalid="ignore"):  # an expression without a finite value
        square = np.nan_to_num((w * r**2).sum() / w.sum(), nan=1.0, posinf=1.0)
    noise = float(np.sqrt(square * count / free))
    return max(noise, LEAST_NOISE), max(round(free), 1), theta[lead], float(objective[lead])


def _factor(
    form: Form,
    X: Float[ndarray, "v n"],
    w: Float[ndarray, " n"],
    theta: Float[ndarray, " p"],
    noise: float,
    sd: Float[ndarray, " p"],
) -> Float[ndarray, "p p"]:
    """A factor of the parameters' covariance by linearisation, with the prior."""
    _, J = form.evaluate(theta[None], X)
    J = np.nan_to_num(J[0])
    # Without a prior, an unidentified parameter has a standard deviation of 3.
    precision = np.diag(1 / np.minimum(sd, 3.0) ** 2) + (J * w) @ J.T / noise**2
    values, vectors = np.linalg.eigh(precision)
    return vectors / np.sqrt(np.maximum(values, 1e-12))
