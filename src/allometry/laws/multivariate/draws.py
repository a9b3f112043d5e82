"""Random laws from the uncertainty of a fitted one: forms by weight, parameters by covariance.

Letters: s draws, k points asked for, v variables.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import linalg

from allometry.laws.multivariate.groups import Fitted
from allometry.laws.multivariate.processes import Process

if TYPE_CHECKING:
    from allometry.laws.multivariate.law import VariableLaw

JOINT = 1500
"""Points up to which a Gaussian process is drawn jointly; beyond it, its mean is used."""


def draws(
    law: "VariableLaw",
    X: Float[ndarray, "v k"],
    group: Int[ndarray, "..."],
    count: int,
    rng: np.random.Generator,
) -> Float[ndarray, "s k"]:
    """Values of random laws on the scale of the link; each draw is one form.

    Forms are drawn by their weights. Their parameters are normal with the fit's covariance.
    """
    weights = np.array([m.weight for m in law.members])
    counts = np.floor(count * weights / weights.sum()).astype(int)
    counts[0] += count - counts.sum()
    parts = [
        of_member(m, X, group, int(n), rng) for m, n in zip(law.members, counts, strict=True) if n
    ]
    return np.concatenate(parts)


def of_member(
    member: Fitted | Process,
    X: Float[ndarray, "v k"],
    group: Int[ndarray, "..."],
    count: int,
    rng: np.random.Generator,
) -> Float[ndarray, "s k"]:
    """Values of one form with random parameters."""
    if isinstance(member, Process):
        return _process(member, X, group, count, rng)
    out = np.empty((count, X.shape[1]))
    for g in np.unique(group):
        at = group == g
        one = member.of(int(g))
        theta = one.theta + rng.normal(size=(count, len(one.theta))) @ one.factor.T
        values = one.form.value(theta, X[list(member.rows)][:, at])
        out[:, at] = np.where(np.isfinite(values), values, one.value(X[list(member.rows)][:, at]))
    return out


def _process(
    process: Process, X: ndarray, group: ndarray, count: int, rng: np.random.Generator
) -> ndarray:
    mean = process.value(X, group)
    if X.shape[1] > JOINT:
        return np.broadcast_to(mean, (count, len(mean)))
    K = process.covariance(X, group)
    L = linalg.cholesky(K + 1e-8 * (np.trace(K) / len(K) + 1e-12) * np.eye(len(K)), lower=True)
    return mean + rng.normal(size=(count, len(mean))) @ L.T
