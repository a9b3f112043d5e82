"""Hard attention whose query is the same at every position, in linear time.

Shapes: b batch, h heads, n positions, m head size.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def running_maximum(
    scores: Float[Tensor, "b h n"],
    v: Float[Tensor, "b h n m"],
    kinds: Sequence[str],
) -> Float[Tensor, "b h n m"] | None:
    """Output of hard attention in time n, or `None` if scores tie in a masked head.

    With a constant query, position i attends to the largest score that its mask allows, which is
    a cumulative maximum. A head without mask has the same output at every position; there, ties
    share equally as under `hardmax`.

    Args:
        scores: Scores of the keys.
        v: Values.
        kinds: One of `HEAD_MASKS` for each head.
    """
    out = torch.empty_like(v)
    for h, kind in enumerate(kinds):
        s = scores[:, h]
        if kind == "all":
            best = (s == s.amax(-1, keepdim=True)).to(v.dtype)
            out[:, h] = (best[:, None] @ v[:, h]) / best.sum(-1)[:, None, None]
            continue
        at = _argmax_so_far(s.flip(-1) if kind == "after" else s)
        if at is None:
            return None
        if kind == "after":
            at = s.shape[-1] - 1 - at.flip(-1)
            at = torch.cat([at[:, 1:], at[:, -1:]], 1)  # the last position attends to itself
        elif kind == "before":
            at = torch.cat([at[:, :1], at[:, :-1]], 1)  # so does the first
        out[:, h] = v[:, h].gather(1, at[..., None].expand(-1, -1, v.shape[-1]))
    return out


def _argmax_so_far(s: Tensor) -> Tensor | None:
    """Index of the largest of the first i + 1 scores; `None` if two of them tie."""
    largest, at = s.cummax(-1)
    return None if (s[:, 1:] == largest[:, :-1]).any() else at
