"""Attention weights of every head of a model.

Letters: b batch, h heads, n positions.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry.models.transformer.attention_weights import attention_weights
from allometry.models.transformer.model import Transformer


def attention_maps(
    model: Transformer, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
) -> list[Float[Tensor, "b h n n"] | None]:
    """Attention weights of queries (rows) on keys (columns), for each block.

    A block without attention gives `None`.

    Args:
        model: A decoder or an encoder.
        tokens: Token ids.
        padding: True for padding tokens.
    """
    return attention_weights(model, tokens, padding=padding).itself
