"""Losses and gradients as one list of kernels, traced once and run without autograd.

Shapes: M models, P parameters of each. Steps of small models spend their time on dispatching,
batching and recording operations, not on arithmetic. Tracing does that once for fixed shapes.
"""

import contextlib
import copy
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from allometry._core import native
from allometry._core.errors import require
from allometry._core.user_cache import compiler_cache
from allometry.models import packed_mlp
from allometry.train.device_batches import is_host
from allometry.train.packed.stack import Flat, StackedModels, together

aten: Any = torch.ops.aten
Losses = Float[Tensor, " M"]
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.baddbmm.default)
VIEWS = (aten.view.default, aten._unsafe_view.default)
THIN, LARGE = 8, 4096
"""Columns of a thin product; size of its other factor from which transposing it pays."""


@final
class TracedStep:
    """`(losses, gradients)` of all models for arguments of fixed shapes.

    The values are those of `StackedModels.map` and its gradient. The function is traced once, so
    its control flow must not depend on tensor values, and random numbers must be arguments.

    Args:
        models: The stacked models.
        function: Loss of a plain module and the arguments of one model.
        arguments: Example arguments; their first axis is the model.
        fuse: Also compile the list to machine code, which fuses elementwise operations; needs a
            C++ compiler and takes about a minute.

    Example:
        >>> import torch
        >>> from torch import nn, optim
        >>> from allometry.train import StackedModels
        >>> models, x = StackedModels([nn.Linear(3, 1) for _ in range(4)]), torch.ones(4, 5, 3)
        >>> traced = TracedStep(models, lambda model, x: model(x).square().mean(), x)
        >>> optimiser = models.optimiser(optim.Adam, lr=1e-3)
        >>> losses, gradient = traced(x)
        >>> norms = optimiser.step(gradient)
    """

    def __init__(
        self,
        models: StackedModels,
        function: Callable[..., Tensor],
        *arguments: Tensor,
        fuse: bool = False,
    ) -> None:
        self.models = models
        self.shapes = [a.shape for a in arguments]

        names = list(models.buffers)

        def step(flat: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
            leaf = flat.detach().requires_grad_(True)
            # Buffers are arguments, so that the trace also serves other stacks.
            own, models.buffers = models.buffers, dict(zip(names, rest, strict=False))
            try:
                losses = together(function, [(models, leaf)], *rest[len(names) :])
            finally:
                models.buffers = own
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            return losses.detach(), gradient

        graph = _graph(step, (models.flat.detach(), *models.buffers.values(), *arguments), True)
        self.changes = any(_changes(node) for node in graph.graph.nodes)
        """Whether a step writes into its arguments, as norms with running statistics do."""
        simplify(graph, fuse)
        self.kernels = sum(node.op == "call_function" for node in graph.graph.nodes)
        self._run: Callable[..., Any] = compiled(graph) if fuse else graph

    def of(self, models: StackedModels) -> "TracedStep":
        """The same list for another stack of the same shape."""
        own = self.models
        fits = (models.flat.shape, list(models.buffers)) == (own.flat.shape, list(own.buffers))
        shape = tuple(own.flat.shape)
        require(fits, "TracedStep.of models", f"have parameters {shape}", models)
        other = copy.copy(self)
        other.models = models
        return other

    @torch.no_grad()
    def __call__(self, *arguments: Tensor) -> tuple[Losses, Flat]:
        """Losses at the current parameters, and their gradients."""
        shapes = [a.shape for a in arguments]
        require(
            shapes == self.shapes, "TracedStep arguments", f"have shapes {self.shapes}", shapes
        )
        return self._run(self.models.flat.detach(), *self.models.buffers.values(), *arguments)


def traced_function(
    function: Callable[..., Any], examples: tuple[Tensor, ...], *, fuse: bool = False
) -> Callable[..., Any]:
    """A function of tensors of fixed shapes, including its gradients, as a list of kernels.

    Saves the dispatching, batching and recording of each operation; compiled, also most passes
    over memory between the products. The control flow of the function must not depend on tensor
    values, and it must not keep state such as running statistics.

    Args:
        function: Maps tensors to tensors.
        examples: Example arguments.
        fuse: Also compile, which needs a C++ compiler and takes half a minute.
    """

    def plain(*arguments: Tensor) -> Any:
        # The signature of a bound method would confuse the tracer.
        return function(*arguments)

    # Tracing distinguishes arguments by identity: no two may be the same tensor.
    graph = _graph(plain, tuple(e.clone() for e in examples), kernels=fuse)
    simplify(graph, fuse)
    return compiled(graph) if fuse else graph


def _graph(
    function: Callable[..., Any], examples: tuple[Tensor, ...], kernels: bool
) -> fx.GraphModule:
    """The operations of `function`; with `kernels`, our own ones on CPU."""
    if kernels and is_host(examples[0].device):
        # The kernels have no forward derivatives, which some objectives take.
        with contextlib.suppress(RuntimeError, NotImplementedError), packed_mlp.fused_mlp():
            return make_fx(function)(*examples)
    return make_fx(function)(*examples)


def compiler() -> str | None:
    """The C++ compiler; `None` without one or without Python's headers.

    Checked first, because torch would fail only after seconds of work.
    """
    headers = Path(sysconfig.get_paths()["include"], "Python.h").exists()
    return native.find_compiler() if headers else None


def compiled(graph: fx.GraphModule) -> Callable[..., Any]:
    """A simplified list as machine code, compiled at its first run.

    Calls Inductor directly: the guards of `torch.compile` make a small step a third slower. Only
    dtypes and strides of the arguments can change, and these are checked here.
    """
    variants: dict[Any, Callable[..., Any]] = {}

    @torch.no_grad()
    def run(*arguments: Tensor) -> Any:
        layout = tuple((a.dtype, a.stride()) for a in arguments)
        if layout not in variants:
            variants[layout] = _inductor_compile(graph, arguments)
        out = variants[layout](*arguments)
        return tuple(out) if isinstance(out, list) else out  # Inductor turns tuples into lists

    return run


def _inductor_compile(graph: fx.GraphModule, arguments: Sequence[Tensor]) -> Callable[..., Any]:
    cache = compiler_cache()
    from torch import _inductor
    from torch._inductor import codecache, config

    if hasattr(codecache, "_HEADER_DIR"):  # otherwise they are stored outside our cache
        codecache._HEADER_DIR = str(cache / "precompiled_headers")
        codecache._HEADER_LOCK_DIR = str(cache / "precompiled_headers" / "locks")
    # Each compile worker would import torch again; a step is a single file.
    config.compile_threads = 1
    own = copy.deepcopy(graph)
    for node in own.graph.nodes:
        node.meta.clear()  # Inductor infers shapes itself
    # A step is a hundred kernels of a few microseconds: call them from C++, not from Python. On
    # CUDA the whole list is one graph, which the driver starts at once.
    on_cuda = any(argument.device.type == "cuda" for argument in arguments)
    options = {"triton.cudagraphs": True} if on_cuda else {"cpp_wrapper": True}
    function = _inductor.compile(own, list(arguments), options=options)
    return cast("Callable[..., Any]", function)


def _changes(node: fx.Node) -> bool:
    """Whether a kernel writes into an argument of the list."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return False
    written = [
        given
        for about, given in zip(schema.arguments, node.args, strict=False)
        if about.alias_info is not None and about.alias_info.is_write
    ]
    return any(_origin(given).op == "placeholder" for given in written if _is_node(given))


def _is_node(given: Any) -> bool:
    return isinstance(given, fx.Node)


def _origin(node: Any) -> fx.Node:
    """The node that owns the memory: views and in-place results share that of their input."""
    while node.op == "call_function" and node.args and _is_node(node.args[0]):
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.arguments[0].alias_info is None:
            break
        node = node.args[0]
    return node


def simplify(module: fx.GraphModule, fuse: bool = False) -> None:
    """Remove operations without effect, and merge products with the sums after them.

    Args:
        module: The list, changed in place.
        fuse: Whether it will be compiled. A product over an axis of length 2 is then written as a
            sum, which the compiler fuses with later operations.
    """
    graph = module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and _without_effect(node):
            node.replace_all_uses_with(cast("fx.Node", node.args[0]))
    _cancel_transposes(graph)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target == aten.bmm.default:
            _short_product(graph, node, fuse)
        if node.target == aten.add.Tensor and not node.kwargs and not fuse:
            _merge_bias(graph, node)
    graph.eliminate_dead_code()
    if not any(_depends_on_layout(node) for node in graph.nodes):
        _transpose_products(graph)
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()


def _shape(node: Any) -> tuple[int, ...]:
    """Shape of the output of a node; empty if it is not a tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _without_effect(node: fx.Node) -> bool:
    if node.target == aten.detach.default:
        return True
    if node.target == aten.mul.Scalar:
        return bool(node.args[1] == 1)
    view = node.target in (*VIEWS, aten.expand.default)
    return view and _shape(node) == _shape(node.args[0])


def _replace(graph: fx.Graph, old: fx.Node, kernel: Any, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(old):
        new = graph.call_function(kernel, arguments)
    new.meta = old.meta
    old.replace_all_uses_with(new)


def _short_product(graph: fx.Graph, node: fx.Node, fuse: bool) -> None:
    """Write a product over an axis of length 1 as a multiplication, over 2 as a sum of two."""
    inner = _shape(node.args[0])[-1]
    if inner == 1:
        _replace(graph, node, aten.mul.Tensor, node.args)
    elif fuse and inner == 2:
        _product_as_sum(graph, node)


def _depends_on_layout(node: fx.Node) -> bool:
    """Whether it uses explicit strides, or writes through a view."""
    if node.target == aten.as_strided.default:
        return True
    schema = getattr(node.target, "_schema", None)
    writes = node.op == "call_function" and schema is not None and schema.is_mutable
    return writes and _is_node(node.args[0]) and cast("fx.Node", node.args[0]).target in VIEWS


def _transpose_products(graph: fx.Graph) -> None:
    """Transpose the products that are faster that way.

    Memory layouts may change, so traced views become reshapes.
    """
    for node in list(graph.nodes):
        if node.target in PRODUCTS and _faster_transposed(node):
            _transpose_product(graph, node)
    _cancel_transposes(graph)
    for node in graph.nodes:
        if node.target in VIEWS:
            node.target = aten.reshape.default


def _faster_transposed(node: fx.Node) -> bool:
    """Whether a product has few columns, or only its transpose is used.

    A product with few rows is up to seven times as fast as one with few columns. Gradients of
    weights are used transposed, which otherwise takes a copy.
    """
    first, second = node.args[-2:]
    rows, inner = _shape(first)[-2:]
    columns = _shape(second)[-1]
    thin = columns <= THIN and rows >= 4 * columns and rows * inner >= LARGE
    return thin or all(_transposes(user) for user in node.users)


def _transposes(node: fx.Node) -> bool:
    """Whether it transposes each matrix."""
    size = len(_shape(node))
    if size >= 2 and node.target == aten.transpose.int:
        return {cast("int", i) % size for i in node.args[1:]} == {size - 1, size - 2}
    return size >= 2 and node.target in (aten.t.default, aten.mT.default)


def _cancel_transposes(graph: fx.Graph) -> None:
    """Remove pairs of transposes."""
    for node in graph.nodes:
        if _transposes(node) and _transposes(cast("fx.Node", node.args[0])):
            node.replace_all_uses_with(cast("fx.Node", cast("fx.Node", node.args[0]).args[0]))


def _transpose_product(graph: fx.Graph, node: fx.Node) -> None:
    """$AB + b = (B^T A^T + b^T)^T$."""
    kernel = cast("Any", node.target)
    *bias, first, second = node.args
    with graph.inserting_before(node):
        transposed = [_transpose(graph, cast("fx.Node", a)) for a in (*bias, second, first)]
        product = graph.call_function(kernel, tuple(transposed))
        product.meta = {"val": node.meta["val"].mT}
        node.replace_all_uses_with(_transpose(graph, product))


def _transpose(graph: fx.Graph, node: fx.Node) -> fx.Node:
    transposed = graph.call_function(aten.mT.default, (node,))
    transposed.meta = {"val": node.meta["val"].mT}
    return transposed


def _product_as_sum(graph: fx.Graph, node: fx.Node) -> None:
    """A product over a short axis as a sum of plain multiplications."""
    first, second = node.args
    with graph.inserting_before(node):
        terms = []
        for k in range(_shape(first)[-1]):
            a = graph.call_function(aten.slice.Tensor, (first, 2, k, k + 1))
            b = graph.call_function(aten.slice.Tensor, (second, 1, k, k + 1))
            terms.append(graph.call_function(aten.mul.Tensor, (a, b)))
        total = terms[0]
        for term in terms[1:]:
            total = graph.call_function(aten.add.Tensor, (total, term))
    node.replace_all_uses_with(total)


def _merge_bias(graph: fx.Graph, node: fx.Node) -> None:
    """Merge a product and the addition of a bias row into one kernel."""
    first, second = node.args
    for bias, product in ((first, second), (second, first)):
        if not isinstance(product, fx.Node) or product.target != aten.bmm.default:
            continue
        whole = _shape(product)
        if len(product.users) == 1 and _shape(bias) == (whole[0], 1, whole[2]):
            _replace(graph, node, aten.baddbmm.default, (bias, *product.args))
            return
