r"""Embed a construction without norms in an architecture whose LayerNorms can't be left out.

The residual stream gets 32 constant coordinates, $+b$ sixteen times and then $-b$ sixteen times,
and one coordinate that is minus the sum of all others. The mean is then 0 and the variance
$32 b^2 / d'$ up to the share $\|x\|^2 / 32 b^2$, which b makes smaller than the rounding of the
precision. With the gain $\sqrt{32 b^2/d'}$ a LayerNorm is the identity up to rounding.

Sixteen equal constants in a row cancel in sequential sums and in vectorised sums of 4, 8 or 16
lanes, so that no small number is ever added to a large one.

Letters: d width of the construction, d' of the checkpoint, h heads, m head size, r hidden size.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, FeedForward, Transformer

SIGNS = 16
"""Number of coordinates +b, and of coordinates -b."""

BITS = {"float32": 24, "float64": 53}
"""Bits of the mantissa."""


@final
@dataclass(frozen=True)
class Neutral:
    """The layout of the wide residual stream.

    Attributes:
        inner: d.
        heads: h.
        size: Head size in the checkpoint.
        level: b.
        eps: The norm's epsilon.
    """

    inner: int
    heads: int
    size: int
    level: float
    eps: float

    @property
    def width(self) -> int:
        """D'."""
        return self.heads * self.size

    @property
    def gain(self) -> float:
        """The gain with which a norm is the identity."""
        return math.sqrt(2 * SIGNS * self.level**2 / self.width + self.eps)

    @property
    def start(self) -> int:
        """The first coordinate of the construction."""
        return 2 * SIGNS

    def constants(self) -> Float[Tensor, " wide"]:
        """A row of the wide stream with only the constants."""
        row = torch.zeros(self.width, dtype=torch.float64)
        row[:SIGNS], row[SIGNS : 2 * SIGNS] = self.level, -self.level
        return row

    def rows(self, rows: Tensor) -> Float[Tensor, "k wide"]:
        """Rows (k, d) of the stream as wide rows that sum to 0."""
        wide = rows.new_zeros(rows.shape[0], self.width, dtype=torch.float64)
        wide[:, self.start : self.start + self.inner] = rows
        wide[:, self.start + self.inner] = -rows.sum(1)
        return wide

    def reads(self, weight: Tensor) -> Float[Tensor, "k wide"]:
        """A matrix (k, d) that reads the stream as one that reads the wide stream."""
        wide = weight.new_zeros(weight.shape[0], self.width, dtype=torch.float64)
        wide[:, self.start : self.start + self.inner] = weight
        return wide

    def gains(self, constants: bool) -> Float[Tensor, " wide"]:
        """Gains of a norm; `constants` says whether it keeps the constant coordinates."""
        gains = torch.full((self.width,), self.gain, dtype=torch.float64)
        if not constants:
            gains[: 2 * SIGNS] = 0.0
        return gains


def layout(model: Transformer, heads: int, largest: float, precision: str, eps: float) -> Neutral:
    r"""The layout for a construction.

    Args:
        model: The construction.
        heads: Number of heads in the checkpoint.
        largest: Largest $\|x\|^2$ of the residual stream, the balancing coordinate included.
        precision: "float32" or "float64".
        eps: The norm's epsilon.
    """
    needed = model.width + 2 * SIGNS + 1
    size = max(model.head_size, -(-needed // heads))
    size += size % 2
    # 32 b^2 exceeds the largest squared norm by two bits more than the mantissa has.
    level = 2.0 ** math.ceil((BITS[precision] + 2 + math.log2(max(largest, 1.0)) - 5) / 2)
    return Neutral(model.width, heads, size, level, eps)


def largest_square(model: Transformer, samples: list[Tensor]) -> float:
    """Largest squared norm of the residual stream on samples, with the balancing coordinate."""
    largest = 0.0
    # Also the stream between attention and feed-forward layer of each block.
    between: list[Tensor] = []
    parts = [b.feed_forward for b in model.blocks if isinstance(b, Block) and b.feed_forward]
    handles = [
        part.register_forward_pre_hook(lambda _module, inputs: between.append(inputs[0]))
        for part in parts
    ]
    try:
        for tokens in samples:
            between.clear()
            with torch.no_grad():
                states = model.states(tokens)
            for stream in (states.mT if model.columns else states, *between):
                square = stream.square().sum(-1) + stream.sum(-1).square()
                largest = max(largest, float(square.max()))
    finally:
        for handle in handles:
            handle.remove()
    return largest


@final
@dataclass(frozen=True)
class WideAttention:
    """Attention on the wide stream; weights are (outputs, inputs), all heads stacked."""

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    value_bias: Tensor
    output: Tensor
    output_bias: Tensor


def attention(part: Attention | None, at: Neutral, scale: float) -> WideAttention:
    """The weights of an attention layer for scores divided by the root of the head size.

    Args:
        part: The layer; `None` gives zeros.
        at: The layout.
        scale: Factor on the scores.
    """
    zero = torch.zeros(at.width, at.width, dtype=torch.float64)
    none = torch.zeros(at.width, dtype=torch.float64)
    if part is None:
        return WideAttention(zero, none, zero, none, zero, none, zero, none)
    factor = scale * math.sqrt(at.size)

    def heads(weight: Tensor) -> Tensor:
        """Rows of each head padded to the checkpoint's head size."""
        split = weight.detach().double().unflatten(0, (part.heads, part.size))
        wide = split.new_zeros(at.heads, at.size, *split.shape[2:])
        wide[: part.heads, : part.size] = split
        return wide.flatten(0, 1)

    def bias(vector: Tensor | None) -> Tensor:
        return none if vector is None else heads(vector)

    output = at.rows(heads(part.output.T))  # (h m', d') : what each head coordinate writes
    written = part.output_bias
    return WideAttention(
        factor * at.reads(heads(part.query)),
        factor * bias(part.query_bias),
        at.reads(heads(part.key)),
        bias(part.key_bias),
        at.reads(heads(part.value)),
        bias(part.value_bias),
        output.T,
        none if written is None else at.rows(written.detach()[None])[0],
    )


def feed_forward(
    part: FeedForward | None, at: Neutral, hidden: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inner and outer weights and biases of a feed-forward layer, padded to `hidden` neurons."""
    inner = torch.zeros(hidden, at.width, dtype=torch.float64)
    inner_bias = torch.zeros(hidden, dtype=torch.float64)
    outer = torch.zeros(at.width, hidden, dtype=torch.float64)
    outer_bias = torch.zeros(at.width, dtype=torch.float64)
    if part is not None:
        r = part.inner.shape[0]
        inner[:r] = at.reads(part.inner.detach())
        outer[:, :r] = at.rows(part.outer.detach().T).T
        if part.inner_bias is not None:
            inner_bias[:r] = part.inner_bias.detach()
        if part.outer_bias is not None:
            outer_bias = at.rows(part.outer_bias.detach()[None])[0]
    return inner, inner_bias, outer, outer_bias
