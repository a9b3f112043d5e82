"""Multi-head attention with softmax or hardmax, its masks, and the choice of kernel.

Shapes: b batch, n queries, k keys, d width, h heads, m head size, i inputs, o outputs.
"""

from collections.abc import Collection, Sequence
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry.models.transformer import fused_attention
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.positions import rotate
from allometry.models.transformer.running_maximum import running_maximum

NARROW = 16
"""Largest size for which `linear` works feature by feature."""

RMS_EPS = 1e-6
"""Added to the mean square by RMSNorm, as in Llama."""

HEAD_MASKS = ("all", "past", "before", "after")
"""Masks of single heads: `past` includes the position itself, `before` and `after` exclude it."""


def linear(
    x: Float[Tensor, "b n i"],
    weight: Float[Tensor, "o i"],
    bias: Float[Tensor, " o"] | None = None,
) -> Float[Tensor, "b n o"]:
    """`x @ weight.T + bias`, fast for narrow layers too.

    Matrix products of shape (b n, 2) by (2, 4) are several times slower than (4, 2) by (2, b n).
    Narrow layers therefore keep features outermost in memory, whatever the shape says. A stack of
    them, such as the thousands of thin blocks of a construction, then never copies.
    """
    if max(weight.shape) > NARROW:
        return F.linear(x, weight, bias)
    flat = x.permute(2, 0, 1).flatten(1)
    y = weight @ flat if bias is None else torch.addmm(bias[:, None], weight, flat)
    return y.unflatten(1, x.shape[:2]).permute(1, 2, 0)


