"""Hard attention whose query is the same at every slot: a running maximum instead of a table.

Letters: b batch, h heads, n slots, m head size.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def running(
    scores: Float[Tensor, "b h n"],
    v: Float[Tensor, "b h n m"],
    sight: Sequence[str],
) -> Float[Tensor, "b h n m"] | None:
    """What hard attention fetches in time n, or `None` where scores tie along the way.

    With one query for all, slot i looks at the largest score in sight, and that is a maximum
    carried from slot to slot. A head that sees everything fetches the same at each slot; there,
    equal scores share as they do under `hardmax`.

    Args:
        scores: Of the keys.
        v: Values.
        sight: One of `SIGHTS` for each head.
    """
    fetched = torch.empty_like(v)
    for h, way in enumerate(sight):
        s = scores[:, h]
        if way == "all":
            best = (s == s.amax(-1, keepdim=True)).to(v.dtype)
            shared = (best[:, None] @ v[:, h]) / best.sum(-1)[:, None, None]
            fetched[:, h] = shared
            continue
        at = _latest(s.flip(-1) if way == "after" else s)
        if at is None:
            return None
        if way == "after":
            at = s.shape[-1] - 1 - at.flip(-1)
            at = torch.cat([at[:, 1:], at[:, -1:]], 1)  # the last slot sees itself
        elif way == "before":
            at = torch.cat([at[:, :1], at[:, :-1]], 1)  # so does the first
        fetched[:, h] = v[:, h].gather(1, at[..., None].expand(-1, -1, v.shape[-1]))
    return fetched


def _latest(s: Tensor) -> Tensor | None:
    """Where the largest of the first i + 1 scores stands, unless two are equal."""
    most, at = s.cummax(-1)
    return None if (s[:, 1:] == most[:, :-1]).any() else at
