"""The best scalar quantiser of a law or of a sample.

Letters: K levels, n observations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import require

GRID = 400_001
"""Points of the table of a density's partial moments."""


@final
@dataclass(frozen=True)
class ScalarQuantiser:
    """Levels and the edges between their cells.

    Args:
        levels: K values, upwards.
        edges: K - 1 thresholds, halfway between neighbouring levels.
        distortion: Mean squared error on what it was made for.
        rounds: Of Lloyd's iteration.
    """

    levels: Float[ndarray, " K"]
    edges: Float[ndarray, " K-1"]
    distortion: float
    rounds: int

    def encode(self, x: Float[ndarray, "*n"]) -> Int[ndarray, "*n"]:
        """The cell of each value: its nearest level."""
        return np.searchsorted(self.edges, x).astype(np.int64)

    def decode(self, code: Int[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """The level of each cell."""
        return self.levels[code]


@final
@dataclass(frozen=True)
class _Moments:
    """Running integrals of p, x p and x^2 p over a table of places."""

    x: ndarray
    mass: ndarray
    first: ndarray
    second: float

    def between(self, edges: ndarray) -> tuple[ndarray, ndarray]:
        """Mass and first moment of each cell."""
        m = np.interp(edges, self.x, self.mass)
        f = np.interp(edges, self.x, self.first)
        return (
            np.diff(m, prepend=self.mass[0], append=self.mass[-1]),
            np.diff(f, prepend=self.first[0], append=self.first[-1]),
        )

    def between_sample(self, edges: ndarray) -> tuple[ndarray, ndarray]:
        """The same where the table is a sorted sample: an observation is in one cell only."""
        at = np.searchsorted(self.x, edges)
        mass, first = np.concatenate([[0], self.mass]), np.concatenate([[0], self.first])
        ends = np.concatenate([[0], at, [len(self.x)]])
        return np.diff(mass[ends]), np.diff(first[ends])


def lloyd_max(
    pdf: Callable[[ndarray], ndarray],
    K: int,
    low: float,
    high: float,
    tolerance: float = 1e-10,
    most: int = 200_000,
) -> ScalarQuantiser:
    r"""The quantiser of a density on [low, high] that no small change improves.

    Lloyd's iteration between the two conditions: edges halfway between levels (nearest
    neighbour), levels at the mean of their cells (centroid). For log-concave densities such as the
    Gaussian it is the best of all. The distortion is $\mathbb E x^2 - \sum_k m_k c_k^2$ with cell
    masses m and centroids c.

    Args:
        pdf: The density, on arrays; need not be normalised.
        K: Levels.
        low: Where its mass begins, for practical purposes.
        high: Where it ends.
        tolerance: Largest movement of a level at the end, relative to the standard deviation.
        most: Rounds before giving up.

    References: `lloyd1982`; `max1960`.
    """
    require(K >= 1, "lloyd_max.K", "be at least 1", K)
    require(high > low, "lloyd_max.high", f"be above low ({low})", high)
    x = np.linspace(low, high, GRID)
    p = np.asarray(pdf(x), dtype=np.float64)
    require(bool((p >= 0).all() and p.sum() > 0), "lloyd_max.pdf", "be a density", p.min())
    step = x[1] - x[0]

    def running(y: ndarray) -> ndarray:
        return np.concatenate([[0.0], ((y[1:] + y[:-1]) / 2).cumsum() * step])

    mass = running(p)
    total = mass[-1]
    first, second = running(x * p) / total, running(x**2 * p)[-1] / total
    moments = _Moments(x, mass / total, first, float(second))
    start = np.interp((np.arange(K) + 0.5) / K, moments.mass, x)
    return _iterate(moments, moments.between, start, tolerance, most)


def lloyd_max_sample(
    sample: Float[ndarray, " n"], K: int, tolerance: float = 1e-10, most: int = 200_000
) -> ScalarQuantiser:
    """The same for a sample, begun at its quantiles.

    Args:
        sample: Observations.
        K: Levels, at most as many as there are distinct observations.
        tolerance: As for `lloyd_max`.
        most: As for `lloyd_max`.
    """
    x = np.sort(np.asarray(sample, dtype=np.float64))
    distinct = np.unique(x)
    require(1 <= K <= len(distinct), "lloyd_max_sample.K", f"be 1 to {len(distinct)}", K)
    n = len(x)
    moments = _Moments(x, np.arange(1, n + 1) / n, x.cumsum() / n, float((x**2).mean()))
    start = np.unique(x[((np.arange(K) + 0.5) / K * n).astype(int)])
    if len(start) < K:
        start = distinct[((np.arange(K) + 0.5) / K * len(distinct)).astype(int)]
    return _iterate(moments, moments.between_sample, start, tolerance, most)


def _iterate(
    moments: _Moments,
    between: Callable[[ndarray], tuple[ndarray, ndarray]],
    levels: ndarray,
    tolerance: float,
    most: int,
) -> ScalarQuantiser:
    mean = moments.first[-1]
    still = tolerance * max(1e-300, moments.second - mean**2) ** 0.5
    rounds = 0
    while rounds < most:
        rounds += 1
        mass, first = between((levels[1:] + levels[:-1]) / 2)
        # A cell without mass keeps its level.
        new = np.where(mass > 0, first / np.where(mass > 0, mass, 1), levels)
        moved = float(np.abs(new - levels).max())
        levels = new
        if moved <= still:
            break
    edges = (levels[1:] + levels[:-1]) / 2
    mass, first = between(edges)
    centre = np.where(mass > 0, first / np.where(mass > 0, mass, 1), levels)
    return ScalarQuantiser(levels, edges, float(moments.second - (mass * centre**2).sum()), rounds)
