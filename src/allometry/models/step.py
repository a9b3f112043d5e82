"""One more token through a decoder that remembers: the arithmetic of its blocks in fewer calls.

At sizes that fit a laptop a token costs less than the calls that compute it. Here the three maps
into the heads are one, keys and values are written where they stay, and no module is called. What
comes out is what `Transformer.forward` gives, up to rounding.

Letters: b batch, d width, h heads, m head size, r hidden size, V vocabulary, t slots remembered.
"""

from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from allometry.models.block import Block
from allometry.models.cache import Cache
from allometry.models.linear import NARROW
from allometry.models.positions import indices, rotate

if TYPE_CHECKING:
    from allometry.models.transformer import Transformer


@final
class _Weights(NamedTuple):
    """A block's weights as bare tensors, queries, keys and values in one.

    Bare, because a module looks a parameter up by name each time it is asked for one.
    """

    first_gain: Tensor
    first_shift: Tensor | None
    into: Float[Tensor, "3hm d"]
    into_bias: Float[Tensor, " 3hm"] | None
    output: Float[Tensor, "d hm"]
    output_bias: Tensor | None
    second_gain: Tensor
    second_shift: Tensor | None
    inner: Float[Tensor, "r d"]
    inner_bias: Tensor | None
    outer: Float[Tensor, "d r"]
    outer_bias: Tensor | None


@final
class Step:
    """One token through `model`, for every row of a batch.

    Args:
        model: A decoder for which `applies` holds. Weights are taken as they are now.
    """

    def __init__(self, model: "Transformer") -> None:
        self.model = model
        first = cast("Block", model.blocks[0])
        assert first.attention is not None
        assert first.feed_forward is not None
        assert first.attention_norm is not None
        self.heads, self.size = first.attention.heads, first.attention.size
        self.scale, self.eps = first.attention.scale, first.attention_norm.eps
        self.activation = first.feed_forward.activation
        self.weights = [_bare(cast("Block", block)) for block in model.blocks]
        self.weights *= model.depth if model.shared else 1
        self.table = model.table
        self.readout, self.readout_bias = model.readout, model.readout_bias
        if model.tied:
            self.readout = model.table
        self.added = model.position_buffer
        if model.position_table is not None:
            self.added = model.position_table

    def __call__(
        self, tokens: Int[Tensor, "b 1"], cache: Cache, start: int
    ) -> Float[Tensor, "b 1 V"]:
        """Logits after `tokens`, which `cache` has read as its slot number `start`."""
        model, added = self.model, self.added
        assert self.table is not None
        assert self.readout is not None
        x = self.table[tokens[:, 0]]
        turn, mask = None, None
        place: Tensor | None = None
        if cache.padding is not None:
            place = indices(1, start, cache.padding, tokens.device)
            mask = ~cache.padding[:, None, None, :]
        if added is not None and model.positions == "rotary":
            place = indices(1, start, None, tokens.device) if place is None else place
            turn = added[:, place][:, :, None]
        elif added is not None:
            x = x + (added[start] if place is None else added[place[:, 0]])
        for layer, w in enumerate(self.weights):
            x = self._block(x, w, mask, turn, cache, layer)
        x = x if model.final_norm is None else model.final_norm(x)
        x = F.linear(x, self.readout, self.readout_bias)
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
        b, size = x.shape[0], (x.shape[1],)
        y = torch.layer_norm(x, size, w.first_gain, w.first_shift, self.eps)
        y = F.linear(y, w.into, w.into_bias).view(b, 3, self.heads, 1, self.size)
        if turn is None:
            q = y[:, 0]
            k, v = cache.write(layer, y[:, 1:].transpose(0, 1))
        else:
            q, k, v = y.unbind(1)
            q = rotate(q, turn)
            k, v = cache.extend(layer, rotate(k, turn), v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        x = F.linear(y.reshape(b, -1), w.output, w.output_bias).add_(x)
        y = torch.layer_norm(x, size, w.second_gain, w.second_shift, self.eps)
        y = self.activation(F.linear(y, w.inner, w.inner_bias))
        return F.linear(y, w.outer, w.outer_bias).add_(x)


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


def _bare(block: Block) -> _Weights:
    attention, feed_forward = block.attention, block.feed_forward
    first, second = block.attention_norm, block.feed_forward_norm
    assert attention is not None
    assert feed_forward is not None
    assert first is not None
    assert second is not None
    into = torch.cat([attention.query, attention.key, attention.value])
    biases = (attention.query_bias, attention.key_bias, attention.value_bias)
    into_bias = None
    if any(bias is not None for bias in biases):
        zero = into.new_zeros(attention.heads * attention.size)
        into_bias = torch.cat([zero if bias is None else bias for bias in biases])
    return _Weights(
        *(first.weight, first.bias, into, into_bias),
        *(attention.output, attention.output_bias, second.weight, second.bias),
        *(feed_forward.inner, feed_forward.inner_bias),
        *(feed_forward.outer, feed_forward.outer_bias),
    )
