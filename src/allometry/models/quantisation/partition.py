r"""The optimal partition of a sorted sample into cells, by dynamic programming.

Notation: n sorted atoms, K cells; $D_k(j)$ the smallest squared error of the first j atoms in
k cells: $D_k(j) = \min_i D_{k-1}(i) + c(i, j)$, with c(i, j) that of one cell of atoms i to j.
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
    """Sorted points with masses.

    Args:
        at: Points, ascending.
        mass: Mass of each.
    """

    at: Float[ndarray, " n"]
    mass: Float[ndarray, " n"]

    @staticmethod
    def of(mass: Float[ndarray, " n"], first: Float[ndarray, " n"]) -> "Atoms":
        """From masses and first moments; atoms without mass are dropped."""
        some = mass > 0
        return Atoms(first[some] / mass[some], mass[some])


def best_cells(atoms: Atoms, K: int) -> Float[ndarray, " K"]:
    r"""Means of the K cells of the partition with the smallest squared error.

    The optimal start of the last cell is monotone in the number of atoms, so divide and conquer
    applies: $O(K n \log n)$.

    References: `fisher1958`.
    """
    n = len(atoms.at)
    # Centred, to keep the differences of the cumulative sums accurate.
    origin = float(atoms.at[n // 2])
    x = atoms.at - origin
    sums = [np.concatenate([[0.0], (atoms.mass * x**p).cumsum()]) for p in range(3)]

    def cost(i: ndarray, j: ndarray) -> ndarray:
        mass, first, second = (s[j] - s[i] for s in sums)
        return np.maximum(second - first**2 / np.where(mass > 0, mass, 1), 0.0)

    error = cost(np.zeros(n, dtype=int), np.arange(1, n + 1))
    error = np.concatenate([[0.0], error])
    starts = []
    for k in range(2, K + 1):
        error, start = _add_cell(error, cost, k, n)
        starts.append(start)
    ends = [n]
    for start in reversed(starts):
        ends.append(int(start[ends[-1]]))
    edges = np.array([0, *reversed(ends)])
    mass, first = (np.diff(s[edges]) for s in sums[:2])
    return origin + first / mass


def _add_cell(
    error: ndarray, cost: Callable[[ndarray, ndarray], ndarray], k: int, n: int
) -> tuple[ndarray, ndarray]:
    """Smallest errors with k cells for every j, and the start of the last cell."""
    out, begin = np.full(n + 1, np.inf), np.full(n + 1, -1)
    # All searches of one recursion depth at once: j between the ends, i between the starts.
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
