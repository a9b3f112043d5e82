"""Attention of several heads, with softmax or hardmax.

Letters: b batch, n queries, k keys, d width, h heads, m head size.
"""

from collections.abc import Collection
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry.models.narrow_linear import NARROW, linear
from allometry.models.transformer import fused_attention
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.masks import seen
from allometry.models.transformer.positions import rotate
from allometry.models.transformer.running_maximum import running


def hardmax(scores: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    """Weight 1 on the largest score; several that are exactly equal share it equally.

    The limit of softmax at temperature zero. Its gradient is zero wherever it exists, so scores
    under a hardmax do not learn.

    Example:
        >>> hardmax(torch.tensor([1.0, 3.0, 3.0]))
        tensor([0.0000, 0.5000, 0.5000])
    """
    best = _best(scores, -1)
    return best / best.sum(-1, keepdim=True)


def _best(scores: Tensor, axis: int) -> Tensor:
    return (scores == scores.amax(axis, keepdim=True)).to(scores.dtype)


def _batch_last(
    q: Float[Tensor, "b h n m"],
    k: Float[Tensor, "b h k m"],
    v: Float[Tensor, "b h k m"],
    mask: Bool[Tensor, "#b #h #n k"] | None,
    scale: float,
    hard: bool,
) -> Float[Tensor, "b h n m"]:
    """Attention of a few tiny tokens, with the batch along the fast axis: 20 times faster.

    Values are summed before they are shared out, so that equal ones come out as they went in.
    """
    q, k, v = (x.permute(1, 2, 3, 0).contiguous() for x in (q, k, v))
    scores = scale * (q[:, :, None] * k[:, None]).sum(3)  # h n k b
    if mask is not None:
        scores = scores.masked_fill(~mask.permute(1, 2, 3, 0), -torch.inf)
    # The largest score is only a reference: no gradient passes through it.
    shifted = scores - scores.detach().amax(2, keepdim=True)
    weight = _best(scores, 2) if hard else shifted.exp()
    fetched = (weight[:, :, :, None] * v[:, None]).sum(2)
    return (fetched / weight.sum(2)[:, :, None]).permute(3, 0, 1, 2)


def visible(
    length: int,
    total: int,
    causal: bool,
    padding: Bool[Tensor, "b k"] | None,
    device: torch.device,
) -> tuple[Bool[Tensor, "#b 1 n k"] | None, bool]:
    """Which of `total` slots the last `length` may look at, as a mask or as the causal flag.

    A slot may always look at itself, even at padding, so that no row of scores is empty: what
    comes out at padding means nothing but is finite.
    """
    if padding is None and (not causal or length == 1):
        return None, False
    if padding is None and length == total:
        return None, True
    mask = torch.ones(length, total, dtype=torch.bool, device=device)
    mask = (mask.tril(total - length) if causal else mask)[None, None]
    if padding is not None:
        itself = torch.ones(length, total, dtype=torch.bool, device=device)
        itself = itself.tril(total - length).triu(total - length)
        mask = mask & ~padding[:, None, None, :] | itself
    return mask, False


@final
class Attention(nn.Module):
    r"""Attention, $\sum_i W_O^i W_V^i Y\,\sigma[s\,(W_K^i Y)^T W_Q^i X]$ in the paper's columns.

    Here tokens are rows, and the weights of all heads lie below one another: `query`, `key` and
    `value` are (h m, d), `output` is (d, h m), each applied as `x @ weight.T + bias`.

    Args:
        width: d, the size of a token.
        heads: h.
        size: m, the size of a head, whatever the width.
        scale: s, which multiplies the scores.
        hard: Hardmax instead of softmax.
        bias: Which of query, key, value, output have one.

    Attributes:
        sight: For each head one of `SIGHTS`, set by constructions; `None` lets all see alike.

    References:
        `vaswani2017` section 3.2; `yun2020` Eq. (1).
    """

    def __init__(
        self, width: int, heads: int, size: int, scale: float, hard: bool, bias: Collection[str]
    ) -> None:
        super().__init__()
        self.heads, self.size, self.scale, self.hard = heads, size, scale, hard
        self.sight: tuple[str, ...] | None = None
        inner = heads * size
        self.query = nn.Parameter(torch.empty(inner, width))
        self.key = nn.Parameter(torch.empty(inner, width))
        self.value = nn.Parameter(torch.empty(inner, width))
        self.output = nn.Parameter(torch.empty(width, inner))

        def maybe(name: str, size: int) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(size)) if name in bias else None

        self.query_bias = maybe("query", inner)
        self.key_bias = maybe("key", inner)
        self.value_bias = maybe("value", inner)
        self.output_bias = maybe("output", width)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b k d"] | None = None,
        mask: Bool[Tensor, "#b 1 #n keys"] | None = None,
        causal: bool = False,
        turn: Float[Tensor, "2 #b 1 n half"] | None = None,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "b n d"]:
        """What the queries of `x` fetch from `x` itself, or from `memory`."""
        if memory is None and cache is None and mask is None and turn is None:
            fetched = self._one_query(x, causal)
            if fetched is not None:
                return linear(fetched.transpose(1, 2).flatten(2), self.output, self.output_bias)
        if memory is None and self._joins(x):
            y = self._joined(x)
            free = cache is None and mask is None and self.sight is None and not self.hard
            if free and self.size > 4 and fused_attention.applies(y):
                fetched = fused_attention.attention(y, turn, scale=self.scale, causal=causal)
                return linear(fetched.flatten(2), self.output, self.output_bias)
            q, k, v = self._parted(y, turn)
        else:
            q = self._split(linear(x, self.query, self.query_bias))
            if memory is not None and cache is not None:
                kept = cache.cross[layer]
                k, v = self._keys_values(memory) if kept is None else kept
                cache.cross[layer] = (k, v)
            else:
                k, v = self._keys_values(x if memory is None else memory)
            if turn is not None:
                q, k = rotate(q, turn), rotate(k, turn)
        if memory is None and cache is not None:
            k, v = cache.extend(layer, k, v)
        if self.sight is not None:
            mask = seen(self.sight, q.shape[2], mask, causal, q.device)
            causal = False
        fetched = self._fetch(q, k, v, mask, causal)
        return linear(fetched.transpose(1, 2).flatten(2), self.output, self.output_bias)

    def _joins(self, x: Float[Tensor, "b n d"]) -> bool:
        """Whether one product for queries, keys and values is worth laying weights together."""
        biases = (self.query_bias, self.key_bias, self.value_bias)
        alike = all(b is None for b in biases) or all(b is not None for b in biases)
        return alike and max(self.query.shape) > NARROW and x.shape[0] * x.shape[1] >= 128

    def _joined(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n h3 m"]:
        """Queries, keys and values of all heads by one product."""
        weight = torch.cat([self.query, self.key, self.value])
        biases = (self.query_bias, self.key_bias, self.value_bias)
        there: list[Tensor] = [b for b in biases if b is not None]
        y = F.linear(x, weight, torch.cat(there) if there else None)
        return y.unflatten(-1, (3 * self.heads, self.size))

    def _parted(
        self, y: Float[Tensor, "b n h3 m"], turn: Float[Tensor, "2 #b 1 n half"] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; queries and keys turned together."""
        both, v = y.split([2 * self.heads, self.heads], 2)
        both = both if turn is None else rotate(both, turn.transpose(2, 3))
        q, k = both.split(self.heads, 2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _one_query(self, x: Float[Tensor, "b n d"], causal: bool) -> Tensor | None:
        """The short way of hard attention where all slots ask alike, which no gradient follows."""
        sight = self.sight or ("all",) * self.heads
        if not self.hard or torch.is_grad_enabled() or self.query.any():
            return None
        if causal and "after" in sight:
            return None
        k, v = self._keys_values(x)
        scores = x.new_zeros(k.shape[:3])
        if self.query_bias is not None:
            asked = self.query_bias.unflatten(0, (self.heads, self.size))
            scores = self.scale * (k @ asked[..., None])[..., 0]
        return running(scores, v, ["past" if causal and s == "all" else s for s in sight])

    def _fetch(
        self,
        q: Float[Tensor, "b h n m"],
        k: Float[Tensor, "b h keys m"],
        v: Float[Tensor, "b h keys m"],
        mask: Tensor | None,
        causal: bool,
    ) -> Float[Tensor, "b h n m"]:
        narrow = self.size <= 4 and q.shape[2] * k.shape[2] <= 64
        if not self.hard and not narrow:
            if q.stride(-1) != 1:
                # Narrow maps leave features outermost, which the fused kernel would refuse.
                q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, scale=self.scale
            )
        if causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
            mask = mask.tril()[None, None]
        if narrow:
            return _batch_last(q, k, v, mask, self.scale, self.hard)
        scores = self.scale * q @ k.mT
        best = _best(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)
        # Sum first, share after: a third of three equal values is then the value itself.
        return best @ v / best.sum(-1, keepdim=True)

    def _keys_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        k = self._split(linear(y, self.key, self.key_bias))
        return k, self._split(linear(y, self.value, self.value_bias))

    def _split(self, x: Float[Tensor, "b n inner"]) -> Float[Tensor, "b h n m"]:
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
