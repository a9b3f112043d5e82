"""Export a transformer, constructed or trained, as an ONNX graph in the precision of its weights.

Letters: b batch, n positions, d width, h heads, m head size.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from allometry._core.errors import require, require_extra
from allometry.models.transformer import options
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.block import Norm
from allometry.models.transformer.model import Block, FeedForward, Transformer

OPSET = 18


@final
class Graph:
    """Nodes and constants of a graph; every method returns the name of its result."""

    def __init__(self, dtype: Any) -> None:
        self.onnx = require_extra("onnx", "onnx")
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any, name: str | None = None) -> str:
        """Add a constant; integers become int64, floats the precision of the graph."""
        array = np.asarray(value.detach().numpy() if isinstance(value, Tensor) else value)
        array = array.astype(np.int64 if array.dtype.kind in "iu" else self.dtype)
        name = name or f"constant {len(self.constants)}"
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def add(self, kind: str, *inputs: str, out: str | None = None, **options: Any) -> str:
        """Add an operator."""
        name = out or f"{kind} {len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **options))
        return name

    def linear(self, x: str, weight: Tensor, bias: Tensor | None, name: str) -> str:
        """Add `x @ weight.T + bias`."""
        y = self.add("MatMul", x, self.constant(weight.T.contiguous(), name))
        return y if bias is None else self.add("Add", y, self.constant(bias, f"{name}_bias"))


def graph(model: Transformer) -> Any:
    """The ONNX model: maps `tokens`, ids (b, n) or numbers (b, d, n), to `outputs`.

    Args:
        model: A decoder or an encoder with a named activation.
    """
    double = next(model.parameters()).dtype == torch.float64
    made = Graph(np.float64 if double else np.float32)
    onnx, helper = made.onnx, made.onnx.helper
    number = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    if model.table is not None:
        dims, kind = ["batch", "length"], onnx.TensorProto.INT64
        x = made.add("Gather", made.constant(model.table, "table"), "tokens")
        length = _length(made, "tokens", 1)
    else:
        dims, kind = ["batch", model.width, "length"], number
        x = made.add("Transpose", "tokens", perm=[0, 2, 1])
        length = _length(made, "tokens", 2)
    place = made.add("Range", made.constant(0), length, made.constant(1))
    rotation = None
    added = model.position_buffer if model.position_table is None else model.position_table
    if model.positions == "rotary":
        rotation = _rotations(made, model.position_buffer, place)
    elif added is not None:
        table = made.constant(added, "position_table")
        x = made.add("Add", x, made.add("Gather", table, place))
    for layer in range(model.depth):
        at = layer % len(model.blocks)
        block = model.blocks[at]
        assert isinstance(block, Block)
        name = f"blocks.{at}"
        causal = model.kind == "decoder"
        if block.attention is not None:
            part = partial(_attention, made, part=block.attention, place=place, causal=causal)
            part = partial(part, name=name, rotation=rotation)
            x = _residual(made, x, part, block.attention_norm, block.norm, f"{name}.norm_1")
        if isinstance(block.feed_forward, FeedForward):
            part = partial(_feed_forward, made, part=block.feed_forward, name=name)
            x = _residual(made, x, part, block.feed_forward_norm, block.norm, f"{name}.norm_2")
    if model.final_norm is not None:
        x = _norm(made, x, model.final_norm, "final_norm")
    readout = model.table if model.tied else model.readout
    if readout is not None:
        x = made.linear(x, model.readout_scale * readout, model.readout_bias, "readout")
    last = {"perm": [0, 2, 1]} if model.columns else {}
    made.add("Transpose" if model.columns else "Identity", x, out="outputs", **last)
    result = helper.make_graph(
        made.nodes,
        "allometry",
        [helper.make_tensor_value_info("tokens", kind, dims)],
        [helper.make_tensor_value_info("outputs", number, ["batch", None, None])],
        list(made.constants.values()),
    )
    opset = [helper.make_opsetid("", OPSET)]
    onnx_model = helper.make_model(
        result, opset_imports=opset, producer_name="allometry", ir_version=9
    )
    onnx.checker.check_model(onnx_model)
    return onnx_model


def _length(made: Graph, x: str, axis: int) -> str:
    return made.add("Gather", made.add("Shape", x), made.constant(axis))


def _residual(
    made: Graph, x: str, part: Callable[..., str], norm: Norm | None, kind: Any, name: str
) -> str:
    """`x + part(norm(x))` ("pre"), `norm(x + part(x))` ("post") or `x + part(x)`."""
    y = part(x=_norm(made, x, norm, name) if norm is not None and kind == "pre" else x)
    y = made.add("Add", x, y)
    return _norm(made, y, norm, name) if norm is not None and kind == "post" else y


def _norm(made: Graph, x: str, norm: Norm, name: str) -> str:
    gain = made.constant(norm.weight, f"{name}_gain")
    if isinstance(norm, nn.RMSNorm):
        square = made.add("ReduceMean", made.add("Mul", x, x), made.constant([-1]), keepdims=1)
        size = made.add("Sqrt", made.add("Add", square, made.constant(float(norm.eps or 0.0))))
        return made.add("Mul", made.add("Div", x, size), gain)
    bias = [] if norm.bias is None else [made.constant(norm.bias, f"{name}_bias")]
    return made.add("LayerNormalization", x, gain, *bias, axis=-1, epsilon=norm.eps)


def _rotations(made: Graph, table: Tensor | None, place: str) -> tuple[str, str]:
    """Cosines and signed sines (n, m) of the positions; see `positions.rotate`."""
    assert table is not None
    cos, sin = table[0], table[1]
    full = made.constant(torch.cat([cos, cos], -1), "cosines")
    signed = made.constant(torch.cat([-sin, sin], -1), "sines")
    return made.add("Gather", full, place), made.add("Gather", signed, place)


def _rotate(made: Graph, x: str, rotation: tuple[str, str], size: int) -> str:
    order = made.constant([*range(size // 2, size), *range(size // 2)])
    swapped = made.add("Gather", x, order, axis=-1)
    return made.add("Add", made.add("Mul", x, rotation[0]), made.add("Mul", swapped, rotation[1]))


def _feed_forward(made: Graph, part: FeedForward, name: str, x: str) -> str:
    inside = made.linear(x, part.inner, part.inner_bias, f"{name}.inner")
    known = next((n for n, f in options.ACTIVATIONS.items() if f is part.activation), None)
    require(known is not None, "export.model", "have an activation with a name", part.activation)
    if part.gate is None:
        hidden = _activation(made, inside, str(known))
    else:
        gate = made.linear(x, part.gate, part.gate_bias, f"{name}.gate")
        hidden = made.add("Mul", _activation(made, gate, str(known)), inside)
    return made.linear(hidden, part.outer, part.outer_bias, f"{name}.outer")


def _activation(made: Graph, x: str, name: str) -> str:
    simple = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "identity": "Identity"}
    if name in simple:
        return made.add(simple[name], x)
    if name == "silu":
        return made.add("Mul", x, made.add("Sigmoid", x))
    if name == "gelu":
        inner = made.add("Erf", made.add("Mul", x, made.constant(0.5**0.5)))
    else:
        cube = made.add("Mul", x, made.add("Mul", x, x))
        bent = made.add("Add", x, made.add("Mul", cube, made.constant(0.044715)))
        inner = made.add("Tanh", made.add("Mul", bent, made.constant((2 / math.pi) ** 0.5)))
    share = made.add("Mul", made.add("Add", inner, made.constant(1.0)), made.constant(0.5))
    return made.add("Mul", x, share)


def _attention(
    made: Graph,
    part: Attention,
    place: str,
    causal: bool,
    name: str,
    rotation: tuple[str, str] | None,
    x: str,
) -> str:
    shape = made.constant([0, 0, part.heads, part.size])

    def repeated(weight: Tensor | None) -> Tensor | None:
        """Rows of keys or values, once for each head of queries."""
        if weight is None or part.key_value_heads == part.heads:
            return weight
        times = part.heads // part.key_value_heads
        return weight.unflatten(0, (-1, part.size)).repeat_interleave(times, 0).flatten(0, 1)

    def split(weight: Tensor, bias: Tensor | None, what: str) -> str:
        rows, offset = (weight, bias) if what == "query" else (repeated(weight), repeated(bias))
        assert rows is not None
        flat = made.linear(x, rows, offset, f"{name}.{what}")
        return made.add("Transpose", made.add("Reshape", flat, shape), perm=[0, 2, 1, 3])

    q = split(part.query, part.query_bias, "query")
    k = split(part.key, part.key_bias, "key")
    v = split(part.value, part.value_bias, "value")
    if part.query_norm is not None and part.key_norm is not None:
        q = _norm(made, q, part.query_norm, f"{name}.query_norm")
        k = _norm(made, k, part.key_norm, f"{name}.key_norm")
    if rotation is not None:
        q, k = (_rotate(made, y, rotation, part.size) for y in (q, k))
    scores = made.add("MatMul", q, made.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = made.add("Mul", scores, made.constant(float(part.scale)))
    sights = part.head_masks or ("all",) * part.heads
    if causal or set(sights) != {"all"}:
        mask = _mask(made, sights, place, causal)
        scores = made.add("Where", mask, scores, made.constant(-np.inf))
    if part.hard:
        top = made.add("ReduceMax", scores, made.constant([-1]), keepdims=1)
        number = made.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(made.dtype))
        best = made.add("Cast", made.add("Equal", scores, top), to=number)
        share = made.add("ReduceSum", best, made.constant([-1]), keepdims=1)
        fetched = made.add("Div", made.add("MatMul", best, v), share)
    else:
        fetched = made.add("MatMul", made.add("Softmax", scores, axis=-1), v)
    together = made.add("Transpose", fetched, perm=[0, 2, 1, 3])
    flat = made.add("Reshape", together, made.constant([0, 0, part.heads * part.size]))
    return made.linear(flat, part.output, part.output_bias, f"{name}.output")


def _mask(made: Graph, sights: tuple[str, ...], place: str, causal: bool) -> str:
    """Attention mask (1, h, n, n); a query that may attend to no key attends to itself."""
    query = made.add("Unsqueeze", place, made.constant([1]))
    key = made.add("Unsqueeze", place, made.constant([0]))
    itself = made.add("Equal", key, query)
    past = made.add("LessOrEqual", key, query)
    everything = made.add("Or", past, made.add("Not", past))
    masks = {
        "all": lambda: everything,
        "past": lambda: past,
        "before": lambda: made.add("Less", key, query),
        "after": lambda: made.add("Greater", key, query),
    }
    heads = []
    for sight in sights:
        mask = masks[sight]()
        mask = made.add("And", mask, past) if causal else mask
        integers = made.add("Cast", mask, to=made.onnx.TensorProto.INT64)
        any_key = made.add("ReduceMax", integers, made.constant([-1]), keepdims=1)
        alone = made.add("And", itself, made.add("Equal", any_key, made.constant(0)))
        heads.append(made.add("Unsqueeze", made.add("Or", mask, alone), made.constant([0, 1])))
    return made.add("Concat", *heads, axis=1)
