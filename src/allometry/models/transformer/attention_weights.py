"""Attention weights of a running transformer, of self- and cross-attention.

Letters: b batch, h heads, n queries, k keys.
"""

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from allometry.models.transformer.attention import Attention, hardmax, head_mask
from allometry.models.transformer.model import Block, Transformer
from allometry.models.transformer.positions import rotate

Map = Float[Tensor, "b h n k"]


@final
class AttentionWeights(NamedTuple):
    """Weights of queries (rows) on keys (columns), one entry per block."""

    itself: list[Map | None]
    """Self-attention; `None` for a block without it."""
    cross: list[Map]
    """Of an encoder-decoder: attention of the answer to the source."""
    encoder: list[Map]
    """Of an encoder-decoder: self-attention of the encoder."""


@torch.no_grad()
def attention_weights(
    model: Transformer,
    tokens: Int[Tensor, "b n"],
    source: Int[Tensor, "b k"] | None = None,
    *,
    padding: Bool[Tensor, "b n"] | None = None,
    source_padding: Bool[Tensor, "b k"] | None = None,
) -> AttentionWeights:
    """The attention weights of every head, of any transformer.

    Args:
        model: A decoder, an encoder or both.
        tokens: Token ids.
        source: Source of an encoder-decoder.
        padding: True for padding in `tokens`.
        source_padding: The same for `source`.

    Example:
        >>> import torch
        >>> from allometry.models import Transformer
        >>> from allometry.models.transformer.attention_weights import attention_weights
        >>> model = Transformer(vocabulary=8, width=16, depth=2, heads=4, context=6)
        >>> first, second = attention_weights(model, torch.tensor([[1, 2, 3]])).itself
        >>> first[0, 0, 0].tolist()  # the first token sees only itself
        [1.0, 0.0, 0.0]
    """
    inputs: dict[nn.Module, list[tuple[Any, ...]]] = {}

    def keep(part: nn.Module, given: tuple[Any, ...]) -> None:
        inputs.setdefault(part, []).append(given)

    parts = [module for module in model.modules() if isinstance(module, Attention)]
    hooks = [part.register_forward_pre_hook(keep) for part in parts]
    try:
        model(tokens, source, padding=padding, source_padding=source_padding)
    finally:
        for hook in hooks:
            hook.remove()

    def of(part: nn.Module | None) -> Map | None:
        # A shared block runs several times: its inputs are in the order of the layers.
        return _weights(part, *inputs[part].pop(0)[:5]) if isinstance(part, Attention) else None

    layers = [i % len(model.blocks) for i in range(model.depth)]
    blocks = [model.blocks[i] for i in layers]
    made = [(of(b.attention), of(b.cross)) for b in blocks if isinstance(b, Block)]
    encoder = [] if model.encoder is None else [model.encoder[i] for i in layers]
    first = [of(b.attention) for b in encoder if isinstance(b, Block)]
    return AttentionWeights(
        [own for own, _ in made],
        [cross for _, cross in made if cross is not None],
        [own for own in first if own is not None],
    )


def _weights(
    part: Attention,
    x: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    rotation: Tensor | None = None,
) -> Map:
    """The weights that `attend` applies, without its fast kernels."""
    q, (k, _) = part.queries(x), part.keys_values(x if memory is None else memory)
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    k = part.repeated(k)
    if part.head_masks is not None:
        mask = head_mask(part.head_masks, q.shape[2], mask, causal, q.device)
    elif causal:
        full = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
        mask = full.tril()[None, None]
    scores = part.scale * q @ k.mT
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return hardmax(scores) if part.hard else scores.softmax(-1)
