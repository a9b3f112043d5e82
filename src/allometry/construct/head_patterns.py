"""Attention weights of every head of a model.

Letters: b batch, h heads, n positions.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.transformer.attention import attention_mask, hardmax, head_mask
from allometry.models.transformer.model import Block, Transformer


@torch.no_grad()
def attention_maps(
    model: Transformer, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
) -> list[Float[Tensor, "b h n n"] | None]:
    """Attention weights of queries (rows) on keys (columns), for each block.

    A block without attention gives `None`. Only for models without norm and rotary positions, such
    as constructions.

    Args:
        model: A decoder or an encoder.
        tokens: Token ids.
        padding: True for padding tokens.
    """
    supported = model.final_norm is None and model.positions != "rotary"
    require(supported, "model", "have neither norm nor rotary positions", model.positions)
    states = model.states(tokens, padding)
    n = tokens.shape[1]
    mask, causal = attention_mask(n, n, model.kind == "decoder", padding, tokens.device)
    maps: list[Tensor | None] = []
    for layer in range(model.depth):
        block = model.blocks[0 if model.shared else layer]
        assert isinstance(block, Block)
        part = block.attention
        if part is None:
            maps.append(None)
            continue
        x = states[layer]
        q = F.linear(x, part.query, part.query_bias).unflatten(-1, (part.heads, part.size))
        k = F.linear(x, part.key, part.key_bias).unflatten(-1, (part.heads, part.size))
        scores = part.scale * q.transpose(1, 2) @ k.transpose(1, 2).mT
        kinds = part.head_masks or ("all",) * part.heads
        allowed = head_mask(kinds, n, mask, causal, tokens.device)
        scores = scores.masked_fill(~allowed, -torch.inf)
        maps.append(hardmax(scores) if part.hard else scores.softmax(-1))
    return maps
