r"""The stages of the proof; each is a list of layers of the modified class.

With $\delta = 2^{-m}$, $u = (1, \delta^{-1}, \dots, \delta^{-d+1})$, column j of a grid sequence
has the id $u^T X_j$, one of $\delta^{-d}$ (with positions, of n times as many).

Letters: b batch, d size of a token, n tokens, k codes.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from allometry.construct.modified_layers import Layer, Phi, RankOneFeedForward, Shift

RAMP = 2.0**-20
"""Default width of a ramp as a share of a cell."""


def unit(d: int, i: int) -> Float[Tensor, " d"]:
    """The i-th unit vector."""
    return torch.eye(d, dtype=torch.float64)[i]


def reader(d: int, delta: float) -> Float[Tensor, " d"]:
    r"""$u = (1, \delta^{-1}, \dots, \delta^{-d+1})$, whose product with a column is its id."""
    return delta ** -torch.arange(d, dtype=torch.float64)


def encoding(d: int, n: int) -> Float[Tensor, "d n"]:
    """The positions E, with 2j in all rows of column j.

    Differs from the paper: it has j, so that an entry of exactly 1 falls into the next column.
    """
    return (2.0 * torch.arange(n, dtype=torch.float64)).expand(d, n).clone()


def clamp(d: int, low: float, high: float) -> list[Layer]:
    """Layers that clamp every entry to [low, high]; d layers.

    Args:
        d: Size of a token.
        low: Smallest entry.
        high: Largest entry.
    """
    phi = Phi(low, high, left=(-1.0, low), right=(-1.0, high))
    return [RankOneFeedForward(unit(d, i), 0.0, phi, unit(d, i)) for i in range(d)]


def banish(d: int, low: float, high: float, far: float, ramp: float) -> list[Layer]:
    """Layers that map entries outside [low, high] to `far`, as the paper does; d layers.

    Args:
        d: Size of a token.
        low: Smallest entry that is kept.
        high: Largest entry that is kept.
        far: Value of the other entries.
        ramp: Width of the transition, outside [low, high].
    """
    phi = Phi(low, high, left=(-1.0, far), right=(-1.0, far), ramp=ramp)
    return [RankOneFeedForward(unit(d, i), 0.0, phi, unit(d, i)) for i in range(d)]


def quantise(d: int, delta: float, n: int = 1, ramp: float = RAMP) -> list[Layer]:
    r"""Layers that round every entry down to the grid $\{0, \delta, \dots, 1 - \delta\}$.

    One layer for each row and cell, $d/\delta$ in total, with $\phi(t) = -t$ on $[0, \delta)$ and
    0 elsewhere; the top cell includes entries up to 3/2. Cells are processed from the top down: a
    rounded entry is dyadic and passes the lower cells without error, and before that it is never
    above one.

    Args:
        d: Size of a token.
        delta: Size of a cell, a power of 1/2.
        n: With positions, the number of tokens: cells are then repeated at 0, 2, ..., 2n - 2.
        ramp: Width of a jump's ramp as a share of delta.
    """
    layers: list[Layer] = []
    cells = round(1 / delta)
    for i in range(d):
        for column in reversed(range(n)):
            for cell in reversed(range(cells)):
                high = delta + (0.5 if cell == cells - 1 else 0.0)
                phi = Phi(0.0, high, middle=(-1.0, 0.0), ramp=ramp * delta)
                layers.append(
                    RankOneFeedForward(unit(d, i), 2.0 * column + cell * delta, phi, unit(d, i))
                )
    return layers


def ids(d: int, delta: float, n: int | None = None) -> list[float]:
    """The possible ids of a quantised column in ascending order.

    Args:
        d: Size of a token.
        delta: Size of a cell.
        n: Number of tokens, with positions.
    """
    step = float(reader(d, delta).sum())
    columns = range(1 if n is None else n)
    return [2.0 * j * step + k * delta for j in columns for k in range(round(delta**-d))]


def contextual(d: int, delta: float, n: int, positions: bool = False) -> list[Layer]:
    r"""The contextual mapping: a selective shift for each id, ascending, then a global shift.

    The selective shift of id g adds $\delta^{-d} (\max_k - \min_k) u^T X_k$ to the columns with id
    g and leaves the others unchanged. In turn, each column becomes the largest, by an amount that
    identifies the whole sequence. The global shift then adds $s \max_k u^T X_k$ to all columns.

    Args:
        d: Size of a token.
        delta: Size of a cell.
        n: Number of tokens.
        positions: Whether the encoding was added.

    References:
        `yun2020` Lemma 6 and its proof, appendix B.5.
    """
    u = reader(d, delta)
    every = ids(d, delta, n if positions else None)
    shifts: list[Layer] = [
        Shift(u, g - delta / 2, g + delta / 2, delta**-d, gap=delta) for g in every
    ]
    power = math.ceil(math.log2(largest_id(d, delta, n, positions) / delta))
    return [*shifts, Shift(u, -delta / 2, None, 2.0**power, gap=delta)]


def largest_id(d: int, delta: float, n: int, positions: bool) -> float:
    r"""A bound on $u^T X_j$ after the selective shifts, $\delta^{-nd} \max_X u^T X_j$."""
    last = ids(d, delta, n if positions else None)[-1] + delta
    return last * delta ** (-n * d)


def rescale(d: int, top: float, delta: float, base: float) -> list[Layer]:
    r"""Layers that map first entries, multiples of $\delta$ below `top`, to [base, base + 1].

    Each layer halves as often as possible without losing bits; the last one shifts. Not in the
    paper, which uses real numbers.

    Args:
        d: Size of a token.
        top: The largest first entry.
        delta: The unit of first entries.
        base: Start of the interval; above every value of the target.
    """
    first, bits = unit(d, 0), math.ceil(math.log2(top / delta)) + 1
    left, layers = math.ceil(math.log2(top)), []
    while left > 0:
        k = min(left, max(1, 53 - bits))
        phi = Phi(0.0, 0.0, right=(-(1 - 2.0**-k), 0.0))
        layers.append(RankOneFeedForward(first, 0.0, phi, first))
        left -= k
    none = Phi(0.0, 0.0)
    return [*layers, RankOneFeedForward(first, 0.0, none, 0 * first, bias=base * first)]


def values(
    codes: Float[Tensor, " k"],
    columns: Float[Tensor, "k d"],
    targets: Float[Tensor, "k d"],
    gap: float,
) -> list[Layer]:
    """Layers that map the column with each code to its target; k layers.

    Codes are processed in descending order: replaced columns are below all codes, so only the
    current column is ever above a window, where ReLUs that should cancel would lose digits.

    Args:
        codes: First entries, distinct.
        columns: The columns with these codes.
        targets: Their target values.
        gap: Smallest difference of two codes.

    References:
        `yun2020` Lemma 7.
    """
    first = unit(columns.shape[1], 0)
    phi = Phi(-gap / 4, gap / 4 + gap / 8, middle=(0.0, 1.0), ramp=gap / 8)
    order = codes.argsort(descending=True)
    write = (targets - columns)[order]
    return [
        RankOneFeedForward(first, code, phi, w)
        for code, w in zip(codes[order].tolist(), write, strict=True)
    ]


def count(layers: Sequence[Layer], kind: type) -> int:
    """Number of layers of a kind."""
    return sum(isinstance(layer, kind) for layer in layers)
