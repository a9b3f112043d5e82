"""The transformer, in one reading: embedding, blocks of attention and feed-forward, readout.

Letters: b batch, n positions, d width, h heads, m head size, r hidden size, v vocabulary.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.transformer import positions as where
from allometry.models.transformer.attention import Attention, visible
from allometry.models.transformer.block import ACTIVATIONS, BIASES, Block, FeedForward
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.checks import check
from allometry.models.transformer.fast_decode import Step, applies


@final
class Transformer(nn.Module):
    r"""A transformer: decoder, encoder or both; trained, or filled by a construction.

    Block l maps $X$ to $Z = X + \mathrm{Attn}_l(X)$ and then to $Z + \mathrm{FF}_l(Z)$; norms,
    positions, masks and readout are options. With a `vocabulary` it reads token ids and gives
    logits; without one it reads real tokens of size `inputs` (or `width`).

    Initial weights, chosen so that neither width nor depth changes the size of what flows: hidden
    matrices are $N(0, 1/\text{fan in})$; those that write to the residual stream are divided by
    $\sqrt{2\,\text{depth}}$, for that many are added up; the readout is $N(0, 1/d^2)$, so that
    first logits vanish as the width grows (the output rule of muP) and yet are not all equal;
    tables of tokens and positions are $N(0, 0.3^2)$, about what blocks write, which on text
    trained better at learning rates near the best than the usual 0.02 (kept for a `tied` table,
    whose logits would be too large); biases are 0 and gains 1.

    Args:
        vocabulary: Number of token ids; `None` for real-valued tokens.
        width: d, the size of a token inside.
        depth: Number of blocks (of the encoder and of the decoder, if there are both).
        heads: h, heads of attention; divides `width` unless `head_size` is given.
        context: Most positions it can see; needed by every kind of `positions` but `None`.
        kind: "decoder" (causal), "encoder" (sees everything) or "encoder-decoder", which encodes
            `source` and lets the decoder attend to it.
        head_size: m; default `width // heads`.
        hidden: r, the hidden size of the feed-forward layers, or one for each block; default
            `4 * width`.
        norm: "pre" (with one more norm before the readout), "post" or `None`.
        positions: "learned", "sinusoidal" or "one_hot" tables are added to the tokens (one-hot in
            the last `context` coordinates); "rotary" turns queries and keys; `None`.
        activation: A name in `ACTIVATIONS` or any function of a tensor.
        hard: Hardmax attention; tied scores share equally.
        skip: Skip connections.
        bias: `True` for all of `BIASES`, `False` for none, or the names of those wanted, to which
            "readout" may be added.
        tied: Readout with the token table.
        shared: One block applied `depth` times, instead of `depth` blocks.
        parts: For each block, "both", "attention" or "feed_forward": the other part is then
            absent, which is the identity at no cost.
        inputs: Size of a real-valued token, mapped linearly to `width`; `None` takes it as it is.
        outputs: Size of the readout; default `vocabulary`. Both `None`: no readout.
        columns: Real-valued tokens are the columns of (b, d, n), as in papers, not rows.
        attention_scale: What multiplies the scores; default $1/\sqrt m$.
        readout_scale: What multiplies the logits.
        rng: Source of the initial weights; `None` means a generator with seed 0.

    Attributes:
        names: What each coordinate of the stream stands for, set by constructions.

    Example:
        >>> model = Transformer(vocabulary=64, width=32, depth=2, heads=4, context=16)
        >>> model(torch.randint(64, (8, 16))).shape
        torch.Size([8, 16, 64])

    References:
        `vaswani2017`; `yun2020` Eqs. (1) and (2); `yang2022` Table 3.
    """

    def __init__(
        self,
        vocabulary: int | None,
        width: int,
        depth: int,
        heads: int,
        context: int | None = None,
        *,
        kind: str = "decoder",
        head_size: int | None = None,
        hidden: int | Sequence[int] | None = None,
        norm: str | None = "pre",
        positions: str | None = "learned",
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        hard: bool = False,
        skip: bool = True,
        bias: bool | Collection[str] = True,
        tied: bool = False,
        shared: bool = False,
        parts: Sequence[str] | None = None,
        inputs: int | None = None,
        outputs: int | None = None,
        columns: bool = False,
        attention_scale: float | None = None,
        readout_scale: float = 1.0,
        rng: torch.Generator | None = None,
    ) -> None:
        check({k: v for k, v in locals().items() if k not in ("self", "rng", "__class__")})
        super().__init__()
        outputs = vocabulary if outputs is None else outputs
        self.vocabulary, self.width, self.depth, self.heads = vocabulary, width, depth, heads
        self.context, self.kind, self.positions = context, kind, positions
        self.head_size = head_size or width // heads
        blocks = 1 if shared else depth
        hidden = 4 * width if hidden is None else hidden
        sizes = [hidden] * blocks if isinstance(hidden, int) else list(hidden)
        self.hidden = max(sizes)
        self.tied, self.shared, self.columns = tied, shared, columns
        self.readout_scale = readout_scale
        self.names: tuple[str, ...] | None = None
        biases = BIASES if bias is True else () if bias is False else tuple(bias)
        act = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        scale = self.head_size**-0.5 if attention_scale is None else attention_scale

        def attention() -> Attention:
            return Attention(width, heads, self.head_size, scale, hard, biases)

        def block(part: str, size: int, cross: bool) -> Block:
            return Block(
                attention() if part != "feed_forward" else None,
                attention() if cross else None,
                FeedForward(width, size, act, biases) if part != "attention" else None,
                *(width, norm, skip, "norm" in biases),
            )

        def stack(cross: bool) -> nn.ModuleList:
            kinds = zip(parts or ["both"] * blocks, sizes, strict=True)
            return nn.ModuleList(block(part, size, cross) for part, size in kinds)

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, width))

        self.table = table(vocabulary) if vocabulary else None
        self.input = nn.Parameter(torch.empty(width, inputs)) if inputs else None
        self.position_table = table(context or 0) if positions == "learned" else None
        fixed = {"sinusoidal": where.sinusoidal, "one_hot": where.one_hot}.get(positions or "")
        rotary = where.rotations(context or 0, self.head_size) if positions == "rotary" else None
        self.position_buffer: Tensor | None
        self.register_buffer(
            "position_buffer", fixed(context or 0, width) if fixed else rotary, persistent=False
        )
        both = kind == "encoder-decoder"
        self.encoder = stack(cross=False) if both else None
        self.blocks = stack(cross=both)
        ends = norm == "pre"
        self.encoder_norm = nn.LayerNorm(width, bias="norm" in biases) if ends and both else None
        self.final_norm = nn.LayerNorm(width, bias="norm" in biases) if ends else None
        self.readout = nn.Parameter(torch.empty(outputs, width)) if outputs and not tied else None
        named = outputs is not None and "readout" in biases
        self.readout_bias = nn.Parameter(torch.zeros(outputs or 0)) if named else None
        self._initialise(torch.Generator().manual_seed(0) if rng is None else rng)

    @staticmethod
    def yun(
        d: int,
        heads: int = 2,
        m: int = 1,
        r: int = 4,
        depth: int = 1,
        *,
        n: int | None = None,
        hard: bool = False,
        shared: bool = False,
        parts: Sequence[str] | None = None,
    ) -> "Transformer":
        r"""The class $\mathcal T^{h,m,r}$: the paper's blocks on the columns of (b, d, n).

        $\mathrm{Attn}(X) = X + \sum_i W_O^i W_V^i X\,\sigma[(W_K^i X)^T (W_Q^i X + b_Q^i 1^T)]$
        and $\mathrm{FF}(X) = \mathrm{Attn}(X) + W_2\,\mathrm{ReLU}(W_1 \mathrm{Attn}(X) + b_1 1^T)
        + b_2 1^T$, without norm and without $1/\sqrt m$.

        Differs from the paper: queries have a bias $b_Q$, which its proof uses though its Eq. (1)
        leaves it out.

        Args:
            d: Size of a token.
            heads: h.
            m: Head size.
            r: Hidden size.
            depth: Number of blocks.
            n: Number of tokens; given, learned positions E are added (the paper's Theorem 3).
            hard: Hardmax attention.
            shared: One block applied `depth` times.
            parts: Which blocks have attention, feed-forward or both.

        References:
            `yun2020` Eqs. (1) and (2).
        """
        return Transformer(
            *(None, d, depth, heads, n),
            kind="encoder",
            head_size=m,
            hidden=r,
            norm=None,
            positions=None if n is None else "learned",
            activation="relu",
            hard=hard,
            bias=("query", "inner", "outer"),
            shared=shared,
            parts=parts,
            columns=True,
            attention_scale=1.0,
        )

    def forward(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b p q"],
        source: Int[Tensor, "b k"] | Float[Tensor, "b s t"] | None = None,
        *,
        padding: Bool[Tensor, "b n"] | None = None,
        source_padding: Bool[Tensor, "b k"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "b _out _v"]:
        """Logits (or real outputs) at every position.

        Args:
            tokens: Token ids, or real-valued tokens; a model of token ids takes vectors of its
                width in their place, as a soft prompt has them.
            source: What an encoder-decoder encodes; may be left out once a cache has it.
            padding: True where `tokens` are padding, on either side. Padding is never looked at
                and takes no position; outputs there mean nothing.
            source_padding: The same for `source`.
            cache: From `new_cache`; then only the tokens not yet read need be given, and only
                their outputs come back.
        """
        tokens = tokens.mT if self.columns else tokens
        memory, memory_padding = self._encode(source, source_padding, cache)
        new, start = tokens.shape[1], 0
        if cache is not None:
            self._fits(new)
            start = cache.read(tokens, padding, self.context)
            if start > 0 and new == 1 and padding is None and self._steps(cache):
                assert cache.step is not None
                return cache.step(tokens, cache, start)
            padding = cache.padding
            if start == 0 and cache.tokens is not None:
                tokens = cache.tokens
        causal = self.kind != "encoder"
        x = self._run(self.blocks, tokens, start, padding, causal, memory, memory_padding, cache)[
            -1
        ]
        x = x[:, -new:] if cache is not None else x
        x = x if self.final_norm is None else self.final_norm(x)
        weight = self.table if self.tied else self.readout
        # Tokens are narrower than logits, so the scale goes in front where a bias lets it.
        early = self.readout_bias is None
        x = self.readout_scale * x if early and self.readout_scale != 1 else x
        if weight is not None:
            x = F.linear(x, weight, self.readout_bias)
        x = x if early or self.readout_scale == 1 else self.readout_scale * x
        return x.mT if self.columns else x

    def states(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b p q"],
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "l b _n _d"]:
        """The residual stream: the embedded tokens, then what each block leaves (l = depth + 1).

        Args:
            tokens: Token ids, or real-valued tokens.
            padding: True where they are padding.
        """
        require(self.encoder is None, "Transformer.kind", "have one stream", self.kind)
        tokens = tokens.mT if self.columns else tokens
        states = torch.stack(
            self._run(self.blocks, tokens, 0, padding, self.kind == "decoder", keep=True)
        )
        return states.mT if self.columns else states

    def new_cache(self, stride: int = 1) -> Cache:
        """An empty memory for `model(tokens, cache=cache)`.

        Args:
            stride: How many tokens are forgotten at once when the context is full; see `Cache`.
        """
        require(self.kind != "encoder", "Transformer.kind", "be causal to have a cache", self.kind)
        require(stride >= 1, "new_cache.stride", "be at least 1", stride)
        return Cache(self.depth, stride)

    def _steps(self, cache: Cache) -> bool:
        """Whether one more token may go the short way, which no gradient can follow."""
        if torch.is_grad_enabled():
            return False
        if cache.step is None and applies(self):
            cache.step = Step(self)
        return cache.step is not None

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the way in and out: token and position tables, input map, readout."""
        ends = (self.table, self.input, self.position_table, self.readout, self.readout_bias)
        yield from (p for p in ends if p is not None)

    def _run(
        self,
        blocks: nn.ModuleList,
        tokens: Tensor,
        start: int,
        padding: Tensor | None,
        causal: bool,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        cache: Cache | None = None,
        keep: bool = False,
    ) -> list[Tensor]:
        """The stream after the last block, or after every block if `keep`."""
        total = start + tokens.shape[1]
        self._fits(total)
        x = self._embed(tokens)
        place = where.indices(tokens.shape[1], start, padding, x.device)
        turn: Tensor | None = None
        if self.positions == "rotary":
            assert self.position_buffer is not None
            turn = self.position_buffer[:, place][:, :, None]
        elif self.positions is not None:
            added = self.position_buffer if self.position_table is None else self.position_table
            assert added is not None
            x = x + F.embedding(place, added)
        mask, flag = visible(tokens.shape[1], total, causal, padding, x.device)
        memory_mask = None if memory_padding is None else ~memory_padding[:, None, None, :]
        states = [x]
        for layer in range(self.depth):
            block = blocks[0 if self.shared else layer]
            x = block(x, memory, mask, flag, turn, memory_mask, cache, layer)
            states = states if keep else []
            states.append(x)
        return states

    def _embed(self, tokens: Tensor) -> Tensor:
        if self.table is not None and not tokens.is_floating_point():
            return F.embedding(tokens, self.table)
        size = self.width if self.input is None else self.input.shape[1]
        axis = 1 if self.columns else 2
        require(
            tokens.ndim == 3 and tokens.shape[2] == size,
            "tokens",
            f"be real-valued of size {size} along axis {axis} of 3",
            tuple(tokens.mT.shape if self.columns else tokens.shape),
        )
        return tokens if self.input is None else F.linear(tokens, self.input)

    def _encode(
        self, source: Tensor | None, padding: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor | None, Tensor | None]:
        if self.encoder is None:
            require(source is None, "source", f"be None for a {self.kind}", "a tensor")
            return None, None
        if cache is not None and cache.memory is not None:
            return cache.memory, cache.memory_padding
        require(source is not None, "source", "be given to an encoder-decoder", None)
        assert source is not None
        source = source.mT if self.columns else source
        memory = self._run(self.encoder, source, 0, padding, causal=False)[-1]
        memory = memory if self.encoder_norm is None else self.encoder_norm(memory)
        if cache is not None:
            cache.memory, cache.memory_padding = memory, padding
        return memory, padding

    def _fits(self, length: int) -> None:
        require(
            self.context is None or length <= self.context,
            "tokens",
            f"be at most context ({self.context}) long",
            length,
            "Cut them, or build the model with a larger context.",
        )

    @torch.no_grad()
    def _initialise(self, rng: torch.Generator) -> None:
        for name, p in self.named_parameters():
            last = name.rsplit(".", 1)[-1]
            if p.ndim < 2:
                continue
            std = 1 / self.width if last == "readout" else p.shape[1] ** -0.5
            if last in {"table", "position_table"}:
                std = 0.02 if self.tied else 0.3
            if last in {"output", "outer"}:
                std /= math.sqrt(2 * self.depth)
            p.normal_(0.0, std, generator=rng)
