r"""Sums of KID's cubic kernel, $(a^\top b/d + 1)^3$, with few passes over memory.

With $a' = (a/\sqrt d, 1)$ the kernel is $(a'^\top b')^3$, so a block costs one product, one square
and one dot product, all in the CPU cache.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_ROWS = 256


def cubic_discrepancies(
    xs: Sequence[Float[Tensor, "n d"]], ys: Sequence[Float[Tensor, "m d"]]
) -> Float[Tensor, "r c"]:
    """Unbiased squared discrepancy of each of `xs` from each of `ys` with the cubic kernel."""
    a, b = [_lifted(x) for x in xs], [_lifted(y) for y in ys]
    n, m = len(xs[0]), len(ys[0])
    xx = torch.tensor([_within(s) / (n * (n - 1)) for s in a], dtype=torch.float64)
    yy = torch.tensor([_within(s) / (m * (m - 1)) for s in b], dtype=torch.float64)
    xy = [[_between(s, t) / (n * m) for t in b] for s in a]
    return xx[:, None] + yy[None, :] - 2 * torch.tensor(xy, dtype=torch.float64)


def _lifted(x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
    return torch.cat([x / x.shape[1] ** 0.5, torch.ones_like(x[:, :1])], 1)


def _between(a: Float[Tensor, "n e"], b: Float[Tensor, "m e"]) -> float:
    columns = b.T
    inner = a.new_empty(min(_ROWS, len(a)), len(b))
    square = torch.empty_like(inner)
    total = 0.0
    for start in range(0, len(a), _ROWS):
        rows = a[start : start + _ROWS]
        k, q = inner[: len(rows)], square[: len(rows)]
        torch.mm(rows, columns, out=k)
        torch.mul(k, k, out=q)
        total += float(q.view(-1) @ k.view(-1))
    return total


def _within(a: Float[Tensor, "n e"]) -> float:
    """Sum over pairs of different rows; blocks below the diagonal mirror those above."""
    total = 0.0
    for start in range(0, len(a), _ROWS):
        rows, rest = a[start : start + _ROWS], a[start + _ROWS :]
        total += _between(rows, rows)
        total += 2 * _between(rows, rest) if len(rest) else 0.0
    own = (a.double() ** 2).sum(1)
    return total - float((own**3).sum())
