"""Build transformers from heads and neurons that read and write named coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, FeedForward, Transformer

Terms = Mapping[str, float]
"""A linear form: factors by coordinate; the name "1" is the constant."""

ONE = "1"

Array = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Head:
    """An attention head.

    Args:
        score: Pairs of forms (at the query, at the key); the score is the sum of their products.
        fetch: Pairs of a form at the key (the value) and the coordinate it is added to.
        sight: Attention mask, one of `HEAD_MASKS`.
    """

    score: Sequence[tuple[Terms, Terms]]
    fetch: Sequence[tuple[Terms, str]]
    sight: str = "all"


@final
@dataclass(frozen=True)
class Neuron:
    """One ReLU: reads a form and adds multiples of the result to coordinates."""

    reads: Terms
    writes: Terms


@final
@dataclass
class Layer:
    """The heads and neurons of one block, and constants that its feed-forward part adds."""

    heads: list[Head] = field(default_factory=list)
    neurons: list[Neuron] = field(default_factory=list)
    constant: dict[str, float] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """The parts of the block: both, attention or feed_forward."""
        if self.heads and (self.neurons or self.constant):
            return "both"
        return "attention" if self.heads else "feed_forward"


def step(reads: Terms, at: float, slope: float, writes: Terms) -> list[Neuron]:
    r"""Two neurons that add `writes` if the form exceeds `at`, and nothing if it is below.

    $\mathrm{ReLU}(K(x - t) + \frac12) - \mathrm{ReLU}(K(x - t) - \frac12)$ is 0 up to
    $t - \frac1{2K}$ and 1 from $t + \frac1{2K}$ on.

    Args:
        reads: x.
        at: t.
        slope: K.
        writes: Factors of the step, by coordinate.
    """
    scaled = {name: slope * factor for name, factor in reads.items()}
    neurons = []
    for half, sign in ((0.5, 1.0), (-0.5, -1.0)):
        form = dict(scaled)
        form[ONE] = form.get(ONE, 0.0) - slope * at + half
        neurons.append(Neuron(form, {name: sign * factor for name, factor in writes.items()}))
    return neurons


def erase(name: str) -> Neuron:
    """A neuron that sets a nonnegative coordinate to 0."""
    return Neuron({name: 1.0}, {name: -1.0})


@torch.no_grad()
def build(
    names: Sequence[str],
    layers: Sequence[Layer],
    *,
    tokens: Sequence[Terms],
    places: Sequence[Terms],
    readout: Sequence[Terms] | None,
    kind: str,
    hard: bool,
    scale: float = 1.0,
    repeat: int | None = None,
    even: bool = True,
) -> Transformer:
    """A transformer with the given weights, in float64.

    Args:
        names: Coordinates of the residual stream.
        layers: Layers, one for each block.
        tokens: Embedding of each token id.
        places: Embedding of each position.
        readout: Output forms; `None` outputs the residual stream.
        kind: "encoder" or "decoder".
        hard: Hardmax attention.
        scale: Factor on all scores.
        repeat: Apply the blocks this many times, with the same weights.
        even: Whether all blocks have the hidden size of the largest one.
    """
    index = {name: i for i, name in enumerate(names)}
    heads = max([len(layer.heads) for layer in layers] + [1])
    pairs = [head for layer in layers for head in layer.heads]
    size = max([max(len(h.score), len(h.fetch)) for h in pairs] + [1])
    sizes = [max(1, len(layer.neurons)) for layer in layers]
    biases = [
        *(["query"] if any(ONE in q for h in pairs for q, _ in h.score) else []),
        *(["key"] if any(ONE in k for h in pairs for _, k in h.score) else []),
        *(["value"] if any(ONE in v for h in pairs for v, _ in h.fetch) else []),
        *(["inner"] if any(ONE in u.reads for y in layers for u in y.neurons) else []),
        *(["outer"] if any(y.constant for y in layers) else []),
        *(["readout"] if readout and any(ONE in r for r in readout) else []),
    ]
    model = Transformer(
        vocabulary=len(tokens),
        width=len(names),
        depth=(repeat or 1) * len(layers),
        heads=heads,
        context=len(places),
        kind=kind,
        head_size=size,
        hidden=max(sizes) if even else sizes,
        norm=None,
        positions="learned",
        activation="relu",
        hard=hard,
        bias=biases,
        shared=False if repeat is None else len(layers),
        parts=[layer.part for layer in layers],
        outputs=len(readout) if readout else len(names),
        attention_scale=scale,
    ).double()
    model.names = tuple(names)
    for parameter in model.parameters():
        parameter.zero_()
    assert model.table is not None
    assert model.position_table is not None
    table, position_table = _array(model.table), _array(model.position_table)
    for row, terms in enumerate(tokens):
        _fill(table[row], terms, index)
    for row, terms in enumerate(places):
        _fill(position_table[row], terms, index)
    for block, layer in zip(model.blocks, layers, strict=True):
        assert isinstance(block, Block)
        _fill_block(block, layer, index)
    assert model.readout is not None
    if readout is None:
        model.readout.copy_(torch.eye(len(names), dtype=torch.float64))
    else:
        weights, bias = _array(model.readout), _optional(model.readout_bias)
        for row, terms in enumerate(readout):
            _fill(weights[row], terms, index, _at(bias, row))
    return model.requires_grad_(False).eval()


def _fill_block(block: Block, layer: Layer, index: Mapping[str, int]) -> None:
    if block.attention is not None:
        _fill_attention(block.attention, layer.heads, index)
    if isinstance(block.feed_forward, FeedForward):
        _fill_feed_forward(block.feed_forward, layer, index)


def _fill_attention(attention: Attention, heads: Sequence[Head], index: Mapping[str, int]) -> None:
    sight = [head.sight for head in heads] + ["all"] * (attention.heads - len(heads))
    if set(sight) != {"all"}:
        attention.head_masks = tuple(sight)
    query, key = _array(attention.query), _array(attention.key)
    value, output = _array(attention.value), _array(attention.output)
    query_bias, key_bias = _optional(attention.query_bias), _optional(attention.key_bias)
    value_bias = _optional(attention.value_bias)
    for h, head in enumerate(heads):
        first = h * attention.size
        for i, (asks, answers) in enumerate(head.score, first):
            _fill(query[i], asks, index, _at(query_bias, i))
            _fill(key[i], answers, index, _at(key_bias, i))
        for i, (read, to) in enumerate(head.fetch, first):
            _fill(value[i], read, index, _at(value_bias, i))
            output[index[to], i] += 1.0


def _fill_feed_forward(part: FeedForward, layer: Layer, index: Mapping[str, int]) -> None:
    inner, outer, bias = _array(part.inner), _array(part.outer), _optional(part.inner_bias)
    for i, neuron in enumerate(layer.neurons):
        _fill(inner[i], neuron.reads, index, _at(bias, i))
        for name, factor in neuron.writes.items():
            outer[index[name], i] += factor
    for name, value in layer.constant.items():
        assert part.outer_bias is not None
        part.outer_bias[index[name]] += value


def _array(weight: Tensor) -> Array:
    """The memory of a weight: single entries of arrays are set faster than those of tensors."""
    return weight.detach().numpy()


def _optional(weight: Tensor | None) -> Array | None:
    return None if weight is None else _array(weight)


def _at(bias: Array | None, i: int) -> Array | None:
    return None if bias is None else bias[i : i + 1]


def _fill(row: Array, terms: Terms, index: Mapping[str, int], bias: Array | None = None) -> None:
    for name, factor in terms.items():
        if name != ONE:
            row[index[name]] += factor
        elif factor:
            assert bias is not None
            bias += factor


def codes(i: int, bits: int, name: str) -> dict[str, float]:
    """The bits of i that are 1, as coordinates `name0`, `name1`, ..."""
    return {f"{name}{r}": 1.0 for r in range(bits) if i >> r & 1}


def indexed(name: str, bits: int) -> list[str]:
    """The names `name0`, `name1`, ... of `bits` coordinates."""
    return [f"{name}{r}" for r in range(bits)]
