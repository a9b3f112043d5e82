"""The transformer, top to bottom: embedding, blocks of attention and feed-forward, readout.

Shapes: b batch, n positions, d width, h heads, m head size, r hidden size, k keys, v vocabulary.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.transformer import fast_decode, options
from allometry.models.transformer.attention import Attention, attention_mask
from allometry.models.transformer.block import Block, FeedForward, Norm, make_norm
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.experts import MixtureOfExperts
from allometry.models.transformer.positions import fixed_positions, indices


@final
class Transformer(nn.Module):
    r"""A transformer: decoder, encoder or both; trained, or filled by a construction.

    Block l maps $X$ to $Z = X + \mathrm{Attn}_l(X)$ and then to $Z + \mathrm{FF}_l(Z)$. With a
    `vocabulary` it maps token ids to logits; without one it reads real-valued tokens.

    Initial weights keep activations of one size at every width and depth. Hidden matrices are
    $N(0, 1/\text{fan in})$; those that write to the residual stream are divided by
    $\sqrt{2\,\text{depth}}$, the number of terms in the stream. The readout is $N(0, 1/d^2)$
    (the output rule of muP). Token and position tables are $N(0, 0.3^2)$, which trained better on
    text than the usual 0.02; a `tied` table keeps 0.02. Biases are 0 and gains 1.

    Args:
        vocabulary: Number of token ids; `None` for real-valued tokens.
        width: d, the size of a token in the residual stream.
        depth: Number of blocks (of the encoder and of the decoder, if there are both).
        heads: h, attention heads; divides `width` unless `head_size` is given.
        context: Largest number of positions; required unless `positions` is `None`.
        kind: "decoder" (causal), "encoder" or "encoder-decoder" (its decoder attends to `source`).
        head_size: m; default `width // heads`.
        hidden: r of the feed-forward layers, or one for each block; default `4 * width`.
        norm: "pre" (with one more norm before the readout), "post" or `None`.
        positions: "learned", "sinusoidal" or "one_hot" tables are added to the tokens (one-hot in
            the last `context` coordinates); "rotary" rotates queries and keys; `None`.
        activation: A name in `options.ACTIVATIONS` or any function of a tensor; or "swiglu",
            "geglu" or "reglu" for gated feed-forward layers, whose default `hidden` is
            `8 * width / 3`, so that the number of parameters is the same.
        hard: Hardmax attention; tied scores share equally.
        skip: Skip connections.
        bias: `True` for all of `options.BIASES`, `False` for none, or names, also "readout".
        tied: Use the token table as readout.
        shared: One block applied `depth` times, instead of `depth` blocks; or the number of blocks
            that are applied in turn, a divisor of `depth`.
        parts: For each block "both", "attention" or "feed_forward"; the other is the identity.
        inputs: Size of a real-valued token, mapped linearly to `width`; `None` for no map.
        outputs: Size of the readout; default `vocabulary`. Both `None`: no readout.
        columns: Real-valued tokens are the columns of (b, d, n), as in papers, not rows.
        attention_scale: Factor of the scores; default $1/\sqrt m$.
        readout_scale: Factor of the logits.
        norm_type: "layernorm" or "rmsnorm".
        key_value_heads: Heads of keys and values, each shared by several heads of queries
            (grouped-query attention); divides `heads`. Default: `heads`.
        qk_norm: RMSNorm of queries and keys, head by head, before the rotation.
        experts: Feed-forward layers of each block, of which a router chooses `active_experts` for
            each token (mixture of experts). Default: one layer, without a router.
        active_experts: At most `experts`.
        rng: Generator of the initial weights; default: one with seed 0.

    Attributes:
        names: Meaning of each coordinate of the residual stream, set by constructions.

    Example:
        >>> model = Transformer(vocabulary=64, width=32, depth=2, heads=4, context=16)
        >>> model(torch.randint(64, (8, 16))).shape
        torch.Size([8, 16, 64])

    References:
        `vaswani2017`; `yun2020` Eqs. (1) and (2); `yang2022` Table 3; `zhang2019rms`;
        `shazeer2020`; `ainslie2023`; `henry2020` for norms of queries and keys.
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
        shared: bool | int = False,
        parts: Sequence[str] | None = None,
        inputs: int | None = None,
        outputs: int | None = None,
        columns: bool = False,
        attention_scale: float | None = None,
        readout_scale: float = 1.0,
        norm_type: str = "layernorm",
        key_value_heads: int | None = None,
        qk_norm: bool = False,
        experts: int | None = None,
        active_experts: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = {"vocabulary": vocabulary, "width": width, "depth": depth, "heads": heads}
        options.check_sizes(**sizes, context=context, head_size=head_size)
        options.check_choices(
            context, kind=kind, norm=norm, positions=positions, norm_type=norm_type
        )
        options.check_groups(heads, key_value_heads)
        options.check_vocabulary(vocabulary, inputs, outputs, columns, tied)
        act, biases = options.activation_function(activation), options.bias_names(bias)
        gated = isinstance(activation, str) and activation in options.GATED
        options.check_shared(depth, shared)
        shapes = options.block_shapes(int(shared) or depth, width, hidden, parts, gated)
        self.vocabulary, self.width, self.depth, self.heads = vocabulary, width, depth, heads
        self.context, self.kind, self.positions = context, kind, positions
        self.head_size = head_size or width // heads
        self.hidden = max(size for _, size in shapes)
        self.tied, self.shared = tied, shared
        self.columns, self.readout_scale = columns, readout_scale
        self.names: tuple[str, ...] | None = None
        outputs = vocabulary if outputs is None else outputs
        scale = self.head_size**-0.5 if attention_scale is None else attention_scale
        norm_bias, both = "norm" in biases, kind == "encoder-decoder"

        def attention(wanted: bool) -> Attention | None:
            sizes = (width, heads, self.head_size, scale, hard, biases)
            return Attention(*sizes, key_value_heads, qk_norm) if wanted else None

        def block(part: str, size: int, cross: bool) -> Block:
            inside = (width, size, act, biases, gated)
            layers = (attention(part != "feed_forward"), attention(cross), None)
            if part != "attention" and experts is None:
                layers = (*layers[:2], FeedForward(*inside))
            elif part != "attention" and experts is not None:
                layers = (*layers[:2], MixtureOfExperts(*inside, experts, active_experts))
            return Block(*layers, width, norm, skip, norm_bias, norm_type)

        def matrix(rows: int | None, columns: int | None) -> nn.Parameter | None:
            return nn.Parameter(torch.empty(rows, columns)) if rows and columns else None

        def last_norm(wanted: bool) -> Norm | None:
            fits = wanted and norm == "pre"
            return make_norm(width, norm_type, norm_bias) if fits else None

        self.table = matrix(vocabulary, width)
        self.input = matrix(width, inputs)
        self.position_table = matrix(context, width) if positions == "learned" else None
        self.position_buffer: Tensor | None
        fixed = fixed_positions(positions, context or 0, width, self.head_size)
        self.register_buffer("position_buffer", fixed, persistent=False)
        self.encoder = nn.ModuleList(block(*s, cross=False) for s in shapes) if both else None
        self.blocks = nn.ModuleList(block(*s, cross=both) for s in shapes)
        self.encoder_norm = last_norm(both)
        self.final_norm = last_norm(True)
        self.readout = None if tied else matrix(outputs, width)
        biased = outputs is not None and "readout" in biases
        self.readout_bias = nn.Parameter(torch.zeros(outputs or 0)) if biased else None
        self._initialise(torch.Generator().manual_seed(0) if rng is None else rng)

    @torch.no_grad()
    def _initialise(self, rng: torch.Generator) -> None:
        weights = [(n.rsplit(".", 1)[-1], p) for n, p in self.named_parameters() if p.ndim > 1]
        for name, p in weights:
            std = 1 / self.width if name == "readout" else p.shape[-1] ** -0.5
            if name in {"table", "position_table"}:
                std = 0.02 if self.tied else 0.3
            if name in {"output", "outer"}:
                std /= math.sqrt(2 * self.depth)
            p.normal_(0.0, std, generator=rng)

    @staticmethod
    def yun(
        d: int,
        heads: int = 2,
        m: int = 1,
        r: int = 4,
        depth: int = 1,
        *,
        n: int | None = None,
        **more: Any,
    ) -> "Transformer":
        r"""The class $\mathcal T^{h,m,r}$ of `yun2020`, Eqs. (1) and (2), on columns (b, d, n).

        $\mathrm{Attn}(X) = X + \sum_i W_O^i W_V^i X\,\sigma[(W_K^i X)^T (W_Q^i X + b_Q^i 1^T)]$
        and $\mathrm{FF}(X) = \mathrm{Attn}(X) + W_2\,\mathrm{ReLU}(W_1 \mathrm{Attn}(X) + b_1 1^T)
        + b_2 1^T$, without norm and without $1/\sqrt m$. With `n` tokens given, learned positions
        E are added (Theorem 3). `hard`, `shared` and `parts` are those of `Transformer`.

        Differs from the paper: queries have a bias $b_Q$, which its proof uses although its
        Eq. (1) omits it.
        """
        fixed: dict[str, Any] = {"kind": "encoder", "norm": None, "activation": "relu"}
        fixed |= {"bias": ("query", "inner", "outer"), "columns": True, "attention_scale": 1.0}
        fixed |= {"positions": None if n is None else "learned", "head_size": m, "hidden": r}
        return Transformer(None, d, depth, heads, n, **fixed, **more)

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
            tokens: Token ids, or real-valued tokens. A model of token ids also takes vectors of
                its width, such as a soft prompt.
            source: Input of the encoder of an encoder-decoder; optional once the cache has it.
            padding: True where `tokens` are padding, on either side. Padding is never attended to
                and takes no position; outputs there mean nothing.
            source_padding: The same for `source`.
            cache: From `new_cache`; `tokens` are then only those not yet read, and so are the
                outputs.
        """
        tokens = tokens.mT if self.columns else tokens
        memory = self._encode(source, source_padding, cache)
        new, start = tokens.shape[1], 0
        if cache is not None:
            options.check_length(new, self.context)
            start = cache.read(tokens, padding, self.context)
            alone = start > 0 and new == 1 and padding is None
            if alone and (step := fast_decode.step_of(self, cache)) is not None:
                return step(tokens, cache, start)
            padding = cache.padding
            if start == 0 and cache.tokens is not None:
                tokens = cache.tokens
        causal = self.kind != "encoder"
        x = self._states(self.blocks, tokens, start, padding, causal, memory, cache)[-1]
        x = x[:, -new:] if cache is not None else x
        x = x if self.final_norm is None else self.final_norm(x)
        weight = self.table if self.tied else self.readout
        # Tokens are narrower than logits, so the scale is applied before unless there is a bias.
        early = self.readout_bias is None
        x = self.readout_scale * x if early and self.readout_scale != 1 else x
        x = x if weight is None else F.linear(x, weight, self.readout_bias)
        x = x if early or self.readout_scale == 1 else self.readout_scale * x
        return x.mT if self.columns else x

    def _encode(
        self, source: Tensor | None, padding: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Output and padding of the encoder, from the cache if it has them."""
        if self.encoder is None:
            require(source is None, "source", f"be None for a {self.kind}", "a tensor")
            return None, None
        if cache is not None and cache.memory is not None:
            return cache.memory, cache.memory_padding
        require(source is not None, "source", "be given to an encoder-decoder", None)
        assert source is not None
        source = source.mT if self.columns else source
        memory = self._states(self.encoder, source, 0, padding, causal=False)[-1]
        memory = memory if self.encoder_norm is None else self.encoder_norm(memory)
        if cache is not None:
            cache.memory, cache.memory_padding = memory, padding
        return memory, padding

    def _states(
        self,
        blocks: nn.ModuleList,
        tokens: Tensor,
        start: int,
        padding: Tensor | None,
        causal: bool,
        memory: tuple[Tensor | None, Tensor | None] = (None, None),
        cache: Cache | None = None,
        every: bool = False,
    ) -> list[Tensor]:
        """The residual stream after the last block; with `every`, before and after each block."""
        n = tokens.shape[1]
        options.check_length(start + n, self.context)
        x = self._embed(tokens)
        place = indices(n, start, padding, x.device)
        rotation: Tensor | None = None
        added = self.position_buffer if self.position_table is None else self.position_table
        if added is not None and self.positions == "rotary":
            rotation = added[:, place][:, :, None]
        elif added is not None:
            x = x + F.embedding(place, added)
        mask, flag = attention_mask(n, start + n, causal, padding, x.device)
        encoded, hidden = memory
        memory_mask = None if hidden is None else ~hidden[:, None, None, :]
        states = [x]
        for layer in range(self.depth):
            block = blocks[layer % len(blocks)]
            x = block(x, encoded, mask, flag, rotation, memory_mask, cache, layer)
            states = states if every else []
            states.append(x)
        return states

    def _embed(self, tokens: Tensor) -> Tensor:
        if self.table is not None and not tokens.is_floating_point():
            return F.embedding(tokens, self.table)
        size = self.width if self.input is None else self.input.shape[1]
        options.check_tokens(tokens, size, self.columns)
        return tokens if self.input is None else F.linear(tokens, self.input)

    def states(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b p q"],
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "l b _n _d"]:
        """The residual stream: embedded tokens, then the output of each block (l = depth + 1)."""
        require(self.encoder is None, "Transformer.kind", "have one stream", self.kind)
        tokens = tokens.mT if self.columns else tokens
        causal = self.kind == "decoder"
        states = torch.stack(self._states(self.blocks, tokens, 0, padding, causal, every=True))
        return states.mT if self.columns else states

    def new_cache(self, stride: int = 1) -> Cache:
        """An empty key-value cache for `model(tokens, cache=cache)`; `stride` as in `Cache`."""
        require(self.kind != "encoder", "Transformer.kind", "be causal to have a cache", self.kind)
        require(stride >= 1, "new_cache.stride", "be at least 1", stride)
        return Cache(self.depth, stride)

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of input and output: token and position tables, input map, readout."""
        ends = (self.table, self.input, self.position_table, self.readout, self.readout_bias)
        yield from (p for p in ends if p is not None)
