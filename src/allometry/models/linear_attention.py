r"""Linear attention with decay: gated linear attention and RetNet, chunked or recurrent.

$S_t = \mathrm{diag}(\alpha_t)\,S_{t-1} + k_t v_t^T$ and $o_t = S_t^T q_t$ for every head. RetNet
has one constant $\alpha$ for each head; gated linear attention computes $\alpha_t$ from the token.

Shapes: b batch, l positions, d width, h heads, m key size, p value size, c chunk, v vocabulary.
"""

import math
from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.selective_scan import associative_scan
from allometry.models.transformer.attention import RMS_EPS
from allometry.models.transformer.block import FeedForward
from allometry.models.transformer.positions import rotate

CHUNK = 16
"""Positions computed as one matrix product."""

STEEPEST = -5.0
"""Smallest logarithm of a decay. With `CHUNK` positions no factor then overflows float32."""

TEMPERATURE = 16
"""Root of the sigmoid in the gate of gated linear attention, which keeps decays near 1."""

KINDS = ("gla", "retnet")


def chunked(
    q: Float[Tensor, "b h l m"],
    k: Float[Tensor, "b h l m"],
    v: Float[Tensor, "b h l p"],
    log_decay: Float[Tensor, "b h l m"],
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, "b h l p"], Float[Tensor, "b h m p"]]:
    """Outputs at all positions and the last state, from an empty state.

    Inside a chunk attention is a masked matrix product; chunks are joined by an associative scan.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        log_decay: Logarithm of the decay before each position, from `STEEPEST` to 0.
        chunk: c.

    References: `yang2024gla` section 4; `sun2023retnet` Eq. (7).
    """
    length = q.shape[2]
    more = -length % chunk
    # Added positions have no key and no decay: they change nothing.
    q, k, v, log_decay = (
        F.pad(t, (0, 0, 0, more)).unflatten(2, (-1, chunk)) for t in (q, k, v, log_decay)
    )
    total = log_decay.cumsum(3)  # b h N c m
    last = total[:, :, :, -1:]
    decayed = q * total.exp()
    scores = (decayed @ (k * (-total).exp()).mT).tril()
    added = (k * (last - total).exp()).mT @ v  # b h N m p
    factors = last.exp().mT.expand_as(added)
    states = associative_scan(factors.transpose(1, 2), added.transpose(1, 2)).transpose(1, 2)
    before = torch.cat([torch.zeros_like(states[:, :, :1]), states[:, :, :-1]], 2)
    out = (scores @ v + decayed @ before).flatten(2, 3)
    return out[:, :, :length], states[:, :, -1]


