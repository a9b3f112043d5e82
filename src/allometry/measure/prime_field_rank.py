r"""Exact rank over a prime field, in floating point.

Residues modulo a prime p near $2^{20}$ are whole numbers between $-p/2$ and $p/2$. Sums of up to
$2^{53}/(p/2)^2$ products of two of them are exact in float64, so
elimination uses the floating-point matrix product, on blocks of columns.
"""

from typing import final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require

PRIMES = (1048573, 1048571, 1048559)
"""The three largest primes below 2^20."""

BLOCK = 96
"""Columns per panel: elimination inside the panel costs as much as the product after it."""


@final
class Field:
    """Arithmetic modulo a prime on float64 tensors, used as `reduce` of polynomial models.

    Args:
        p: A prime below 2^21.

    Example:
        >>> import torch
        >>> Field(7)(torch.tensor([10.0, 3.0, -4.0], dtype=torch.float64)).tolist()
        [3.0, 3.0, 3.0]
    """

    def __init__(self, p: int = PRIMES[0]) -> None:
        require(2 < p < 1 << 21, "Field.p", "be an odd prime below 2^21", p)
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        """The residues, between -p/2 and p/2, of integers below 2^53 in absolute value."""
        return x - self.p * torch.round(x / self.p)

    def draw(self, *shape: int, rng: torch.Generator) -> Float[Tensor, "..."]:
        """Residues drawn uniformly from the field."""
        drawn = torch.randint(self.p, shape, generator=rng).to(torch.float64)
        return self(drawn)


def prime_rank(matrix: Float[ndarray, "r c"], p: int = PRIMES[0]) -> int:
    """The rank modulo p of an integer matrix, at most its rank over the rationals.

    Gaussian elimination with row exchanges, a panel of `BLOCK` columns at a time: the panel is
    eliminated column by column, everything to its right by one matrix product.

    Args:
        matrix: Whole numbers of size below 2^53.
        p: A prime below 2^21.

    Example:
        >>> import numpy as np
        >>> prime_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))
        1
    """
    A = np.array(matrix, dtype=np.float64)
    require(A.ndim == 2, "prime_rank.matrix", "have two axes", A.shape)
    require(bool(np.all(np.rint(A) == A)), "prime_rank.matrix", "hold whole numbers", "fractions")
    A = A.T.copy() if A.shape[1] < A.shape[0] else A
    _reduce(A, p)
    rank, column = 0, 0
    while rank < A.shape[0] and column < A.shape[1]:
        end = min(column + BLOCK, A.shape[1])
        k, L = _panel(A, rank, column, end, p)
        rest = A[rank:, end:]
        if k and rest.size:
            top = rest[:k]
            for i in range(1, k):  # unit lower triangle: forward substitution
                top[i] -= L[i, :i] @ top[:i]
                _reduce(top[i], p)
            rest[k:] -= L[k:, :k] @ top
            _reduce(rest[k:], p)
        rank, column = rank + k, end
    return rank


def _panel(A: ndarray, row: int, column: int, end: int, p: int) -> tuple[int, ndarray]:
    """Eliminate the columns of the panel below `row`; returns the pivot count and multipliers.

    Exchanges whole rows of A, and of the multipliers found so far.
    """
    P = A[row:, column:end].copy()
    n, width = P.shape
    L = np.zeros((n, width))
    k = 0
    for j in range(width):
        if k == n:
            break
        found = np.flatnonzero(P[k:, j])
        if not len(found):
            continue
        pivot = k + int(found[0])
        if pivot != k:
            for array in (P, L):
                array[[k, pivot]] = array[[pivot, k]]
            A[[row + k, row + pivot], end:] = A[[row + pivot, row + k], end:]
        inverse = pow(int(P[k, j]) % p, -1, p)
        multipliers = P[k + 1 :, j] * inverse
        _reduce(multipliers, p)
        L[k + 1 :, k] = multipliers
        P[k + 1 :, j + 1 :] -= multipliers[:, None] * P[k, j + 1 :]
        _reduce(P[k + 1 :, j + 1 :], p)
        k += 1
    return k, L


def _reduce(x: ndarray, p: int) -> None:
    """Residues between -p/2 and p/2, in place; exact, since x/p is far below 2^53."""
    x -= p * np.rint(x * (1.0 / p))
