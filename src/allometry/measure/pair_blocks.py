"""Computations over all n x m pairs of rows in blocks, without n x m memory.

A block is about 2,000 x 2,000 numbers, so that memory stays near 100 MB for any n.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 2048
Kernel = Callable[[Tensor, Tensor], Tensor]
_COARSE = 16


def spans(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices that cut `range(n)` into blocks."""
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def centred(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> tuple[Tensor, Tensor]:
    """Both sets minus the mean of the first: the same distances with less rounding error."""
    mean = x.mean(0)
    return x - mean, y - mean


def squared_distances(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""$\|a_i - b_j\|^2$ by one matrix product, clamped at 0.

    Both are centred first, because a common offset increases the rounding error.
    """
    a, b = centred(a, b)
    out = torch.addmm((b * b).sum(1)[None, :], a, b.T, alpha=-2)
    return out.add_((a * a).sum(1)[:, None]).clamp_(min=0)


def differences(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""$\|a_i - b_j\|$ in float64 from differences: slower than a product, but exact near 0."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(a.double(), b.double(), compute_mode=mode)


def nearest(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int = 1, *, itself: bool = False
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Distances and indices of the k rows of y nearest to each row of x.

    Candidates come from one product of centred matrices, distances from the differences of the
    given rows. If the rounding error of the product could matter, because rows lie far closer
    together than to the mean, all distances come from differences. Of rows at equal distance any
    may be returned; see `ties.py` for all of them.

    Args:
        x: Query rows.
        y: Rows to search.
        k: Number of neighbours.
        itself: x and y are one set, and a row is not its own neighbour.
    """
    a, b = centred(x, y)
    # In few dimensions neighbours are close and a float32 product can't order them.
    a, b = (a, b) if a.shape[1] > _COARSE else (a.double(), b.double())
    columns, norms = b.T.contiguous(), (b * b).sum(1)
    chosen = []
    for rows in spans(len(a), max(1, BLOCK * BLOCK // max(1, len(b)))):
        block = torch.addmm(norms[None, :], a[rows], columns, alpha=-2)
        chosen.append(_least(block, rows, k, itself)[1])
    index = torch.cat(chosen)
    distance = torch.cat(
        [(x[i, None] - y[index[i]]).double().norm(dim=2) for i in spans(len(x), BLOCK)]
    )
    distance, order = distance.sort(1)
    index = index.gather(1, order)
    eps = torch.finfo(a.dtype).eps
    error = 16 * eps * ((a * a).sum(1).double() + distance[:, -1] ** 2)
    margin = 1e5 if a.dtype == torch.float64 else 1e3
    uncertain = (distance[:, -1] ** 2 <= margin * error).nonzero()[:, 0]
    for some in uncertain.split(max(1, BLOCK * BLOCK // len(y))):
        distance[some], index[some] = _least(differences(x[some], y), some, k, itself)
    return distance.to(x.dtype), index


def _least(
    block: Float[Tensor, "n m"], rows: slice | Int[Tensor, " n"], k: int, itself: bool
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """The k smallest entries of each row and their columns; `rows` are the indices of the rows."""
    if itself:
        own = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        block[torch.arange(len(block)), own] = torch.inf
    if k == 1:
        return block.min(1, keepdim=True)
    return block.topk(k, dim=1, largest=False)


@final
@dataclass(frozen=True)
class PairSums:
    r"""Sums over the kernel matrix between two sets.

    Args:
        rows: Sum over each row, in float64.
        columns: Sum over each column.
        squares: Sum of squares of all entries.
        diagonal: Sum of $k(x_i, x_i)$, excluded from the other sums; 0 between two sets.
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
