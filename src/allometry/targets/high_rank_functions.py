r"""Functions of two groups of variables with known separation rank, for studies and tests.

Polynomials accept `reduce`, applied after every product, for arithmetic modulo a prime.
Letters: b batch, i inputs, h variables on each side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require

Reduce = Callable[[Tensor], Tensor]
Values = Float[Tensor, " b"]


def _unreduced(x: Tensor) -> Tensor:
    return x


@final
@dataclass(frozen=True)
class HighRank:
    """A function with its inputs, its partition, and its separation rank if known.

    Args:
        name: Description.
        function: Maps inputs (b, i), and `reduce`, to numbers (b,).
        inputs: Number of inputs i.
        side: Number of leading inputs on the first side.
        rank: The separation rank; `None` if unknown.
        polynomial: Whether it can be computed modulo a prime.
    """

    name: str
    function: Callable[[Tensor, Reduce], Tensor]
    inputs: int
    side: int
    rank: int | None
    polynomial: bool = True

    def __call__(self, x: Float[Tensor, "b i"], reduce: Reduce = _unreduced) -> Values:
        """The values at `x`."""
        return self.function(x, reduce)

    @property
    def partition(self) -> list[int]:
        """The inputs of the first side."""
        return list(range(self.side))


def _power(x: Tensor, q: int, reduce: Reduce) -> Tensor:
    y = torch.ones_like(x)
    for _ in range(q):
        y = reduce(y * x)
    return y


def _product(x: Tensor, reduce: Reduce) -> Tensor:
    y = torch.ones_like(x[..., 0])
    for k in range(x.shape[-1]):
        y = reduce(y * x[..., k])
    return y


def product(h: int) -> HighRank:
    """The product of all variables: rank 1."""
    return HighRank(f"product of {2 * h}", lambda x, r: _product(x, r), 2 * h, h, 1)


def inner_power(h: int, q: int, shift: int = 0) -> HighRank:
    r"""$(s + a \cdot b)^q$: rank $\binom{h+q-1}{q}$ at s = 0, else $\binom{h+q}{q}$.

    Example:
        >>> inner_power(3, 4).rank
        15
    """

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        inner = reduce(reduce(x[:, :h] * x[:, h:]).sum(1) + shift)
        return _power(inner, q, reduce)

    rank = math.comb(h + q - (shift == 0), q)
    inside = f"({shift} + a.b)" if shift else "(a.b)"
    return HighRank(f"{inside}^{q} in {2 * h} variables", f, 2 * h, h, rank)


def sum_of_products(h: int) -> HighRank:
    r"""$\sum_k a_k b_k$: rank h."""
    return inner_power(h, 1)


def power_sum(h: int, q: int) -> HighRank:
    r"""$\sum_i x_i^q$: rank 2."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return reduce(_power(x, q, reduce).sum(1))

    return HighRank(f"sum of powers {q}", f, 2 * h, h, 2)


def total_power(h: int, q: int) -> HighRank:
    r"""$(\sum_i x_i)^q$: rank q + 1."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return _power(reduce(x.sum(1)), q, reduce)

    return HighRank(f"(sum)^{q}", f, 2 * h, h, q + 1)


def product_of_sums(h: int) -> HighRank:
    r"""$\prod_i (a_i + b_i)$: rank $2^h$."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return _product(reduce(x[:, :h] + x[:, h:]), reduce)

    return HighRank(f"product of {h} sums", f, 2 * h, h, 2**h)


def matching(h: int, size: int) -> HighRank:
    r"""$\prod_i a_i \cdot b_i$ of h pairs of vectors: rank $\mathrm{size}^h$."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        a, b = x.reshape(len(x), 2, h, size).unbind(1)
        return _product(reduce(reduce(a * b).sum(-1)), reduce)

    return HighRank(f"{h} matches of size {size}", f, 2 * h * size, h * size, size**h)


def product_of_pairs(h: int) -> HighRank:
    r"""$\prod_i (1 + a_i b_i)$: rank $2^h$."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return _product(reduce(1 + reduce(x[:, :h] * x[:, h:])), reduce)

    return HighRank(f"product of {h} pairs", f, 2 * h, h, 2**h)


def determinant(m: int, columns: int, *, permanent: bool = False) -> HighRank:
    r"""The determinant of an m x m matrix, partitioned after j columns: rank $\binom{m}{j}$.

    Args:
        m: Number of rows and columns.
        columns: j.
        permanent: Use only positive signs; the rank is the same.

    Example:
        >>> determinant(6, 3).rank
        20
    """
    require(1 <= columns < m, "determinant.columns", f"be between 1 and {m - 1}", columns)
    sign = 1 if permanent else -1

    def minor(x: Tensor, rows: tuple[int, ...], reduce: Reduce) -> Tensor:
        """Expansion along the first remaining column; x is (b, m columns, m rows)."""
        k = m - len(rows)
        if len(rows) == 1:
            return x[:, k, rows[0]]
        total = torch.zeros_like(x[:, 0, 0])
        for i, row in enumerate(rows):
            rest = minor(x, rows[:i] + rows[i + 1 :], reduce)
            total = reduce(total + sign**i * reduce(x[:, k, row] * rest))
        return total

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return minor(x.reshape(len(x), m, m), tuple(range(m)), reduce)

    name = f"{'permanent' if permanent else 'determinant'} {m} x {m} after {columns} columns"
    return HighRank(name, f, m * m, columns * m, math.comb(m, columns))


