"""Export a constructed transformer as an ONNX graph in float64.

Letters: b batch, n positions, d width, h heads, m head size.
"""

from typing import Any, final

import numpy as np
from torch import Tensor

from allometry._core.errors import require_extra
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, FeedForward, Transformer

OPSET = 18


@final
class Graph:
    """Nodes and constants of a graph; every method returns the name of its result."""

    def __init__(self) -> None:
        self.onnx = require_extra("onnx", "onnx")
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any, name: str | None = None) -> str:
        """Add a constant; integers become int64."""
        array = np.asarray(value.detach().numpy() if isinstance(value, Tensor) else value)
        array = array.astype(np.int64 if array.dtype.kind in "iu" else array.dtype)
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
        model: A constructed model: no norm, ReLU, learned positions or none.
    """
    made = Graph()
    onnx, helper = made.onnx, made.onnx.helper
    if model.table is not None:
        dims, kind = ["batch", "length"], onnx.TensorProto.INT64
        x = made.add("Gather", made.constant(model.table, "table"), "tokens")
        length = _length(made, "tokens", 1)
    else:
        dims, kind = ["batch", model.width, "length"], onnx.TensorProto.DOUBLE
        x = made.add("Transpose", "tokens", perm=[0, 2, 1])
        length = _length(made, "tokens", 2)
    place = made.add("Range", made.constant(0), length, made.constant(1))
    if model.position_table is not None:
        table = made.constant(model.position_table, "position_table")
        x = made.add("Add", x, made.add("Gather", table, place))
    for layer in range(model.depth):
        at = 0 if model.shared else layer
        block = model.blocks[at]
        assert isinstance(block, Block)
        name = f"blocks.{at}"
        if block.attention is not None:
            y = _attention(made, x, block.attention, place, model.kind == "decoder", name)
            x = made.add("Add", x, y)
        if block.feed_forward is not None:
            x = made.add("Add", x, _feed_forward(made, x, block.feed_forward, name))
    if model.readout is not None:
        x = made.linear(x, model.readout, model.readout_bias, "readout")
    last = {"perm": [0, 2, 1]} if model.columns else {}
    made.add("Transpose" if model.columns else "Identity", x, out="outputs", **last)
    result = helper.make_graph(
        made.nodes,
        "allometry",
        [helper.make_tensor_value_info("tokens", kind, dims)],
        [helper.make_tensor_value_info("outputs", onnx.TensorProto.DOUBLE, ["batch", None, None])],
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


def _feed_forward(made: Graph, x: str, part: FeedForward, name: str) -> str:
    inside = made.linear(x, part.inner, part.inner_bias, f"{name}.inner")
    return made.linear(made.add("Relu", inside), part.outer, part.outer_bias, f"{name}.outer")


def _attention(made: Graph, x: str, part: Attention, place: str, causal: bool, name: str) -> str:
    shape = made.constant([0, 0, part.heads, part.size])

    def split(weight: Tensor, bias: Tensor | None, what: str) -> str:
        flat = made.linear(x, weight, bias, f"{name}.{what}")
        return made.add("Transpose", made.add("Reshape", flat, shape), perm=[0, 2, 1, 3])

    q = split(part.query, part.query_bias, "query")
    k = split(part.key, part.key_bias, "key")
    v = split(part.value, part.value_bias, "value")
    scores = made.add("MatMul", q, made.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = made.add("Mul", scores, made.constant(float(part.scale)))
    sights = part.head_masks or ("all",) * part.heads
    if causal or set(sights) != {"all"}:
        mask = _mask(made, sights, place, causal)
        scores = made.add("Where", mask, scores, made.constant(-np.inf))
    if part.hard:
        top = made.add("ReduceMax", scores, made.constant([-1]), keepdims=1)
        best = made.add("Cast", made.add("Equal", scores, top), to=made.onnx.TensorProto.DOUBLE)
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