def hardmax(scores: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    """Weight 1 on the largest score, shared equally among exact ties.

    The limit of softmax at temperature zero. Its gradient is zero wherever it exists, so scores
    under a hardmax do not learn.

    Example:
        >>> hardmax(torch.tensor([1.0, 3.0, 3.0]))
        tensor([0.0000, 0.5000, 0.5000])
    """
    best = _is_max(scores, -1)
    return best / best.sum(-1, keepdim=True)


def attention_mask(
    length: int,
    total: int,
    causal: bool,
    padding: Bool[Tensor, "b k"] | None,
    device: torch.device,
) -> tuple[Bool[Tensor, "#b 1 n k"] | None, bool]:
    """Mask of the last `length` of `total` positions (True: attended), or the causal flag.

    A position always attends to itself, even at padding, so no row of scores is empty. Outputs at
    padding mean nothing but are finite.
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


def head_mask(
    kinds: Sequence[str],
    n: int,
    mask: Bool[Tensor, "#b 1 #n n_keys"] | None,
    causal: bool,
    device: torch.device,
) -> Bool[Tensor, "#b h n n_keys"]:
    """Mask of heads that have different masks, combined with the mask of all heads.

    A position that would attend to nothing attends to itself, so no row of scores is empty.

    Args:
        kinds: One of `HEAD_MASKS` for each head.
        n: Number of positions.
        mask: Mask of all heads; `None` for no mask.
        causal: Whether the mask of all heads is causal.
        device: Device of the result.
    """
    full = torch.ones(n, n, dtype=torch.bool, device=device)
    masks = {"all": full, "past": full.tril(), "before": full.tril(-1), "after": full.triu(1)}
    allowed = torch.stack([masks[kind] for kind in kinds])[None]
    allowed = allowed & full.tril() if causal else allowed
    allowed = allowed if mask is None else allowed & mask
    itself = full.tril().triu()
    return allowed | (itself & ~allowed.any(-1, keepdim=True))


@final
class Attention(nn.Module):
    r"""Attention, $\sum_i W_O^i W_V^i Y\,\sigma[s\,(W_K^i Y)^T W_Q^i X]$ in the paper's columns.

    Here tokens are rows, and the weights of all heads are stacked: `query`, `key` and `value` are
    (h m, d), `output` is (d, h m), each applied as `x @ weight.T + bias`.

    Args:
        width: d, the size of a token.
        heads: h.
        size: m, the size of a head; independent of the width.
        scale: s, which multiplies the scores.
        hard: Hardmax instead of softmax.
        bias: Which of query, key, value, output have one.
        key_value_heads: g, heads of keys and values; a divisor of h. Then `key` and `value` are
            (g m, d). Default: h.
        qk_norm: RMSNorm of the queries and keys of each head.

    Attributes:
        head_masks: One of `HEAD_MASKS` for each head, set by constructions; `None` for no mask.

    References:
        `vaswani2017` section 3.2; `yun2020` Eq. (1); `ainslie2023` for shared keys and values.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        size: int,
        scale: float,
        hard: bool,
        bias: Collection[str],
        key_value_heads: int | None = None,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.size, self.scale, self.hard = heads, size, scale, hard
        self.key_value_heads = key_value_heads or heads
        self.head_masks: tuple[str, ...] | None = None
        inner, shared = heads * size, self.key_value_heads * size
        self.query = nn.Parameter(torch.empty(inner, width))
        self.key = nn.Parameter(torch.empty(shared, width))
        self.value = nn.Parameter(torch.empty(shared, width))
        self.output = nn.Parameter(torch.empty(width, inner))

        def optional(name: str, size: int) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(size)) if name in bias else None

        self.query_bias = optional("query", inner)
        self.key_bias = optional("key", shared)
        self.value_bias = optional("value", shared)
        self.output_bias = optional("output", width)
        self.query_norm = nn.RMSNorm(size, eps=RMS_EPS) if qk_norm else None
        self.key_norm = nn.RMSNorm(size, eps=RMS_EPS) if qk_norm else None

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b k d"] | None = None,
        mask: Bool[Tensor, "#b 1 #n keys"] | None = None,
        causal: bool = False,
        rotation: Float[Tensor, "2 #b 1 n half"] | None = None,
        cache: Cache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "b n d"]:
        """Attention of `x` to itself, or to `memory`."""
        y = attend(self, x, memory, mask, causal, rotation, cache, layer)
        return linear(y.flatten(2), self.output, self.output_bias)

    def split(
        self, x: Float[Tensor, "b n d"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "b h n m"]:
        """Queries, keys or values of their heads."""
        return linear(x, weight, bias).unflatten(-1, (-1, self.size)).transpose(1, 2)

    def queries(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n m"]:
        """Queries of all heads, normalised if they are to be."""
        q = self.split(x, self.query, self.query_bias)
        return q if self.query_norm is None else self.query_norm(q)

    def keys_values(self, y: Float[Tensor, "b k d"]) -> tuple[Tensor, Tensor]:
        """Keys and values of their heads, keys normalised if they are to be."""
        k = self.split(y, self.key, self.key_bias)
        k = k if self.key_norm is None else self.key_norm(k)
        return k, self.split(y, self.value, self.value_bias)

    def repeated(self, x: Float[Tensor, "b g k m"]) -> Float[Tensor, "b h k m"]:
        """Keys or values, once for each head of queries."""
        times = self.heads // self.key_value_heads
        return x if times == 1 else x.repeat_interleave(times, 1)

    def separate(
        self, y: Float[Tensor, "b n hgg m"], rotation: Float[Tensor, "2 #b 1 n half"] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a joint projection, normalised and rotated."""
        h, g = self.heads, self.key_value_heads
        both, v = y.split([h + g, g], 2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = both.split([h, g], 2)
            both = torch.cat([self.query_norm(q), self.key_norm(k)], 2)
        both = both if rotation is None else rotate(both, rotation.transpose(2, 3))
        q, k = both.split([h, g], 2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def fused(
        self, y: Float[Tensor, "b n hgg m"], rotation: Tensor | None, causal: bool
    ) -> Float[Tensor, "b n h m"]:
        """Softmax attention of a joint projection by the fused kernel."""
        if self.query_norm is not None or self.key_value_heads != self.heads:
            q, k, v = self.separate(y, rotation)
            y = torch.cat([q, self.repeated(k), self.repeated(v)], 1).transpose(1, 2)
            rotation = None
        return fused_attention.attention(y, rotation, scale=self.scale, causal=causal)

    def joint_projection(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n hgg m"] | None:
        """Queries, keys and values by one product; `None` where three products are faster."""
        biases = [self.query_bias, self.key_bias, self.value_bias]
        given: list[Tensor] = [b for b in biases if b is not None]
        wide = max(self.query.shape) > NARROW and x.shape[0] * x.shape[1] >= 128
        if not wide or len(given) not in (0, 3):
            return None
        weight = torch.cat([self.query, self.key, self.value])
        y = F.linear(x, weight, torch.cat(given) if given else None)
        return y.unflatten(-1, (-1, self.size))


def attend(
    part: Attention,
    x: Float[Tensor, "b n d"],
    memory: Float[Tensor, "b k d"] | None,
    mask: Bool[Tensor, "#b 1 #n keys"] | None,
    causal: bool,
    rotation: Float[Tensor, "2 #b 1 n half"] | None,
    cache: Cache | None,
    layer: int,
) -> Float[Tensor, "b n h m"]:
    """Output of every head, computed by the fastest kernel that applies.

    - Running maximum: hardmax with a constant query; linear in n.
    - Fused CPU kernel: softmax of short sequences in at most 32 bits.
    - Batch-last products: a few positions with tiny heads.
    - Plain products for hardmax, torch's kernel for softmax: everything else.
    """
    unmasked = memory is None and cache is None and mask is None
    if unmasked and rotation is None:
        y = _constant_query(part, x, causal)
        if y is not None:
            return y.transpose(1, 2)
    qkv = part.joint_projection(x) if memory is None else None
    if qkv is not None:
        free = unmasked and part.head_masks is None and not part.hard and part.size > 4
        if free and fused_attention.applies(qkv):
            return part.fused(qkv, rotation, causal)
        q, k, v = part.separate(qkv, rotation)
    else:
        q = part.queries(x)
        if memory is None:
            k, v = part.keys_values(x)
        elif cache is None:
            k, v = part.keys_values(memory)
        else:
            k, v = cache.cross[layer] or part.keys_values(memory)
            cache.cross[layer] = (k, v)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
    if memory is None and cache is not None:
        k, v = cache.extend(layer, k, v)
    k, v = part.repeated(k), part.repeated(v)
    if part.head_masks is not None:
        mask, causal = head_mask(part.head_masks, q.shape[2], mask, causal, q.device), False
    narrow = part.size <= 4 and q.shape[2] * k.shape[2] <= 64
    if not part.hard and not narrow:
        if q.stride(-1) != 1:
            # Narrow layers leave features outermost, which torch's fused kernel refuses.
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=part.scale
        ).transpose(1, 2)
    if causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
        mask = mask.tril()[None, None]
    kernel = _batch_last if narrow else _hard
    return kernel(q, k, v, mask, part.scale, part.hard).transpose(1, 2)


def _constant_query(part: Attention, x: Tensor, causal: bool) -> Tensor | None:
    """Hard attention with the same query at every position; `None` where that does not apply.

    Gradients do not flow through it.
    """
    kinds = part.head_masks or ("all",) * part.heads
    plain = part.query_norm is None and part.key_value_heads == part.heads
    if not part.hard or not plain or torch.is_grad_enabled() or part.query.any():
        return None
    if causal and "after" in kinds:
        return None
    k, v = part.keys_values(x)
    scores = x.new_zeros(k.shape[:3])
    if part.query_bias is not None:
        query = part.query_bias.unflatten(0, (part.heads, part.size))
        scores = part.scale * (k @ query[..., None])[..., 0]
    kinds = ["past" if causal and kind == "all" else kind for kind in kinds]
    return running_maximum(scores, v, kinds)


def _is_max(scores: Tensor, axis: int) -> Tensor:
    return (scores == scores.amax(axis, keepdim=True)).to(scores.dtype)


def _hard(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, hard: bool
) -> Float[Tensor, "b h n m"]:
    assert hard
    scores = scale * q @ k.mT
    best = _is_max(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)
    # Divide after the sum: the mean of three equal values is then exactly that value.
    return best @ v / best.sum(-1, keepdim=True)


def _batch_last(
    q: Float[Tensor, "b h n m"],
    k: Float[Tensor, "b h k m"],
    v: Float[Tensor, "b h k m"],
    mask: Bool[Tensor, "#b #h #n k"] | None,
    scale: float,
    hard: bool,
) -> Float[Tensor, "b h n m"]:
    """Attention of a few tiny tokens, with the batch along the fast axis: 20 times faster.

    Divides after the sum, so that the mean of equal values is exactly that value.
    """
    q, k, v = (x.permute(1, 2, 3, 0).contiguous() for x in (q, k, v))
    scores = scale * (q[:, :, None] * k[:, None]).sum(3)  # h n k b
    if mask is not None:
        scores = scores.masked_fill(~mask.permute(1, 2, 3, 0), -torch.inf)
    # The largest score is only a reference: no gradient passes through it.
    shifted = scores - scores.detach().amax(2, keepdim=True)
    weight = _is_max(scores, 2) if hard else shifted.exp()
    total = (weight[:, :, :, None] * v[:, None]).sum(2)
    return (total / weight.sum(2)[:, :, None]).permute(3, 0, 1, 2)
