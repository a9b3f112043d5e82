"""Attention of several heads, with softmax or hardmax, and the cache that makes decoding cheap.

Letters: b batch, n queries, k keys, d width, h heads, m head size.
"""

from collections.abc import Collection
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.linear import linear
from allometry.models.positions import rotate
from allometry.models.sight import seen


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
class Cache:
    """What a decoder remembers of the tokens it has read: keys and values of every layer.

    Made by `Transformer.new_cache` and filled by `model(tokens, cache=cache)`. When more than
    `context` tokens have been read the window slides: the oldest are forgotten and the rest are
    read again at their new positions, which costs a full pass.

    Args:
        depth: Number of layers.
        stride: How many tokens are forgotten at once when the window slides. With 1 every logit is
            the one of a full pass over the last `context` tokens; with more, the window after a
            slide is shorter, and a full pass is needed only once in `stride` tokens.

    Attributes:
        tokens: What has been read and is still remembered.
        padding: True at the slots that are padding; `None` if there never was any.
    """

    def __init__(self, depth: int, stride: int = 1) -> None:
        self.depth = depth
        self.stride = stride
        self.tokens: Tensor | None = None
        self.padding: Tensor | None = None
        self.memory: Tensor | None = None
        self.memory_padding: Tensor | None = None
        self.past: list[tuple[Tensor, Tensor] | None] = [None] * depth
        self.cross: list[tuple[Tensor, Tensor] | None] = [None] * depth

    @property
    def length(self) -> int:
        """Slots remembered, padding included."""
        return 0 if self.tokens is None else self.tokens.shape[1]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `layer` with the new ones behind those remembered."""
        old = self.past[layer]
        if old is not None:
            k, v = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
        self.past[layer] = (k, v)
        return k, v

    def read(self, tokens: Tensor, padding: Tensor | None, context: int | None) -> int:
        """Remember `tokens`; how many slots before them still have their keys and values.

        Args:
            tokens: The new ones.
            padding: True where they are padding.
            context: The most that may be remembered.
        """
        if self.tokens is None:
            self.tokens, self.padding = tokens, padding
            return 0
        require(
            self.tokens.shape[0] == tokens.shape[0],
            "tokens",
            f"have the batch size of the cache ({self.tokens.shape[0]})",
            tokens.shape[0],
        )
        if padding is not None or self.padding is not None:
            old = self.tokens.new_zeros(self.tokens.shape[:2], dtype=torch.bool)
            new = tokens.new_zeros(tokens.shape[:2], dtype=torch.bool)
            old = old if self.padding is None else self.padding
            self.padding = torch.cat([old, new if padding is None else padding], 1)
        start = self.length
        self.tokens = torch.cat([self.tokens, tokens], 1)
        if context is None or self.length <= context:
            return start
        self._slide(start, context)
        return 0

    def _slide(self, start: int, context: int) -> None:
        assert self.tokens is not None
        if self.padding is not None:
            # Old padding moves to the front of its row, so that it is what is forgotten first.
            order = (~self.padding[:, :start]).to(torch.uint8).argsort(dim=1, stable=True)
            rows = torch.arange(len(order), device=order.device)[:, None]
            self.tokens = torch.cat([self.tokens[rows, order], self.tokens[:, start:]], 1)
            old = self.padding[rows, order]
            self.padding = torch.cat([old, self.padding[:, start:]], 1)
        new = self.length - start
        keep = max(new, context - self.stride + 1)
        self.tokens = self.tokens[:, -keep:]
        self.padding = None if self.padding is None else self.padding[:, -keep:]
        self.past = [None] * self.depth

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep (or repeat) the batch rows given, as beam search does.

        Args:
            rows: Indices of rows, in the order wanted.
        """

        def pick(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        def pair(x: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
            return None if x is None else (x[0][rows], x[1][rows])

        self.tokens, self.padding = pick(self.tokens), pick(self.padding)
        self.memory, self.memory_padding = pick(self.memory), pick(self.memory_padding)
        self.past = [pair(x) for x in self.past]
        self.cross = [pair(x) for x in self.cross]


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
