"""The block of a transformer and the feed-forward layer in it.

Letters: b batch, n positions, d width, r hidden size, k keys.
"""

from collections.abc import Callable, Collection
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry.models.narrow_linear import linear
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.cache import Cache

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
"""Activations by name; `gelu_tanh` is the one of GPT-2. Any other callable may be passed."""

BIASES = ("query", "key", "value", "output", "inner", "outer", "norm")
"""Where `bias=True` puts one: the attention's four, the feed-forward's b_1 and b_2, the norms."""

PARTS = ("both", "attention", "feed_forward")


@final
class FeedForward(nn.Module):
    r"""$W_2\,\sigma(W_1 x + b_1) + b_2$ on every token, with `inner` = $W_1$, `outer` = $W_2$.

    Args:
        width: d, the size of a token.
        hidden: r.
        activation: $\sigma$.
        bias: Which of inner ($b_1$) and outer ($b_2$) there are.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Callable[[Tensor], Tensor],
        bias: Collection[str],
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Parameter(torch.empty(hidden, width))
        self.outer = nn.Parameter(torch.empty(width, hidden))
        self.inner_bias = nn.Parameter(torch.zeros(hidden)) if "inner" in bias else None
        self.outer_bias = nn.Parameter(torch.zeros(width)) if "outer" in bias else None

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The layer without its skip connection."""
        inside = self.activation(linear(x, self.inner, self.inner_bias))
        return linear(inside, self.outer, self.outer_bias)


@final
class Block(nn.Module):
    """Attention, cross attention, feed-forward: each optional, each with its skip and norm.

    Args:
        attention: Self-attention, or `None`.
        cross: Attention to an encoder's output, or `None`.
        feed_forward: The feed-forward layer, or `None`.
        width: d.
        norm: "pre" normalises what enters a part, "post" the sum that leaves it, `None` nothing.
        skip: Whether a part's input is added to its output.
        norm_bias: Whether the norms have a bias.
    """

    def __init__(
        self,
        attention: Attention | None,
        cross: Attention | None,
        feed_forward: FeedForward | None,
        width: int,
        norm: str | None,
        skip: bool,
        norm_bias: bool,
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.norm, self.skip = norm, skip

        def normed(part: nn.Module | None) -> nn.LayerNorm | None:
            there = part is not None and norm is not None
            return nn.LayerNorm(width, bias=norm_bias) if there else None

        self.attention_norm = normed(attention)
        self.cross_norm = normed(cross)
        self.feed_forward_norm = normed(feed_forward)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b k d"] | None = None,
        mask: Bool[Tensor, "#b 1 n keys"] | None = None,
        causal: bool = False,
        turn: Float[Tensor, "2 #b 1 n half"] | None = None,
        memory_mask: Bool[Tensor, "b 1 1 k"] | None = None,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "b n d"]:
        """The tokens after this block."""
        if self.attention is not None:
            y = self.attention(
                self._before(x, self.attention_norm), None, mask, causal, turn, cache, layer
            )
            x = self._after(x, y, self.attention_norm)
        if self.cross is not None:
            y = self.cross(
                self._before(x, self.cross_norm), memory, memory_mask, cache=cache, layer=layer
            )
            x = self._after(x, y, self.cross_norm)
        if self.feed_forward is not None:
            y = self.feed_forward(self._before(x, self.feed_forward_norm))
            x = self._after(x, y, self.feed_forward_norm)
        return x

    def _before(self, x: Tensor, norm: nn.LayerNorm | None) -> Tensor:
        return norm(x) if norm is not None and self.norm == "pre" else x

    def _after(self, x: Tensor, y: Tensor, norm: nn.LayerNorm | None) -> Tensor:
        y = y + x if self.skip else y  # in this order the sum has the memory layout of y
        return norm(y) if norm is not None and self.norm == "post" else y
