"""One more token through a decoder with a cache: the same arithmetic in fewer calls.

For small models the calls cost more than the arithmetic. Here the projections to queries, keys and
values are one product, keys and values are written in place, and no module is called. The result
equals that of `Transformer.forward` up to rounding.

Shapes: b batch, d width, h heads, m head size, r hidden size, V vocabulary, t cached tokens.
"""

from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry.models.transformer.attention import NARROW
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.fused_token import FusedStep, fused_step
from allometry.models.transformer.plain_blocks import plain_block
from allometry.models.transformer.positions import indices, rotate

if TYPE_CHECKING:
    from allometry.models.transformer.model import Block, Transformer


@final
class _Weights(NamedTuple):
    """Weights of a block as plain tensors, transposed to multiply from the right.

    Plain tensors avoid the lookup of a parameter by name at each use. Queries, keys and values of
    a head are adjacent; queries include the scale of the scores.
    """

    first_gain: Tensor
    first_shift: Tensor | None
    qkv: Float[Tensor, "d h3m"]
    qkv_bias: Float[Tensor, " h3m"]
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
    """One decoding step of `model` for every row of a batch.

    Args:
        model: A decoder for which `applies` is true. Later changes of its weights are ignored.
    """

    def __init__(self, model: "Transformer") -> None:
        self.model = model
        first = cast("Block", model.blocks[0])
        assert first.attention is not None
        assert first.feed_forward is not None
        assert isinstance(first.attention_norm, nn.LayerNorm)
        self.heads, self.size = first.attention.heads, first.attention.size
        self.eps = first.attention_norm.eps
        self.activation = first.feed_forward.activation
        self.weights = [_weights(cast("Block", block)) for block in model.blocks]
        self.weights *= model.depth // len(model.blocks)
        self.table = model.table
        self.readout, self.readout_bias = model.readout, model.readout_bias
        if model.tied:
            self.readout = model.table
        last = model.final_norm
        assert last is None or isinstance(last, nn.LayerNorm)
        self.final = None if last is None else (last.weight, last.bias, last.eps)
        self.added = model.position_buffer
        if model.position_table is not None:
            self.added = model.position_table

    def __call__(
        self, tokens: Int[Tensor, "b 1"], cache: Cache, start: int
    ) -> Float[Tensor, "b 1 V"]:
        """Logits after `tokens`, which `cache` has read at index `start`."""
        model, added = self.model, self.added
        assert self.table is not None
        assert self.readout is not None
        x = F.embedding(tokens.view(-1), self.table)
        rotation, mask = None, None
        place: Tensor | None = None
        if cache.padding is not None:
            place = indices(1, start, cache.padding, tokens.device)
            mask = cache.padding[:, None, :]
        if added is not None and model.positions == "rotary":
            place = indices(1, start, None, tokens.device) if place is None else place
            rotation = added[:, place][:, :, None]
        elif added is not None:
            x = x + (added[start] if place is None else added[place[:, 0]])
        for w, new, keys, values in zip(self.weights, *cache.append_one(), strict=True):
            x = self._block(x, w, new, keys, values, mask, rotation)
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
        rotation: Tensor | None,
    ) -> Float[Tensor, "b d"]:
        b, size = x.shape[0], (x.shape[1],)
        y = torch.layer_norm(x, size, w.first_gain, w.first_shift, self.eps)
        y = torch.addmm(w.qkv_bias, y, w.qkv).view(-1, 3, self.size)
        if rotation is not None:
            y = self._rotated(y, rotation)
        new.copy_(y.narrow(1, 1, 2))
        # Plain products: the fused kernel is made for many queries and reads memory more slowly.
        y = torch.bmm(y.narrow(1, 0, 1), keys)
        if mask is not None:
            y.view(b, self.heads, -1).masked_fill_(mask, -torch.inf)
        y = torch.bmm(torch.softmax(y, -1), values).view(b, -1)
        x = torch.addmm(w.output_bias, y, w.output).add_(x)
        y = torch.layer_norm(x, size, w.second_gain, w.second_shift, self.eps)
        y = self.activation(torch.addmm(w.inner_bias, y, w.inner))
        return torch.addmm(w.outer_bias, y, w.outer).add_(x)

    def _rotated(self, y: Float[Tensor, "bh 3 m"], rotation: Tensor) -> Float[Tensor, "bh 3 m"]:
        q, k, v = y.view(-1, self.heads, 3, 1, self.size).unbind(2)
        q, k = rotate(q, rotation), rotate(k, rotation)
        return torch.stack([q, k, v], 2).view(-1, 3, self.size)


def step_of(model: "Transformer", cache: Cache) -> Step | FusedStep | None:
    """The step of `cache`, built at its first use; `None` with gradients or an unfit model."""
    if torch.is_grad_enabled() or cache.without_step:
        return None
    if cache.step is None:
        cache.step = fused_step(model) or (Step(model) if applies(model) else None)
        cache.without_step = cache.step is None
    return cache.step


def applies(model: "Transformer") -> bool:
    """Whether `Step` computes what the model does.

    It does for decoders of token ids with softmax attention, LayerNorm before each part and plain
    feed-forward layers, without forward hooks on any module.
    """
    if model.kind != "decoder" or model.table is None or model.width <= NARROW:
        return False
    if model.readout is None and not model.tied:
        return False
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return not hooked and all(plain_block(cast("Block", block)) for block in model.blocks)


def _weights(block: "Block") -> _Weights:
    attention, feed_forward = block.attention, block.feed_forward
    first, second = block.attention_norm, block.feed_forward_norm
    assert attention is not None
    assert feed_forward is not None
    assert isinstance(first, nn.LayerNorm)
    assert isinstance(second, nn.LayerNorm)
    h, m, d = attention.heads, attention.size, attention.query.shape[1]

    def or_zeros(bias: Tensor | None, size: int) -> Tensor:
        return attention.query.new_zeros(size) if bias is None else bias

    weights = (attention.query * attention.scale, attention.key, attention.value)
    qkv = torch.stack([w.view(h, m, d) for w in weights], 1).reshape(3 * h * m, d)
    q, k, v = (
        or_zeros(bias, h * m)
        for bias in (attention.query_bias, attention.key_bias, attention.value_bias)
    )
    qkv_bias = torch.stack([b.view(h, m) for b in (q * attention.scale, k, v)], 1)
    return _Weights(
        first_gain=first.weight,
        first_shift=first.bias,
        qkv=qkv.t().contiguous(),
        qkv_bias=qkv_bias.view(-1),
        output=attention.output.t(),
        output_bias=or_zeros(attention.output_bias, d),
        second_gain=second.weight,
        second_shift=second.bias,
        inner=feed_forward.inner.t().contiguous(),
        inner_bias=or_zeros(feed_forward.inner_bias, len(feed_forward.inner)),
        outer=feed_forward.outer.t(),
        outer_bias=or_zeros(feed_forward.outer_bias, d),
    )
