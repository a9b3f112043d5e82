"""Which way a head looks: at everything, at what came before, or at what comes after."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

SIGHTS = ("all", "past", "before", "after")
"""`past` is what came before and the slot itself; `before` and `after` leave the slot out."""


def seen(
    sight: Sequence[str],
    n: int,
    mask: Bool[Tensor, "#b 1 #n n_keys"] | None,
    causal: bool,
    device: torch.device,
) -> Bool[Tensor, "#b h n n_keys"]:
    """The mask of heads with a sight of their own, within what all heads may see.

    A slot that would see nothing sees itself, so that no row of scores is empty.

    Args:
        sight: One of `SIGHTS` for each head.
        n: Slots.
        mask: What all heads may see; `None` for everything.
        causal: Whether heads see nothing that comes after.
        device: Where the result lives.
    """
    full = torch.ones(n, n, dtype=torch.bool, device=device)
    ways = {"all": full, "past": full.tril(), "before": full.tril(-1), "after": full.triu(1)}
    allowed = torch.stack([ways[name] for name in sight])[None]
    allowed = allowed & full.tril() if causal else allowed
    allowed = allowed if mask is None else allowed & mask
    itself = full.tril().triu()
    return allowed | (itself & ~allowed.any(-1, keepdim=True))
