"""The optimal scalar quantiser of a distribution or a sample.

Shapes: K levels, n observations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import require
from allometry.models.quantisation.partition import Atoms, best_cells

GRID = 400_001
"""Grid points of the partial moments of a density."""

ATOMS = 2000
"""Atoms of the discretised density that initialises Lloyd's iteration."""

STEPS = 1_000_000
"""Largest product of levels and observations for the exact optimum of a sample."""


@final
@dataclass(frozen=True)
class ScalarQuantiser:
    """Levels and the edges between their cells.

    Args:
        levels: K values, ascending.
        edges: K - 1 thresholds, halfway between neighbouring levels.
        distortion: Mean squared error on the distribution or sample it was fitted to.
        rounds: Iterations of Lloyd's algorithm.
        best: Whether it is the global optimum of K levels. Otherwise it is a local optimum,
            initialised at the global optimum of a coarser sample.
    """

    levels: Float[ndarray, " K"]
    edges: Float[ndarray, " K-1"]
    distortion: float
    rounds: int
    best: bool = False

    def encode(self, x: Float[ndarray, "*n"]) -> Int[ndarray, "*n"]:
        """The cell of each value: its nearest level."""
        return np.searchsorted(self.edges, x).astype(np.int64)

    def decode(self, code: Int[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """The level of each cell."""
        return self.levels[code]


def lloyd_max(
    pdf: Callable[[ndarray], ndarray],
    K: int,
    low: float,
    high: float,
    tolerance: float = 1e-10,
    most: int = 200_000,
) -> ScalarQuantiser:
    r"""A locally optimal quantiser of a density on [low, high].

    Lloyd's iteration alternates two conditions: edges halfway between levels (nearest neighbour)
    and levels at the mean of their cells (centroid). For log-concave densities such as the
    Gaussian only one quantiser satisfies both. Others may have several; the iteration starts from
    the optimal quantiser of the density discretised into `ATOMS` atoms. The distortion is $\mathbb
    E x^2 - \sum_k m_k c_k^2$ with cell masses m and centroids c.

    Args:
        pdf: The density, on arrays; need not be normalised.
        K: Number of levels.
        low: Lower end of the (effective) support.
        high: Upper end of the (effective) support.
        tolerance: Largest final change of a level, relative to the standard deviation.
        most: Largest number of iterations.

    References: `lloyd1982`; `max1960`.
    """
    require(K >= 1, "lloyd_max.K", "be at least 1", K)
    require(high > low, "lloyd_max.high", f"be above low ({low})", high)
    middle, unit = low / 2 + high / 2, high / 2 - low / 2
    u = np.linspace(-1.0, 1.0, GRID)
    p = np.asarray(pdf(middle + unit * u), dtype=np.float64)
    require(bool((p >= 0).all() and p.sum() > 0), "lloyd_max.pdf", "be a density", p.min())
    p = p / p.max()

    def running(y: ndarray) -> ndarray:
        return np.concatenate([[0.0], ((y[1:] + y[:-1]) / 2).cumsum()])

    mass = running(p)
    mass, total = mass / mass[-1], mass[-1]
    # Centred, because the distortion is a difference of second moments.
    mean = float(running(u * p)[-1] / total)
    first = running((u - mean) * p) / total
    second = float(running((u - mean) ** 2 * p)[-1] / total)

    def between(edges: ndarray) -> tuple[ndarray, ndarray]:
        """Mass and first moment of each cell."""
        m, f = np.interp(edges, u - mean, mass), np.interp(edges, u - mean, first)
        return np.diff(m, prepend=0.0, append=1.0), np.diff(f, prepend=0.0, append=first[-1])

    cuts = np.linspace(0, GRID - 1, max(ATOMS, 8 * K) + 1).astype(int)
    atoms = Atoms.of(np.diff(mass[cuts]), np.diff(first[cuts]))
    require(len(atoms.at) >= K, "lloyd_max.pdf", f"have mass at {K} points", len(atoms.at))
    levels, rounds = _iterate(between, best_cells(atoms, K), tolerance * second**0.5, most)
    m, f = between((levels[1:] + levels[:-1]) / 2)
    left = second - float((f**2 / np.where(m > 0, m, 1)).sum())
    levels = middle + unit * (mean + levels)
    edges = (levels[1:] + levels[:-1]) / 2
    return ScalarQuantiser(levels, edges, unit**2 * max(left, 0.0), rounds)


def lloyd_max_sample(
    sample: Float[ndarray, " n"], K: int, tolerance: float = 1e-10, most: int = 200_000
) -> ScalarQuantiser:
    """The optimal quantiser of a sample.

    The global optimum is found by dynamic programming over the sorted sample, up to `STEPS` levels
    times observations. For larger samples Lloyd's iteration starts from the optimum of a coarser
    sample; `.best` is then false.

    Args:
        sample: Observations.
        K: Number of levels, at most the number of distinct observations.
        tolerance: As for `lloyd_max`.
        most: As for `lloyd_max`.

    References: `fisher1958`; `lloyd1982`.
    """
    x = np.sort(np.asarray(sample, dtype=np.float64).ravel())
    require(bool(np.isfinite(x).all()), "lloyd_max_sample.sample", "be finite", "nan or inf")
    distinct, count = np.unique(x, return_counts=True)
    require(1 <= K <= len(distinct), "lloyd_max_sample.K", f"be 1 to {len(distinct)}", K)
    # Centred and scaled, so that accuracy does not depend on the caller's units.
    middle = float(np.median(x))
    unit = float(np.abs(x - middle).max()) or 1.0
    u, share = (distinct - middle) / unit, count / len(x)
    exact = K * len(u) <= STEPS
    fine = np.arange(len(u)) if exact else _coarser(u, max(STEPS // K, 8 * K))
    atoms = Atoms.of(np.add.reduceat(share, fine), np.add.reduceat(share * u, fine))
    levels = best_cells(atoms, K)
    mass, first = (np.concatenate([[0.0], v.cumsum()]) for v in (share, share * u))

    def between(edges: ndarray) -> tuple[ndarray, ndarray]:
        """Mass and first moment of each cell; each observation is in one cell."""
        ends = np.concatenate([[0], np.searchsorted(u, edges), [len(u)]])
        return np.diff(mass[ends]), np.diff(first[ends])

    rounds = 0
    if not exact:
        spread = float(np.sqrt((share * (u - (share * u).sum()) ** 2).sum()))
        levels, rounds = _iterate(between, levels, tolerance * spread, most)
    edges = (levels[1:] + levels[:-1]) / 2
    left = u - levels[np.searchsorted(edges, u)]
    distortion = unit**2 * float((share * left**2).sum())
    return ScalarQuantiser(
        middle + unit * levels, middle + unit * edges, distortion, rounds, exact
    )


def _coarser(u: ndarray, atoms: int) -> ndarray:
    """Starts of the atoms: by number of observations in the bulk, by distance in the tails."""
    number = np.linspace(0, len(u), atoms // 2, endpoint=False).astype(int)
    distance = np.searchsorted(u, np.linspace(u[0], u[-1], atoms // 2, endpoint=False))
    return np.union1d(number, distance)


def _iterate(
    between: Callable[[ndarray], tuple[ndarray, ndarray]],
    levels: ndarray,
    still: float,
    most: int,
) -> tuple[ndarray, int]:
    """Lloyd's iteration until no level changes by more than `still`; levels and iterations."""
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
    return levels, rounds
