r"""Constructions as checkpoints of the Llama architecture: rotary positions, RMSNorm, gates.

**Positions.** A first block fetches a code of the position in exact bits (`rotary_positions`), and
one neuron for each position adds that row of the table of positions. Content is stored in pairs of
coordinates that turn by at most `STILL` radians.

**Norms.** c of the d' coordinates are the constant b, with d' = 4c, 16c or 64c. The mean of
squares is then $b^2/4$, $b^2/16$ or $b^2/64$ up to a share below the rounding of float32. Its root
is a power of 2, so that the norm with the matching gain is the identity, bit by bit.

**Neurons.** ReLU(x) is $x\,\sigma(Kx)$, the gate, times 1. It is exact in float32 for |x| of at
least 90 / K and at 0; neurons of constructions have margins of 1/2.

Letters: d width of the construction, d' of the checkpoint, h heads, m head size, r hidden size.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.construct.stock.rotary_positions import Rotation, rotation
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols, cast
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, FeedForward, Transformer

EPS = 1e-6
STEEP = 4096.0
"""K."""
ROOTS = (2, 4, 8)
"""Roots of the possible ratios of width and constants."""
BITS = 34
"""Bits by which the constants exceed the largest squared norm: 24, and 10 for larger streams."""


@final
@dataclass(frozen=True)
class Layout:
    """Coordinates of the wide stream: constants, construction, first position, bits of the code.

    Attributes:
        inner: d.
        heads: h.
        root: The square root of d' / c.
        width: d'.
        level: b.
        turned: Pairs of heads, and the code of positions.
    """

    inner: int
    heads: int
    root: int
    width: int
    level: float
    turned: Rotation

    @property
    def constants(self) -> int:
        """Number of constant coordinates, c."""
        return self.width // self.root**2

    @property
    def size(self) -> int:
        """Head size, m."""
        return 2 * self.turned.pairs

    @property
    def first(self) -> int:
        """The coordinate that is 1 at the start token and 0 elsewhere."""
        return self.constants + self.inner

    def rows(self, rows: Tensor) -> Float[Tensor, "k wide"]:
        """Rows (k, d) of the stream as rows of the wide stream."""
        wide = torch.zeros(len(rows), self.width, dtype=torch.float64)
        wide[:, self.constants : self.first] = rows
        return wide

    def reads(self, weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "k wide"]:
        """A matrix (k, d) and a bias that read the wide stream; the norm makes constant 0 one."""
        wide = self.rows(weight)
        if bias is not None:
            wide[:, 0] = bias
        return wide

    def gains(self) -> Float[Tensor, " wide"]:
        """Gains of a norm: the identity, 1 for the first constant, 0 for the others."""
        gains = torch.full((self.width,), self.level / self.root, dtype=torch.float64)
        gains[: self.constants] = 0.0
        gains[0] = 1 / self.root
        return gains

    def places(self, content: int) -> list[int]:
        """Coordinates of a head that do not turn; pair i is (i, i + M)."""
        pairs = range(self.turned.still, self.turned.pairs)
        return [*pairs, *(i + self.turned.pairs for i in pairs)][:content]


def constructed(
    model: Transformer, largest: float, symbols: Symbols, scale: float, precision: str
) -> Checkpoint:
    """A causal construction: a language model, or a token classifier with other outputs.

    Args:
        model: The construction.
        largest: Largest squared norm of its residual stream.
        symbols: Its tokens.
        scale: Factor on the scores.
        precision: Of the weights.
    """
    fix = "Leave out the architecture."
    require(model.kind == "decoder", "export.made", "be causal for Llama", model.kind, fix)
    assert model.table is not None
    require(len(symbols.before) == 1, "export.made", "have a start token for Llama", "none", fix)
    table, places = model.table.detach().clone(), model.position_table
    rows = torch.zeros(model.context or 1, model.width) if places is None else places.detach()
    coded = bool((rows[1:] != 0).any())
    at = _layout(model, largest, coded)
    start = symbols.before[0]
    table[start] += rows[0]
    embedded = at.rows(table)
    embedded[:, : at.constants] = at.level
    embedded[start, at.first] = 1.0
    parts = [b.feed_forward for b in model.blocks if isinstance(b, Block)]
    biased = any(isinstance(p, FeedForward) and p.outer_bias is not None for p in parts)
    hidden = max(model.hidden + biased, len(rows) - 1 if coded else 1, 1)
    weights: dict[str, Tensor] = {"model.embed_tokens.weight": embedded}
    if coded:
        weights |= _positions(at, rows, hidden)
    for layer in range(model.depth):
        block = model.blocks[layer % len(model.blocks)]
        assert isinstance(block, Block)
        part = block.feed_forward
        assert part is None or isinstance(part, FeedForward)
        name = f"model.layers.{layer + coded}"
        weights |= _attention(block.attention, at, scale, name) | _neurons(part, at, hidden, name)
    for layer in range(model.depth + coded):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{norm}.weight"] = at.gains()
    weights["model.norm.weight"] = at.gains()
    assert model.readout is not None
    bias = None if model.readout_bias is None else model.readout_bias.detach()
    generates = model.readout.shape[0] == len(symbols.words) and symbols.labels is None
    if generates:
        weights["lm_head.weight"] = at.reads(model.readout.detach(), bias)
    else:
        weights["score.weight"] = at.reads(model.readout.detach())
        zero = torch.zeros(len(model.readout))
        weights["score.bias"] = zero if bias is None else bias
    config = _config(at, model, hidden, coded, generates, symbols) | {"dtype": precision}
    ids = list(range(len(symbols.words)))
    made = cast(weights, precision)
    return Checkpoint(config, made, ids, None, precision, generates, int(coded), STEEP)


def _layout(model: Transformer, largest: float, coded: bool) -> Layout:
    turned = rotation(model.context or 1, model.head_size, coded)
    heads = max(model.heads, len(turned.bits), 1)
    needed = model.width + 1 + len(turned.bits)
    widths = []
    for root in ROOTS:
        step = math.lcm(root**2, heads)  # `transformers` wants heads to divide the width
        count = math.ceil(needed / (1 - 1 / root**2) / step)
        widths.append((count * step, root))
    width, root = min(widths)
    constants = width // root**2
    level = 2.0 ** math.ceil((BITS + math.log2(max(largest, 1.0) / constants)) / 2)
    return Layout(model.width, heads, root, width, level, turned)


def _positions(at: Layout, rows: Tensor, hidden: int) -> dict[str, Tensor]:
    """The first block: heads fetch the bits of the code, neurons look up rows of the table."""
    bits, codes = at.turned.bits, torch.from_numpy(at.turned.codes)
    shape = (at.heads, at.size, at.width)
    query, key = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
    value = torch.zeros(shape, dtype=torch.float64)
    output = torch.zeros(at.heads, at.size, at.width, dtype=torch.float64)
    for h, bit in enumerate(bits):
        query[h, bit.pair, 0] = bit.cosine * math.sqrt(at.size)
        query[h, bit.pair + at.turned.pairs, 0] = bit.sine * math.sqrt(at.size)
        key[h, bit.pair, at.first] = 1.0
        value[h, 0, at.first] = 1.0
        output[h, 0, at.first + 1 + h] = 1.0
    gate = torch.zeros(hidden, at.width, dtype=torch.float64)
    down = torch.zeros(at.width, hidden, dtype=torch.float64)
    count = len(codes)
    # 1 where all bits are equal, at most 0 elsewhere and at the start token.
    gate[:count, at.first + 1 : at.first + 1 + len(bits)] = 2.0 * codes - 1.0
    gate[:count, 0] = 1.0 - codes.sum(1)
    gate[:count, at.first] = -float(len(bits) + 1)
    down[:, :count] = at.rows(rows[1:]).T
    layers = {"q": query, "k": key, "v": value}
    name = "model.layers.0"
    projected = {f"{name}.self_attn.{x}_proj.weight": w.flatten(0, 1) for x, w in layers.items()}
    return {
        **projected,
        f"{name}.self_attn.o_proj.weight": output.flatten(0, 1).T,
        **_gated(at, gate, down, name),
    }


def _gated(at: Layout, gate: Tensor, down: Tensor, name: str) -> dict[str, Tensor]:
    """Neurons ReLU(gate x) as silu(K gate x) / K."""
    up = torch.zeros_like(gate)
    up[:, 0] = 1.0
    return {
        f"{name}.mlp.gate_proj.weight": STEEP * gate,
        f"{name}.mlp.up_proj.weight": up,
        f"{name}.mlp.down_proj.weight": down / STEEP,
    }


def _neurons(part: FeedForward | None, at: Layout, hidden: int, name: str) -> dict[str, Tensor]:
    gate = torch.zeros(hidden, at.width, dtype=torch.float64)
    down = torch.zeros(at.width, hidden, dtype=torch.float64)
    if part is not None:
        r = len(part.inner)
        bias = None if part.inner_bias is None else part.inner_bias.detach()
        gate[:r] = at.reads(part.inner.detach(), bias)
        down[:, :r] = at.rows(part.outer.detach().T).T
        if part.outer_bias is not None:
            gate[r, 0] = 1.0  # a neuron that is always 1
            down[:, r] = at.rows(part.outer_bias.detach()[None])[0]
    return _gated(at, gate, down, name)


def _attention(part: Attention | None, at: Layout, scale: float, name: str) -> dict[str, Tensor]:
    """Attention whose queries and keys are in the coordinates that do not turn."""
    zero = torch.zeros(at.heads * at.size, at.width, dtype=torch.float64)
    found = dict.fromkeys("qkv", zero)
    output = zero
    if part is not None:
        still, moving = at.places(part.size), list(range(part.size))

        def heads(weight: Tensor, bias: Tensor | None, places: list[int]) -> Tensor:
            wide = at.reads(weight.detach(), None if bias is None else bias.detach())
            spread = torch.zeros(at.heads, at.size, at.width, dtype=torch.float64)
            spread[: part.heads, places] = wide.unflatten(0, (part.heads, part.size))
            return spread.flatten(0, 1)

        factor = scale * math.sqrt(at.size)
        found["q"] = factor * heads(part.query, part.query_bias, still)
        found["k"] = heads(part.key, part.key_bias, still)
        found["v"] = heads(part.value, part.value_bias, moving)
        output = heads(part.output.detach().T, None, moving)
        none = part.output_bias is None or not bool(part.output_bias.any())
        require(none, "export.made", "have no output bias of heads for Llama", "one")
    projected = {f"{name}.self_attn.{x}_proj.weight": w for x, w in found.items()}
    return projected | {f"{name}.self_attn.o_proj.weight": output.T}


def _config(
    at: Layout, model: Transformer, hidden: int, coded: bool, generates: bool, symbols: Symbols
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM" if generates else "LlamaForTokenClassification"],
        "vocab_size": len(symbols.words),
        "hidden_size": at.width,
        "num_hidden_layers": model.depth + coded,
        "num_attention_heads": at.heads,
        "num_key_value_heads": at.heads,
        "head_dim": at.size,
        "intermediate_size": hidden,
        "hidden_act": "silu",
        "max_position_embeddings": model.context or 1,
        "rms_norm_eps": EPS,
        "rope_theta": at.turned.base,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": symbols.before[0],
        "eos_token_id": list(symbols.ends) or None,
    }
    if not generates:
        labels = list(symbols.labels or ())
        config["classifier_dropout"] = 0.0
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    return config
