"""Which blocks have the plain architecture that the fast paths compute."""

from typing import TYPE_CHECKING

from torch import nn

from allometry.models.transformer.experts import MixtureOfExperts

if TYPE_CHECKING:
    from allometry.models.transformer.block import Block


def plain_block(block: "Block") -> bool:
    """Whether a block is softmax attention and one dense layer, each after a LayerNorm."""
    attention = block.attention
    if attention is None or block.feed_forward is None or block.cross is not None:
        return False
    softmax = not attention.hard and attention.head_masks is None
    ungrouped = attention.key_value_heads == attention.heads and attention.query_norm is None
    layer_norm = isinstance(block.attention_norm, nn.LayerNorm)
    mixture = isinstance(block.feed_forward, MixtureOfExperts)
    dense = not mixture and block.feed_forward.gate is None
    if not (ungrouped and layer_norm and dense):
        return False
    return block.norm == "pre" and block.skip and softmax
