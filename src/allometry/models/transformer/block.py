"""Blocks of a transformer: feed-forward layers, norms, and skip connections around them.

Shapes: b batch, n positions, d width, r hidden size, k keys.
"""

from collections.abc import Callable, Collection
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from allometry.models.transformer.attention import RMS_EPS, Attention, linear
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.experts import MixtureOfExperts

Norm = nn.LayerNorm | nn.RMSNorm


def make_norm(width: int, norm_type: str, bias: bool) -> Norm:
    """A norm over the last axis; an RMSNorm has no bias.

    References: `zhang2019rms` Eq. (4).
    """
    if norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=RMS_EPS)
    return nn.LayerNorm(width, bias=bias)


@final
class FeedForward(nn.Module):
    r"""$W_2\,\sigma(W_1 x + b_1) + b_2$ on every token, with `inner` = $W_1$, `outer` = $W_2$.

    A gated layer is $W_2\,[\sigma(V x + c) \odot (W_1 x + b_1)] + b_2$ with `gate` = $V$; it is
    SwiGLU if the activation is SiLU.

    Args:
        width: d.
        hidden: r.
        activation: $\sigma$.
        bias: Which of "inner" ($b_1$ and $c$) and "outer" ($b_2$) there are.
        gated: Whether there is a gate.

    References: `shazeer2020` Eq. (6).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Callable[[Tensor], Tensor],
        bias: Collection[str],
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Parameter(torch.empty(hidden, width)) if gated else None
        self.inner = nn.Parameter(torch.empty(hidden, width))
        self.outer = nn.Parameter(torch.empty(width, hidden))
        self.inner_bias = nn.Parameter(torch.zeros(hidden)) if "inner" in bias else None
        self.outer_bias = nn.Parameter(torch.zeros(width)) if "outer" in bias else None
        biased = gated and "inner" in bias
        self.gate_bias = nn.Parameter(torch.zeros(hidden)) if biased else None

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The layer without its skip connection."""
        hidden = linear(x, self.inner, self.inner_bias)
        if self.gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(linear(x, self.gate, self.gate_bias)) * hidden
        return linear(hidden, self.outer, self.outer_bias)


@final
class Block(nn.Module):
    """Self-attention, cross-attention and feed-forward, each with skip connection and norm.

    Args:
        attention: Self-attention, or `None`.
        cross: Attention to an encoder's output, or `None`.
        feed_forward: The feed-forward layer or a mixture of experts, or `None`.
        width: d.
        norm: "pre" normalises the input of a part, "post" the sum after it, `None` nothing.
        skip: Whether a part's input is added to its output.
        norm_bias: Whether the norms have a bias.
        norm_type: "layernorm" or "rmsnorm".
    """

    def __init__(
        self,
        attention: Attention | None,
        cross: Attention | None,
        feed_forward: FeedForward | MixtureOfExperts | None,
        width: int,
        norm: str | None,
        skip: bool,
        norm_bias: bool,
        norm_type: str = "layernorm",
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.norm, self.skip = norm, skip

        def norm_of(part: nn.Module | None) -> Norm | None:
            wanted = part is not None and norm is not None
            return make_norm(width, norm_type, norm_bias) if wanted else None

        self.attention_norm = norm_of(attention)
        self.cross_norm = norm_of(cross)
        self.feed_forward_norm = norm_of(feed_forward)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b k d"] | None = None,
        mask: Bool[Tensor, "#b 1 n keys"] | None = None,
        causal: bool = False,
        rotation: Float[Tensor, "2 #b 1 n half"] | None = None,
        memory_mask: Bool[Tensor, "b 1 1 k"] | None = None,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "b n d"]:
        """The tokens after this block."""
        own = (None, mask, causal, rotation, cache, layer)
        crossed = (memory, memory_mask, False, None, cache, layer)
        x = self._residual(x, self.attention, self.attention_norm, *own)
        x = self._residual(x, self.cross, self.cross_norm, *crossed)
        return self._residual(x, self.feed_forward, self.feed_forward_norm)

    def _residual(
        self, x: Tensor, part: nn.Module | None, norm: Norm | None, *args: Any
    ) -> Tensor:
        """`x + part(norm(x))` ("pre") or `norm(x + part(x))` ("post"); `x` without the part."""
        if part is None:
            return x
        y = part(norm(x) if norm is not None and self.norm == "pre" else x, *args)
        y = y + x if self.skip else y  # in this order the sum has the memory layout of y
        return norm(y) if norm is not None and self.norm == "post" else y
