"""One more token through a decoder that remembers: the arithmetic of its blocks in fewer calls.

At sizes that fit a laptop a token costs less than the calls that compute it. Here the three maps
into the heads are one, keys and values are written where they stay, and no module is called. What
comes out is what `Transformer.forward` gives, up to rounding.

Letters: b batch, d width, h heads, m head size, r hidden size, V vocabulary, t slots remembered.
"""

from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry.models.block import Block
from allometry.models.cache import Cache
from allometry.models.linear import NARROW
from allometry.models.positions import indices, rotate

if TYPE_CHECKING:
    from allometry.models.transformer import Transformer


@final
class _Weights(NamedTuple):
    """A block's weights, queries, keys and values in one."""

    block: Block
    into: Float[Tensor, "3hm d"]
    into_bias: Float[Tensor, " 3hm"] | None


@final
class Step:
    """One token through `model`, for every row of a batch.

    Args:
        model: A decoder for which `applies` holds. Weights are taken as they are now.
    """

    def __init__(self, model: "Transformer") -> None:
        self.model = model
        self.weights = [_joined(cast("Block", block)) for block in model.blocks]
        self.weights *= model.depth if model.shared else 1

    def __call__(
        self, tokens: Int[Tensor, "b 1"], cache: Cache, start: int
    ) -> Float[Tensor, "b 1 V"]:
        """Logits after `tokens`, which `cache` has read as its slot number `start`."""
        model = self.model
        assert model.table is not None
        place = indices(1, start, cache.padding, tokens.device)
        x = model.table[tokens[:, 0]]
        turn: Tensor | None = None
        if model.positions == "rotary":
            assert model.position_buffer is not None
            turn = model.position_buffer[:, place][:, :, None]
        elif model.positions is not None:
            added = model.position_buffer if model.position_table is None else model.position_table
            assert added is not None
            x = x + added[place[:, 0]]
        mask = None if cache.padding is None else ~cache.padding[:, None, None, :]
        for layer, w in enumerate(self.weights):
            x = self._block(x, w, mask, turn, cache, layer)
        x = x if model.final_norm is None else model.final_norm(x)
        weight = model.table if model.tied else model.readout
        assert weight is not None
        x = F.linear(x, weight, model.readout_bias)
        return (x if model.readout_scale == 1 else model.readout_scale * x)[:, None]

    def _block(
        self,
        x: Float[Tensor, "b d"],
        w: _Weights,
        mask: Bool[Tensor, "b 1 1 t"] | None,
        turn: Tensor | None,
        cache: Cache,
        layer: int,
    ) -> Float[Tensor, "b d"]:
        attention, feed_forward = w.block.attention, w.block.feed_forward
        assert attention is not None
        assert feed_forward is not None
        b, size = x.shape[0], (x.shape[1],)
        norm = cast("nn.LayerNorm", w.block.attention_norm)
        y = F.layer_norm(x, size, norm.weight, norm.bias, norm.eps)
        y = F.linear(y, w.into, w.into_bias).view(b, 3, attention.heads, 1, attention.size)
        q, k, v = y.unbind(1)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        k, v = cache.extend(layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attention.scale)
        y = y.view(b, -1) if y.is_contiguous() else y.reshape(b, -1)
        x = F.linear(y, attention.output, attention.output_bias).add_(x)
        norm = cast("nn.LayerNorm", w.block.feed_forward_norm)
        y = F.layer_norm(x, size, norm.weight, norm.bias, norm.eps)
        y = feed_forward.activation(F.linear(y, feed_forward.inner, feed_forward.inner_bias))
        return F.linear(y, feed_forward.outer, feed_forward.outer_bias).add_(x)


def applies(model: "Transformer") -> bool:
    """Whether `Step` computes what the model does.

    It does for decoders of tokens with softmax attention and a norm before each part; not where
    someone listens to the modules inside by hooks.
    """
    if model.kind != "decoder" or model.table is None or model.width <= NARROW:
        return False
    if model.readout is None and not model.tied:
        return False
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return not hooked and all(_plain(cast("Block", block)) for block in model.blocks)


def _plain(block: Block) -> bool:
    attention, whole = block.attention, block.feed_forward is not None
    if attention is None or not whole or block.cross is not None:
        return False
    return block.norm == "pre" and block.skip and not attention.hard and attention.sight is None


def _joined(block: Block) -> _Weights:
    attention = block.attention
    assert attention is not None
    into = torch.cat([attention.query, attention.key, attention.value])
    biases = (attention.query_bias, attention.key_bias, attention.value_bias)
    if all(bias is None for bias in biases):
        return _Weights(block, into, None)
    zero = into.new_zeros(attention.heads * attention.size)
    return _Weights(block, into, torch.cat([zero if b is None else b for b in biases]))
