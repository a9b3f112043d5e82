"""Equilibria of two-player games in exact arithmetic, for payoffs beyond floating-point accuracy.

A float is a fraction, so a payoff table is a table of integers times a power of two, and pivoting
and elimination on integers have no rounding errors. Notation as in
`allometry.train.game.normal_form`.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np
from jaxtyping import Float
from numpy import ndarray

ROUNDING = Fraction(1, 2**40)
"""Negative probabilities down to this size count as 0. Payoffs are rounded to floats: in a
degenerate game another unit of payoff moves a probability of 0 by about 1e-16 either way."""

PIVOTS = 100_000
"""Largest number of pivots; an exact path cannot cycle, but it can be long."""


def whole(table: Float[ndarray, "m n"]) -> ndarray:
    """The table times a power of two, as Python integers."""
    parts = [Fraction(float(v)) for v in table.ravel()]
    unit = lcm(*(p.denominator for p in parts))
    out = np.empty(table.size, dtype=object)
    out[:] = [p.numerator * (unit // p.denominator) for p in parts]
    return out.reshape(table.shape)


def exact_pivots(
    A: Float[ndarray, "m n"], B: Float[ndarray, "m n"], label: int
) -> tuple[list[Fraction], list[Fraction]] | None:
    """One equilibrium by complementary pivoting on integers; `None` if the path is too long.

    References: `lemke1964`; `bareiss1968` for pivots whose divisions leave no remainder.
    """
    m, n = A.shape
    A, B = whole(A), whole(B)
    # Positive payoffs keep the polytopes bounded; adding a constant changes no equilibrium.
    A, B = A - A.min() + 1, B - B.min() + 1
    first = np.hstack([B.T, _unit(n), np.full((n, 1), 1, dtype=object)])
    second = np.hstack([_unit(m), A, np.full((m, 1), 1, dtype=object)])
    tables, basis, scale = [first, second], [list(range(m, m + n)), list(range(m))], [1, 1]
    which, entering = (0 if label < m else 1), label
    for _ in range(PIVOTS):
        row = _leaves(tables[which], entering)
        scale[which] = _pivot(tables[which], row, entering, scale[which])
        entering, basis[which][row] = basis[which][row], entering
        if entering == label:
            x = _read(tables[0], basis[0], m + n)[:m]
            y = _read(tables[1], basis[1], m + n)[m:]
            return _shares(x), _shares(y)
        which = 1 - which
    return None


def exact_mixture(block: ndarray) -> list[Fraction] | None:
    """The mixture under which all rows of a square block of integers have equal value.

    `None` if there is none or more than one, or if a probability is negative beyond `ROUNDING`.
    """
    k = len(block)
    # Every row equals the first one in value, and probabilities sum to one.
    rows = [[*(block[i] - block[0]), 0] for i in range(1, k)] + [[1] * k + [1]]
    system = np.empty((k, k + 1), dtype=object)
    for i, row in enumerate(rows):
        system[i] = row
    scale = 1
    for column in range(k):
        below = [i for i in range(column, k) if system[i, column] != 0]
        if not below:
            return None
        system[[column, below[0]]] = system[[below[0], column]]
        scale = _pivot(system, column, column, scale)
    found = [Fraction(system[i, k], system[i, i]) for i in range(k)]
    if min(found) < -ROUNDING:
        return None
    return _shares([max(share, Fraction(0)) for share in found])


def _unit(k: int) -> ndarray:
    out = np.full((k, k), 0, dtype=object)
    out[range(k), range(k)] = 1
    return out


def _pivot(table: ndarray, row: int, column: int, scale: int) -> int:
    """Clear a column except in one row; returns the new common divisor of the table."""
    pivot = table[row, column]
    for i in range(len(table)):
        if i != row:
            table[i] = (pivot * table[i] - table[i, column] * table[row]) // scale
    return pivot


def _leaves(table: ndarray, entering: int) -> int:
    """The row with the smallest ratio; ties are broken lexicographically, so no game cycles."""
    rows = [i for i in range(len(table)) if table[i, entering] > 0]
    order = [table.shape[1] - 1, *range(table.shape[1] - 1)]
    for column in order:
        ratio = {i: Fraction(table[i, column], table[i, entering]) for i in rows}
        least = min(ratio.values())
        rows = [i for i in rows if ratio[i] == least]
        if len(rows) == 1:
            break
    return rows[0]


def _read(table: ndarray, basis: Sequence[int], size: int) -> list[Fraction]:
    out = [Fraction(0)] * size
    for i, label in enumerate(basis):
        out[label] = Fraction(table[i, -1], table[i, label])
    return out


def _shares(weights: Sequence[Fraction]) -> list[Fraction]:
    total = sum(weights, Fraction(0))
    return [w / total for w in weights]