def elementary(h: int, k: int) -> HighRank:
    """The elementary symmetric polynomial of degree k in 2h variables."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        sums = [torch.ones_like(x[:, 0])] + [torch.zeros_like(x[:, 0]) for _ in range(k)]
        for i in range(2 * h):
            for j in range(min(k, i + 1), 0, -1):
                sums[j] = reduce(sums[j] + reduce(sums[j - 1] * x[:, i]))
        return sums[k]

    rank = sum(1 for j in range(k + 1) if j <= h and k - j <= h)
    return HighRank(f"elementary symmetric {k} of {2 * h}", f, 2 * h, h, rank)


def complete_homogeneous(h: int, k: int) -> HighRank:
    """The sum of all monomials of degree k in 2h variables: rank k + 1."""

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        sums = [torch.ones_like(x[:, 0])] + [torch.zeros_like(x[:, 0]) for _ in range(k)]
        for i in range(2 * h):
            for j in range(1, k + 1):
                sums[j] = reduce(sums[j] + reduce(sums[j - 1] * x[:, i]))
        return sums[k]

    return HighRank(f"complete homogeneous {k} of {2 * h}", f, 2 * h, h, k + 1)


def chebyshev_inner(h: int, k: int, scale: int = 1) -> HighRank:
    r"""$T_k(a \cdot b / s)$: the sum of the ranks of its powers $(a \cdot b)^q$, q = k, k - 2, ...

    Computed as $s^k T_k$, which has integer coefficients. The rank is
    $\sum_q \binom{h+q-1}{q}$, because powers of different degrees do not share monomials.

    Args:
        h: Variables on each side.
        k: Degree of the polynomial; the function has degree 2k.
        scale: s.

    Example:
        >>> chebyshev_inner(4, 3).rank
        24
    """
    require(k >= 1, "chebyshev_inner.k", "be at least 1", k)
    require(scale >= 1, "chebyshev_inner.scale", "be at least 1", scale)

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        z = reduce(reduce(x[:, :h] * x[:, h:]).sum(1))
        before, now = torch.ones_like(z), z
        for _ in range(k - 1):
            before, now = now, reduce(2 * reduce(z * now) - scale**2 * before)
        return now

    rank = sum(math.comb(h + q - 1, q) for q in range(k, -1, -2))
    return HighRank(f"Chebyshev {k} of a.b in {2 * h} variables", f, 2 * h, h, rank)


def chebyshev(k: int) -> HighRank:
    r"""$T_k((a + b)/2)$ of two scalars in [-1, 1]: rank k + 1.

    Under the arcsine distribution of its argument, no polynomial of degree below k approximates it
    better than the zero function: a certified separation of degrees.
    """

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        z = x.sum(1) / 2
        before, now = torch.ones_like(z), z
        for _ in range(k - 1):
            before, now = now, 2 * z * now - before
        return now if k else before

    return HighRank(f"Chebyshev {k}", f, 2, 1, k + 1, polynomial=False)


def largest_product(h: int) -> HighRank:
    r"""$\max_i a_i b_i$: its rank is unknown, but large because of kinks between the sides."""
    name = f"largest of {h} products"
    return HighRank(
        name, lambda x, r: (x[:, :h] * x[:, h:]).amax(1), 2 * h, h, None, polynomial=False
    )


def median(h: int) -> HighRank:
    """The lower median of 2h numbers; its rank is unknown."""
    return HighRank(
        f"median of {2 * h}", lambda x, r: x.median(1).values, 2 * h, h, None, polynomial=False
    )


def sorting(h: int, place: int) -> HighRank:
    """The number at index `place` after sorting; its rank is unknown."""
    name = f"sorted, place {place}"
    return HighRank(
        name, lambda x, r: x.sort(1).values[:, place], 2 * h, h, None, polynomial=False
    )


def random_smooth(h: int, waves: int, seed: int = 0) -> HighRank:
    r"""A sum of cosines $\cos(w \cdot x + \phi)$: rank 2 for each, in general position."""
    rng = torch.Generator().manual_seed(seed)
    w = torch.randn(waves, 2 * h, generator=rng, dtype=torch.float64)
    phase = 2 * math.pi * torch.rand(waves, generator=rng, dtype=torch.float64)

    def f(x: Tensor, reduce: Reduce) -> Tensor:
        return (x @ w.to(x.dtype).T + phase.to(x.dtype)).cos().sum(1)

    return HighRank(f"{waves} waves", f, 2 * h, h, 2 * waves, polynomial=False)
