"""A Gaussian process on the logs of the variables: the flexible baseline beside the forms.

Letters: n runs, v variables, k points asked for.

The mean is linear in the coordinates with a wide prior, so that far from the runs the process
goes over into a straight line in the logs. A process may instead have a fitted form as its mean:
it then holds what the form leaves over, such as the shape of a bowl, and far from the runs the
form alone remains. Lengths, amplitude and noise maximise the marginal likelihood with weakly
informative priors.

References:
    `rasmussen2006` Eq. (2.30) and Eq. (5.9).
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import linalg, optimize

from allometry.laws.multivariate.groups import Fitted
from allometry.laws.multivariate.variable_runs import Table, coordinates

MOST = 300
"""Runs of a process; larger tables are subsampled."""

PROCESS = "gaussian process"
"""Its name among the forms."""

WITH_PROCESS = " + process"
"""What is added to the name of a form that is the mean of a process."""

WIDE = 4.0
"""Prior variance of the mean's level and of its slopes, in units of the response's variance."""


@final
@dataclass(frozen=True)
class Process:
    """A Gaussian process conditioned on runs."""

    table: Table = field(repr=False)
    Z: Float[ndarray, "n v"] = field(repr=False)
    group: Int[ndarray, "..."] = field(repr=False)
    hyper: Float[ndarray, " h"]
    middle: float
    size: float
    solved: Float[ndarray, " n"] = field(repr=False)
    lower: Float[ndarray, "n n"] = field(repr=False)
    weight: float = 1.0
    trend: Fitted | None = None

    @property
    def name(self) -> str:
        """Its name among the forms."""
        return PROCESS if self.trend is None else f"{self.trend.form.name}{WITH_PROCESS}"

    @property
    def wide(self) -> float:
        """Prior variance of the linear mean; none beside a form."""
        return WIDE if self.trend is None else 0.0

    @property
    def noise(self) -> float:
        """Noise of a run."""
        return float(np.exp(self.hyper[1])) * self.size

    @property
    def dof(self) -> int:
        """Degrees of freedom of the noise."""
        return max(len(self.solved) // 2, 1)

    def _cross(self, X: ndarray, group: ndarray) -> tuple[ndarray, ndarray]:
        P = coordinates(self.table.variables, X).T
        return P, _kernel(self.hyper, P, self.Z, group, self.group, self.wide)[0]

    def value(self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]) -> Float[ndarray, " k"]:
        """Values on the scale of the link."""
        own = self.middle + self.size * (self._cross(X, group)[1] @ self.solved)
        return own if self.trend is None else own + self.trend.value(X, group)

    def variance(
        self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]
    ) -> Float[ndarray, " k"]:
        """Posterior variance of the values."""
        P, K = self._cross(X, group)
        own = np.exp(2 * self.hyper[0]) + self.wide + self.wide * (P**2).sum(1)
        V = linalg.solve_triangular(self.lower, K.T, lower=True)
        inside = self.size**2 * np.maximum(own - (V**2).sum(0), 0.0)
        return inside if self.trend is None else inside + self.trend.variance(X, group)

    def covariance(
        self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]
    ) -> Float[ndarray, "k k"]:
        """Posterior covariance of the values."""
        P, K = self._cross(X, group)
        V = linalg.solve_triangular(self.lower, K.T, lower=True)
        return self.size**2 * (_kernel(self.hyper, P, P, group, group, self.wide)[0] - V.T @ V)


def fit_process(
    table: Table,
    rows: Int[ndarray, "..."],
    rng: np.random.Generator,
    *,
    trend: Fitted | None = None,
) -> Process:
    """The process given some rows, with its hyperparameters.

    Args:
        table: The runs.
        rows: Rows to fit.
        rng: Random numbers, for a table that is too large.
        trend: A form fitted to these rows as the mean, instead of a line.
    """
    if len(rows) > MOST:
        rows = _some(table, rows, rng)
    Z, group = coordinates(table.variables, table.X[:, rows]).T, table.group[rows]
    z, middle, wide = table.z[rows], 0.0, 0.0
    if trend is None:
        middle, wide = float(z.mean()), WIDE
    else:
        z = z - trend.value(table.X[:, rows], group)
    size = float(z.std()) or 1.0
    t = (z - middle) / size
    begin = np.concatenate([[-0.7, np.log(0.1), 0.0], np.full(Z.shape[1], 0.7)])
    bounds = [(-4, 2), (np.log(1e-3), 0.5), (-3, 3)] + [(-1.5, 4.0)] * Z.shape[1]
    found = optimize.minimize(
        _evidence,
        begin,
        (Z, group, t, wide),
        "L-BFGS-B",
        jac=True,
        bounds=bounds,
        options={"maxiter": 40},
    )
    K, _ = _kernel(found.x, Z, Z, group, group, wide)
    L = linalg.cholesky(K + (np.exp(2 * found.x[1]) + 1e-8) * np.eye(len(t)), lower=True)
    solved = linalg.cho_solve((L, True), t)
    return Process(table, Z, group, found.x, middle, size, solved, L, trend=trend)


def _some(
    table: Table, rows: Int[ndarray, "..."], rng: np.random.Generator
) -> Int[ndarray, "..."]:
    """Some of many rows: half of them from the largest runs, the others from all."""
    scale = [i for i, v in enumerate(table.variables) if v.role == "scale"]
    if not scale:
        return np.sort(rng.permutation(rows)[:MOST])
    size = coordinates(table.variables, table.X[:, rows])[scale].sum(0)
    order = rng.permutation(len(rows))
    order = order[np.argsort(-size[order], kind="stable")]
    large, rest = order[: len(rows) // 4], order[len(rows) // 4 :]
    keep = min(MOST // 2, len(large))
    chosen = np.concatenate([rng.permutation(large)[:keep], rng.permutation(rest)[: MOST - keep]])
    return np.sort(rows[chosen])


def _kernel(
    hyper: ndarray, P: ndarray, Z: ndarray, gp: ndarray, gz: ndarray, wide: float
) -> tuple[ndarray, tuple[ndarray, ndarray, ndarray]]:
    """Covariances of points and runs, and the parts that derivatives need."""
    amplitude, lengths = np.exp(2 * hyper[0]), np.exp(hyper[3:])
    square = (P[:, None] - Z) ** 2 / lengths**2
    same = gp[:, None] == gz
    # The level has a part that is the group's own.
    share = 1 / (1 + np.exp(-hyper[2]))
    smooth = amplitude * np.exp(-0.5 * square.sum(2))
    pooled = np.where(same, 1.0, share)
    K = wide * pooled + wide * (P @ Z.T) + smooth * pooled
    return K, (square, smooth, same)


def _evidence(
    hyper: ndarray, Z: ndarray, group: ndarray, t: ndarray, wide: float
) -> tuple[float, ndarray]:
    """Minus the log posterior of the hyperparameters, and its gradient."""
    K, (square, smooth, same) = _kernel(hyper, Z, Z, group, group, wide)
    noise = np.exp(2 * hyper[1]) + 1e-8
    share = 1 / (1 + np.exp(-hyper[2]))
    pooled = np.where(same, 1.0, share)
    mean = np.concatenate([[-0.7, np.log(0.1), 0.0], np.full(Z.shape[1], 0.7)])
    sd = np.concatenate([[1.0, 1.5, 1.5], np.full(Z.shape[1], 0.8)])
    pull = (hyper - mean) / sd**2
    try:
        L = linalg.cholesky(K + noise * np.eye(len(t)), lower=True)
    except linalg.LinAlgError:
        return 1e10, pull
    inverse = linalg.cho_solve((L, True), np.eye(len(t)))
    solved = inverse @ t
    value = 0.5 * t @ solved + np.log(np.diag(L)).sum() + 0.5 * ((hyper - mean) * pull).sum()
    M = inverse - np.outer(solved, solved)
    part = smooth * pooled
    gradient = np.empty(len(hyper))
    gradient[0] = (M * part).sum()
    gradient[1] = noise * np.trace(M)
    away = np.where(same, 0.0, (wide + smooth) * share * (1 - share))
    gradient[2] = 0.5 * (M * away).sum()
    gradient[3:] = 0.5 * np.einsum("ij,ij,ijv->v", M, part, square)
    return float(value), gradient + pull