def recurrent(
    state: Float[Tensor, "b h m p"],
    q: Float[Tensor, "b h l m"],
    k: Float[Tensor, "b h l m"],
    v: Float[Tensor, "b h l p"],
    log_decay: Float[Tensor, "b h l m"],
) -> tuple[Float[Tensor, "b h l p"], Float[Tensor, "b h m p"]]:
    """The same position by position, from any state."""
    decay, outputs = log_decay.exp(), []
    for t in range(q.shape[2]):
        state = decay[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
        outputs.append((q[:, :, t, None] @ state)[:, :, 0])
    return torch.stack(outputs, 2), state


@final
class LinearAttentionCache:
    """States of each layer, and the number of tokens that each row has read."""

    def __init__(self, depth: int) -> None:
        self.states: list[Tensor | None] = [None] * depth
        self.read: Tensor | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep, repeat or reorder the batch rows."""
        self.states = [None if s is None else s[rows] for s in self.states]
        self.read = None if self.read is None else self.read[rows]

    def positions(self, tokens: Tensor, padding: Tensor | None) -> Int[Tensor, "b l"]:
        """Positions of new tokens, padding not counted."""
        text = torch.ones_like(tokens) if padding is None else (~padding).long()
        start = torch.zeros_like(text[:, 0]) if self.read is None else self.read
        place = start[:, None] + text.cumsum(1)
        self.read = place[:, -1]
        return place - 1


@final
class LinearAttentionBlock(nn.Module):
    r"""Linear attention and a SwiGLU layer, each after an RMSNorm and with a skip connection.

    The heads' outputs are normalised, multiplied by $\mathrm{SiLU}(W_R x)$ and mixed by $W_O$.

    Args:
        width: d.
        heads: h.
        kind: "gla" or "retnet".
    """

    def __init__(self, width: int, heads: int, kind: str) -> None:
        super().__init__()
        self.heads, self.kind = heads, kind
        self.size = max(2, width // heads // 4 * 2)  # even, for the rotation
        keys = heads * self.size
        self.norm, self.feed_forward_norm = (nn.RMSNorm(width, eps=RMS_EPS) for _ in range(2))
        self.query, self.key = (nn.Linear(width, keys, bias=False) for _ in range(2))
        self.value, self.gate, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.decay_in: nn.Linear | None = None
        self.decay_out: nn.Linear | None = None
        if kind == "gla":
            rank = min(16, width)
            self.decay_in = nn.Linear(width, rank, bias=False)
            self.decay_out = nn.Linear(rank, keys)
        self.head_norm = nn.RMSNorm(width // heads, eps=RMS_EPS)
        self.feed_forward = FeedForward(width, round(8 * width / 3), F.silu, (), gated=True)

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        place: Int[Tensor, "b l"],
        cache: LinearAttentionCache,
        layer: int,
        padding: Bool[Tensor, "b l"] | None = None,
    ) -> Float[Tensor, "b l d"]:
        """The tokens after this block; `cache` is extended."""
        x = x + self._attention(self.norm(x), place, cache, layer, padding)
        return x + self.feed_forward(self.feed_forward_norm(x))

    def _attention(
        self,
        x: Tensor,
        place: Tensor,
        cache: LinearAttentionCache,
        layer: int,
        padding: Tensor | None,
    ) -> Tensor:
        q, k, v = (self._split(part(x)) for part in (self.query, self.key, self.value))
        q = q * self.size**-0.5
        if self.kind == "retnet":
            rotation = _rotation(place, self.size, x.dtype)
            q, k = rotate(q, rotation), rotate(k, rotation)
        log_decay = self._log_decay(x).expand_as(k)
        if padding is not None:
            unseen = padding[:, None, :, None]
            k, log_decay = k.masked_fill(unseen, 0.0), log_decay.masked_fill(unseen, 0.0)
        state = cache.states[layer]
        if state is None:
            out, cache.states[layer] = chunked(q, k, v, log_decay)
        else:
            out, cache.states[layer] = recurrent(state, q, k, v, log_decay)
        out = self.head_norm(out.transpose(1, 2)).flatten(2)
        return self.output(out * F.silu(self.gate(x)))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _log_decay(self, x: Tensor) -> Tensor:
        if self.decay_in is not None and self.decay_out is not None:
            gate = self._split(self.decay_out(self.decay_in(x)))
            return (F.logsigmoid(gate) / TEMPERATURE).clamp(min=STEEPEST)
        # RetNet: 1 - 2^-5, 1 - 2^-6, ... (`sun2023retnet` Eq. (8)).
        head = torch.arange(self.heads, device=x.device, dtype=x.dtype)
        return torch.log1p(-(2.0 ** (-5 - head)))[None, :, None, None]


@final
class LinearAttention(nn.Module):
    r"""A language model of linear attention with decay: table, blocks, norm, readout.

    Memory and time of a step of generation do not depend on the number of tokens read. There is no
    `context`. Initial weights are scaled as in `Transformer`.

    Differs from the papers: RetNet's rotation has no scaling of its own (xPos), which the decay
    replaces; heads are normalised by RMSNorm.

    Args:
        vocabulary: v.
        width: d.
        depth: Blocks.
        heads: h; divides `width`.
        kind: "gla" for gated linear attention, "retnet" for constant decays and rotation.
        readout_scale: Factor of the logits.
        rng: Generator of the initial weights; default: one with seed 0.

    Example:
        >>> model = LinearAttention(vocabulary=64, width=32, depth=2, heads=2)
        >>> model(torch.randint(64, (8, 20))).shape
        torch.Size([8, 20, 64])

    References: `yang2024gla`; `sun2023retnet`.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        heads: int,
        kind: str = "gla",
        readout_scale: float = 1.0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (vocabulary, width, depth, heads)
        require(min(sizes) >= 1, "LinearAttention sizes", "be at least 1", sizes)
        require(width % heads == 0, "LinearAttention.heads", f"divide width ({width})", heads)
        require(kind in KINDS, "LinearAttention.kind", "be gla or retnet", kind)
        self.vocabulary, self.width, self.depth = vocabulary, width, depth
        self.readout_scale = readout_scale
        self.table = nn.Parameter(torch.empty(vocabulary, width))
        self.blocks = nn.ModuleList(LinearAttentionBlock(width, heads, kind) for _ in range(depth))
        self.final_norm = nn.RMSNorm(width, eps=RMS_EPS)
        self.readout = nn.Parameter(torch.empty(vocabulary, width))
        if self.table.device.type != "meta":
            self._initialise(torch.Generator().manual_seed(0) if rng is None else rng)

    @torch.no_grad()
    def _initialise(self, rng: torch.Generator) -> None:
        for name, p in self.named_parameters():
            if p.ndim < 2:
                continue
            # A large factor on the logits of a narrow model must not make them confident at first.
            ends = {"table": 0.3, "readout": 1 / self.width / max(1.0, self.readout_scale)}
            std = float(ends.get(name) or p.shape[1] ** -0.5)
            if name.endswith(("output.weight", "outer")):
                std /= math.sqrt(2 * self.depth)
            p.normal_(0.0, std, generator=rng)
        for part in self.modules():
            if isinstance(part, LinearAttentionBlock) and part.decay_out is not None:
                part.decay_out.bias.zero_()

    def forward(
        self,
        tokens: Int[Tensor, "b l"],
        *,
        cache: LinearAttentionCache | None = None,
        padding: Bool[Tensor, "b l"] | None = None,
    ) -> Float[Tensor, "b l v"]:
        """Logits of the token after each.

        Args:
            tokens: Token ids.
            cache: From `new_cache`; `tokens` are then only those not yet read.
            padding: True where `tokens` are padding, on either side; it leaves the state as it is.
        """
        cache = self.new_cache() if cache is None else cache
        place = cache.positions(tokens, padding)
        x = F.embedding(tokens, self.table)
        for layer, block in enumerate(self.blocks):
            x = block(x, place, cache, layer, padding)
        return F.linear(self.readout_scale * self.final_norm(x), self.readout)

    def new_cache(self) -> LinearAttentionCache:
        """An empty cache for `model(tokens, cache=cache)`."""
        return LinearAttentionCache(self.depth)

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of input and output: table and readout."""
        yield self.table
        yield self.readout


def _rotation(
    place: Int[Tensor, "b l"], size: int, dtype: torch.dtype
) -> Float[Tensor, "2 b 1 l half"]:
    """Cosines and sines of `rotate` at any positions."""
    pairs = torch.arange(size // 2, device=place.device, dtype=dtype)
    angle = place[:, None, :, None].to(dtype) * 10_000.0 ** (-2 * pairs / size)
    return torch.stack([angle.cos(), angle.sin()])
