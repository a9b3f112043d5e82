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

from allometry.models.narrow_linear import NARROW
from allometry.models.transformer.block import Block
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.positions import indices, rotate

if TYPE_CHECKING:
    from allometry.models.transformer.model import Transformer


@final
class _Weights(NamedTuple):
    """A block's weights as bare tensors, turned to multiply from the right.

    Bare, because a module looks a parameter up by name each time it is asked for one. Queries,
    keys and values of a head stand beside one another, queries with the scale of the scores.
    """

    first_gain: Tensor
    first_shift: Tensor | None
    into: Float[Tensor, "d h3m"]
    into_bias: Float[Tensor, " h3m"]
    output: Float[Tensor, "hm d"]
    output_bias: Float[Tensor, " d"]
    second_gain: Tensor
    second_shift: Tensor | None
    inner: Float[Tensor, "d r"]
    inner_bias: Float[Tensor, " r"]
    outer: Float[Tensor, "r d"]
    outer_bias: Float[Tensor, " d"]


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
        self.eps = first.attention_norm.eps
        self.activation = first.feed_forward.activation
        self.weights = [_bare(cast("Block", block)) for block in model.blocks]
        self.weights *= model.depth if model.shared else 1
        self.table = model.table
        self.readout, self.readout_bias = model.readout, model.readout_bias
        if model.tied:
            self.readout = model.table
        last = model.final_norm
        self.final = None if last is None else (last.weight, last.bias, last.eps)
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
        x = F.embedding(tokens.view(-1), self.table)
        turn, mask = None, None
        place: Tensor | None = None
        if cache.padding is not None:
            place = indices(1, start, cache.padding, tokens.device)
            mask = cache.padding[:, None, :]
        if added is not None and model.positions == "rotary":
            place = indices(1, start, None, tokens.device) if place is None else place
            turn = added[:, place][:, :, None]
        elif added is not None:
            x = x + (added[start] if place is None else added[place[:, 0]])
        for w, new, keys, values in zip(self.weights, *cache.one_more(), strict=True):
            x = self._block(x, w, new, keys, values, mask, turn)
        if self.final is not None:
            x = torch.layer_norm(x, (x.shape[1],), *self.final)
        x = F.linear(x, self.readout, self.readout_bias)
        return (x if model.readout_scale == 1 else model.readout_scale * x)[:, None]

    def _block(
        self,
        x: Float[Tensor, "b d"],
        w: _Weights,
        new: Float[Tensor, "bh 2 m"],
        keys: Float[Tensor, "bh m t"],
        values: Float[Tensor, "bh t m"],
        mask: Bool[Tensor, "b 1 t"] | None,
        turn: Tensor | None,
    ) -> Float[Tensor, "b d"]:
        b, size = x.shape[0], (x.shape[1],)
        y = torch.layer_norm(x, size, w.first_gain, w.first_shift, self.eps)
        y = torch.addmm(w.into_bias, y, w.into).view(-1, 3, self.size)
        if turn is not None:
            y = self._turned(y, turn)
        new.copy_(y.narrow(1, 1, 2))
        # Plain products: the fused kernel, made for many queries, reads memory more slowly.
        y = torch.bmm(y.narrow(1, 0, 1), keys)
        if mask is not None:
            y.view(b, self.heads, -1).masked_fill_(mask, -torch.inf)
        y = torch.bmm(torch.softmax(y, -1), values).view(b, -1)
        x = torch.addmm(w.output_bias, y, w.output).add_(x)
        y = torch.layer_norm(x, size, w.second_gain, w.second_shift, self.eps)
        y = self.activation(torch.addmm(w.inner_bias, y, w.inner))
        return torch.addmm(w.outer_bias, y, w.outer).add_(x)

    def _turned(self, y: Float[Tensor, "bh 3 m"], turn: Tensor) -> Float[Tensor, "bh 3 m"]:
        q, k, v = y.view(-1, self.heads, 3, 1, self.size).unbind(2)
        return torch.stack([rotate(q, turn), rotate(k, turn), v], 2).view(-1, 3, self.size)


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
    h, m, d = attention.heads, attention.size, attention.query.shape[1]
    ways = (attention.query * attention.scale, attention.key, attention.value)
    into = torch.stack([way.view(h, m, d) for way in ways], 1).reshape(3 * h * m, d)
    zero = into.new_zeros(h * m)
    q, k, v = (
        zero if bias is None else bias
        for bias in (attention.query_bias, attention.key_bias, attention.value_bias)
    )
    into_bias = torch.stack([way.view(h, m) for way in (q * attention.scale, k, v)], 1)

    def shift(bias: Tensor | None, size: int) -> Tensor:
        return into.new_zeros(size) if bias is None else bias

    return _Weights(
        *(first.weight, first.bias, into.t().contiguous(), into_bias.view(-1)),
        *(attention.output.t(), shift(attention.output_bias, d), second.weight, second.bias),
        feed_forward.inner.t().contiguous(),
        shift(feed_forward.inner_bias, len(feed_forward.inner)),
        *(feed_forward.outer.t(), shift(feed_forward.outer_bias, d)),
    )
