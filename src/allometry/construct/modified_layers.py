r"""Layers of the proof's modified class, and their conversion to ordinary transformer layers.

The modified class $\bar{\mathcal T}^{2,1,1}$ of Yun et al. (2020) has hardmax attention and
feed-forward layers of hidden size 1 whose activation is any $\phi \in \Phi$: piecewise linear, at
most three pieces, at least one of them constant. `apply` runs such layers exactly; `soften`
converts them to a `models.Transformer` of class $\mathcal T^{2,1,4}$.

Letters: b batch, d size of a token, n tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import FeedForward, Transformer

TEMPERATURE = 2048.0
"""Default of `soften`: wrong keys lose by 1,024 nats or more, and exp(-1024) is 0 in float64."""


@final
@dataclass(frozen=True)
class Phi:
    r"""A member of $\Phi$: `left` for t < a, `middle` for a <= t < b, `right` for t >= b.

    Each piece is (slope, intercept). Either both outer pieces are 0, or the middle one is.

    Args:
        a: First break.
        b: Second break.
        left: Piece before a.
        middle: Piece between.
        right: Piece from b on.
        ramp: Width over which ReLUs approximate a jump.
    """

    a: float
    b: float
    left: tuple[float, float] = (0.0, 0.0)
    middle: tuple[float, float] = (0.0, 0.0)
    right: tuple[float, float] = (0.0, 0.0)
    ramp: float = 0.0

    def __call__(self, t: Tensor) -> Tensor:
        """The function with its jumps."""
        pieces = [
            slope * t + intercept for slope, intercept in (self.left, self.middle, self.right)
        ]
        return torch.where(t < self.a, pieces[0], torch.where(t < self.b, pieces[1], pieces[2]))

    def relus(self) -> tuple[list[float], list[float], list[float]]:
        r"""`(sign, knot, weight)` of four ReLUs, $\sum_i w_i\,\mathrm{ReLU}(s_i (t - k_i))$.

        Equal to the function except on ramps: before a, and before b (outer pieces 0) or after it.
        """
        return self._bump() if self.middle != (0.0, 0.0) else self._outside()

    def _bump(self) -> tuple[list[float], list[float], list[float]]:
        slope, intercept = self.middle
        top = slope * self.a + intercept
        rise = top / self.ramp if top else 0.0
        fall = -(slope * (self.b - self.ramp) + intercept) / self.ramp
        knots = [self.a - self.ramp, self.a, self.b - self.ramp, self.b]
        return [1.0] * 4, knots, [rise, slope - rise, fall - slope, -fall]

    def _outside(self) -> tuple[list[float], list[float], list[float]]:
        (low, c), (high, e) = self.left, self.right
        before, after = low * self.a + c, high * self.b + e
        r = self.ramp
        down = (low * (self.a - r) + c) / r if before else -low
        up = (high * (self.b + r) + e) / r if after else high
        knots = [self.a, self.a - r, self.b, self.b + r]
        return [-1.0, -1.0, 1.0, 1.0], knots, [down, -low - down, up, high - up]


@final
@dataclass(frozen=True)
class RankOneFeedForward:
    r"""Feed-forward layer $X \mapsto X + w\,\phi(v^T X - c) + b\,1^T$ of the modified class.

    Args:
        read: v, of size d.
        offset: c.
        phi: $\phi$.
        write: w, of size d.
        bias: b, of size d; `None` for 0.
    """

    read: Float[Tensor, " d"]
    offset: float
    phi: Phi
    write: Float[Tensor, " d"]
    bias: Float[Tensor, " d"] | None = None

    def __call__(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b d n"]:
        """The layer applied to the columns of `x`."""
        t = torch.einsum("d,bdn->bn", self.read, x) - self.offset
        x = x + self.write[:, None] * self.phi(t)[:, None, :]
        return x if self.bias is None else x + self.bias[:, None]


@final
@dataclass(frozen=True)
class Shift:
    r"""Hardmax attention layer of two heads of size 1 that moves the first row.

    Adds $s\,(\max_k - \min_k) u^T X_k$ to the columns with $b_Q < u^T X_j < b_Q'$ if `high` is
    given; otherwise $s \max_k u^T X_k$ to those above $b_Q$ (one head, used for all columns).

    Args:
        read: u, of size d.
        low: $b_Q$.
        high: $b_Q'$.
        scale: s.
        gap: Smallest difference of two values of $u^T X$, and twice the smallest distance of any
            from $b_Q$ and $b_Q'$.
    """

    read: Float[Tensor, " d"]
    low: float
    high: float | None
    scale: float
    gap: float

    def __call__(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b d n"]:
        """The layer applied to the columns of `x`."""
        ids = torch.einsum("d,bdn->bn", self.read, x)
        top, bottom = ids.amax(1, keepdim=True), ids.amin(1, keepdim=True)
        moved = torch.where(ids > self.low, top, bottom)
        if self.high is not None:
            moved = moved - torch.where(ids > self.high, top, bottom)
        x = x.clone()
        x[:, 0] += self.scale * moved
        return x


Layer = RankOneFeedForward | Shift


def apply(layers: Sequence[Layer], x: Float[Tensor, "b d n"]) -> Float[Tensor, "b d n"]:
    """The output of the modified network: hardmax attention and exact activations phi.

    Args:
        layers: Layers of the modified class.
        x: Inputs, columns as tokens.
    """
    for layer in layers:
        x = layer(x)
    return x


def blocks(layers: Sequence[Layer]) -> list[tuple[Shift | None, RankOneFeedForward | None]]:
    """Group `layers` into as few blocks (attention, feed-forward) as their order allows.

    Args:
        layers: Layers of the modified class.
    """
    packed: list[tuple[Shift | None, RankOneFeedForward | None]] = []
    for layer in layers:
        if isinstance(layer, RankOneFeedForward) and packed and packed[-1][1] is None:
            packed[-1] = (packed[-1][0], layer)
        else:
            packed.append((layer, None) if isinstance(layer, Shift) else (None, layer))
    return packed


def soften(
    layers: Sequence[Layer],
    *,
    positions: Float[Tensor, "d n"] | None = None,
    softmax: bool = True,
    temperature: float = TEMPERATURE,
) -> Transformer:
    r"""The network of class $\mathcal T^{2,1,4}$ near the modified one: softmax and ReLUs.

    Hardmax becomes softmax with scores multiplied by $\lambda$ = `temperature` / gap², and each
    $\phi$ becomes four ReLUs that differ from it only on ramps. Missing parts of a block stay
    missing.

    Args:
        layers: Layers of the modified class.
        positions: The encoding E added to the input.
        softmax: `False` keeps hardmax (phi still becomes ReLUs).
        temperature: Score difference in nats between the best key and the next, times two.
    """
    require(temperature > 0, "soften.temperature", "be positive", temperature)
    packed = blocks(layers)
    require(len(packed) > 0, "soften.layers", "not be empty", layers)
    d = len(layers[0].read)
    names = {(True, True): "both", (True, False): "attention", (False, True): "feed_forward"}
    model = Transformer.yun(
        d,
        depth=len(packed),
        n=None if positions is None else positions.shape[1],
        hard=not softmax,
        parts=[names[shift is not None, thin is not None] for shift, thin in packed],
    ).double()
    with torch.no_grad():
        if model.position_table is not None and positions is not None:
            model.position_table.copy_(positions.T)
        for block, (shift, thin) in zip(model.blocks, packed, strict=True):
            if shift is not None:
                assert isinstance(block.attention, Attention)
                _fill_attention(block.attention, shift, temperature)
            if thin is not None:
                assert isinstance(block.feed_forward, FeedForward)
                _fill_feed_forward(block.feed_forward, thin)
    return model


def _fill_attention(layer: Attention, shift: Shift, temperature: float) -> None:
    scale = temperature / shift.gap**2
    layer.key.copy_(shift.read.expand(2, -1))
    layer.value.copy_(shift.read.expand(2, -1))
    layer.query.copy_(scale * shift.read.expand(2, -1))
    high = shift.low if shift.high is None else shift.high
    assert layer.query_bias is not None
    layer.query_bias.copy_(torch.tensor([-scale * shift.low, -scale * high], dtype=torch.float64))
    layer.output.zero_()
    layer.output[0, 0] = shift.scale
    layer.output[0, 1] = 0.0 if shift.high is None else -shift.scale


def _fill_feed_forward(layer: FeedForward, thin: RankOneFeedForward) -> None:
    signs, knots, weights = (torch.tensor(v, dtype=torch.float64) for v in thin.phi.relus())
    layer.inner.copy_(signs[:, None] * thin.read)
    assert layer.inner_bias is not None
    assert layer.outer_bias is not None
    layer.inner_bias.copy_(-signs * (thin.offset + knots))
    layer.outer.copy_(thin.write[:, None] * weights)
    if thin.bias is not None:
        layer.outer_bias.copy_(thin.bias)
