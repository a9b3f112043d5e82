r"""The best division of a sorted sample into cells, by dynamic programming.

Letters: n atoms in order, K cells; $D_k(j)$ the least squared error of the first j atoms in k
cells: $D_k(j) = \min_i D_{k-1}(i) + c(i, j)$, with c(i, j) that of one cell of the atoms i to j.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@final
@dataclass(frozen=True)
class Atoms:
    """Places in order, each with some mass.

    Args:
        at: Places, upwards.
        mass: At each.
    """

    at: Float[ndarray, " n"]
    mass: Float[ndarray, " n"]

    @staticmethod
    def of(mass: Float[ndarray, " n"], first: Float[ndarray, " n"]) -> "Atoms":
        """From masses and first moments; what has no mass is left out."""
        some = mass > 0
        return Atoms(first[some] / mass[some], mass[some])


def best_cells(atoms: Atoms, K: int) -> Float[ndarray, " K"]:
    r"""Means of the K cells of the least squared error, of all divisions into cells.

    The best beginning of the last cell never moves down as atoms are added, so the middle atom's
    is sought first and halves the search for those to either side: $O(K n \log n)$.

    References: `fisher1958`.
    """
    n = len(atoms.at)
    # About the middle of the places, which keeps the differences of the running sums exact.
    origin = float(atoms.at[n // 2])
    x = atoms.at - origin
    sums = [np.concatenate([[0.0], (atoms.mass * x**p).cumsum()]) for p in range(3)]

    def cost(i: ndarray, j: ndarray) -> ndarray:
        mass, first, second = (s[j] - s[i] for s in sums)
        return np.maximum(second - first**2 / np.where(mass > 0, mass, 1), 0.0)

    error = cost(np.zeros(n, dtype=int), np.arange(1, n + 1))
    error = np.concatenate([[0.0], error])
    begins = []
    for k in range(2, K + 1):
        error, begin = _another(error, cost, k, n)
        begins.append(begin)
    ends = [n]
    for begin in reversed(begins):
        ends.append(int(begin[ends[-1]]))
    edges = np.array([0, *reversed(ends)])
    mass, first = (np.diff(s[edges]) for s in sums[:2])
    return origin + first / mass


def _another(
    error: ndarray, cost: Callable[[ndarray, ndarray], ndarray], k: int, n: int
) -> tuple[ndarray, ndarray]:
    """Least errors with one more cell (k of them) for every j, and where the last one begins."""
    out, begin = np.full(n + 1, np.inf), np.full(n + 1, -1)
    # All searches of one depth at once: j between the ends, i between the begins of these.
    left, right = np.array([k]), np.array([n])
    low, high = np.array([k - 1]), np.array([n - 1])
    while len(left):
        j = (left + right) // 2
        top = np.minimum(high, j - 1)
        length = top - low + 1
        start = np.concatenate([[0], length.cumsum()[:-1]])
        which = np.repeat(np.arange(len(j)), length)
        i = np.arange(len(which)) - start[which] + low[which]
        value = error[i] + cost(i, j[which])
        least = np.minimum.reduceat(value, start)
        # The first i that attains it.
        best = np.minimum.reduceat(np.where(value == least[which], i, n), start)
        out[j], begin[j] = least, best
        ranges = np.concatenate(
            [np.stack([left, j - 1, low, best]), np.stack([j + 1, right, best, high])], 1
        )
        left, right, low, high = ranges[:, ranges[0] <= ranges[1]]
    return out, begin
