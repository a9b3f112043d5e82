"""Pairs of rows, a block at a time: what needs all n x m pairs without n x m memory.

A block is about 2,000 x 2,000 numbers, so that memory stays near 100 MB whatever n is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 2048
Kernel = Callable[[Tensor, Tensor], Tensor]


def spans(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices that cut `range(n)` into blocks."""
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def centred(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> tuple[Tensor, Tensor]:
    """Both sets less the mean of the first: distances stay, and lose fewer digits."""
    mean = x.mean(0)
    return x - mean, y - mean


def squared_distances(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""$\|a_i - b_j\|^2$ by one product of matrices; rounded up to 0 where it would be less."""
    out = torch.addmm((b * b).sum(1)[None, :], a, b.T, alpha=-2)
    return out.add_((a * a).sum(1)[:, None]).clamp_(min=0)


def nearest(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int = 1, *, itself: bool = False
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Distances and indices of the k rows of y nearest to each row of x.

    Args:
        x: Whose neighbours.
        y: Among which.
        k: How many.
        itself: x and y are one set, and a row is not its own neighbour.
    """
    x, y = centred(x, y)
    columns = y.T.contiguous()
    norms = (y * y).sum(1)
    distances, indices = [], []
    for rows in spans(len(x), max(1, BLOCK * BLOCK // max(1, len(y)))):
        a = x[rows]
        block = torch.addmm(norms[None, :], a, columns, alpha=-2)
        if itself:
            block[torch.arange(len(a)), torch.arange(rows.start, rows.stop)] = torch.inf
        if k == 1:
            values, where = block.min(1, keepdim=True)
        else:
            values, where = block.topk(k, dim=1, largest=False)
        distances.append((values + (a * a).sum(1)[:, None]).clamp_(min=0).sqrt_())
        indices.append(where)
    return torch.cat(distances), torch.cat(indices)


@final
@dataclass(frozen=True)
class PairSums:
    r"""What the kernel's matrix between two sets comes to.

    Args:
        rows: Sum over each row, in float64.
        columns: Sum over each column.
        squares: Sum of squares of all entries.
        diagonal: Sum of $k(x_i, x_i)$, which is in none of the others; 0 between two sets.
    """

    rows: Float[Tensor, " n"]
    columns: Float[Tensor, " m"]
    squares: float
    diagonal: float = 0.0


def pair_sums(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], kernel: Kernel) -> PairSums:
    """Sums of $k(x_i, y_j)$ over rows and columns."""
    rows = torch.zeros(len(x), dtype=torch.float64)
    columns = torch.zeros(len(y), dtype=torch.float64)
    squares = 0.0
    for i in spans(len(x)):
        for j in spans(len(y)):
            block = kernel(x[i], y[j])
            rows[i] += block.sum(1)
            columns[j] += block.sum(0)
            squares += _squares(block)
    return PairSums(rows, columns, squares)


def self_sums(x: Float[Tensor, "n d"], kernel: Kernel) -> PairSums:
    r"""Sums of $k(x_i, x_j)$ over $j \ne i$; each pair is computed once."""
    rows = torch.zeros(len(x), dtype=torch.float64)
    squares = diagonal = 0.0
    blocks = list(spans(len(x)))
    for p, i in enumerate(blocks):
        for j in blocks[p:]:
            block = kernel(x[i], x[j])
            if i == j:
                diagonal += float(block.diagonal().sum())
                block.fill_diagonal_(0)
                rows[i] += block.sum(1)
                squares += _squares(block)
            else:
                rows[i] += block.sum(1)
                rows[j] += block.sum(0)
                squares += 2 * _squares(block)
    return PairSums(rows, rows, squares, diagonal)


def _squares(block: Float[Tensor, "n m"]) -> float:
    flat = block.reshape(-1)
    return float(flat @ flat)
