"""A pack's losses and gradients as one list of kernels, traced once and run without autograd.

Shapes: M members, P parameters of each. What a step of many small models costs is not
arithmetic: it is dispatching each operation, batching it and recording it for the way back. A step
whose shapes never change can have all of that done once.
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
from allometry.train.packed.stack import Flat, StackedModels, together

aten: Any = torch.ops.aten
Losses = Float[Tensor, " M"]
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.baddbmm.default)
VIEWS = (aten.view.default, aten._unsafe_view.default)
THIN, LARGE = 8, 4096
"""Columns of a thin product; numbers in its other factor from which turning it pays."""


@final
class TracedStep:
    """`(losses, gradients)` of all members for arguments of fixed shapes.

    The numbers are those of `StackedModels.map` and its gradient. The trace holds whatever the
    function did with the first arguments, so the function must not decide by the values of
    tensors, and randomness must come in as arguments.

    Args:
        pack: The members.
        function: From a plain module and one member's arguments to its loss.
        arguments: Examples of the rest, with the members as first axis.
        fuse: Also compile the list to machine code, which merges operations on single numbers;
            takes a C++ compiler and a minute or so.

    Example:
        >>> import torch
        >>> from torch import nn, optim
        >>> from allometry.train.packed.stack import Packed
        >>> pack, x = StackedModels([nn.Linear(3, 1) for _ in range(4)]), torch.ones(4, 5, 3)
        >>> traced = TracedStep(pack, lambda model, x: model(x).square().mean(), x)
        >>> optimiser = pack.optimiser(optim.Adam, lr=1e-3)
        >>> losses, gradient = traced(x)
        >>> norms = optimiser.step(gradient)
    """

    def __init__(
        self,
        pack: StackedModels,
        function: Callable[..., Tensor],
        *arguments: Tensor,
        fuse: bool = False,
    ) -> None:
        self.pack = pack
        self.shapes = [a.shape for a in arguments]

        names = list(pack.buffers)

        def step(flat: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
            leaf = flat.detach().requires_grad_(True)
            # Buffers come in from outside, so that another pack's can take their place.
            own, pack.buffers = pack.buffers, dict(zip(names, rest, strict=False))
            try:
                losses = together(function, [(pack, leaf)], *rest[len(names) :])
            finally:
                pack.buffers = own
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            return losses.detach(), gradient

        # Compiled lists are for speed; in the others every kernel is one of torch's.
        with packed_mlp.fused_mlp() if fuse else contextlib.nullcontext():
            graph = make_fx(step)(pack.flat.detach(), *pack.buffers.values(), *arguments)
        self.changes = any(_changes(node) for node in graph.graph.nodes)
        """Whether a step writes into what it is given, as norms do that keep running means."""
        cleaned(graph, fuse)
        self.kernels = sum(node.op == "call_function" for node in graph.graph.nodes)
        self._run: Callable[..., Any] = fused(graph) if fuse else graph

    def of(self, pack: StackedModels) -> "TracedStep":
        """The same list for another pack of as many members of the same shape."""
        fits = (pack.flat.shape, list(pack.buffers)) == (
            self.pack.flat.shape,
            list(self.pack.buffers),
        )
        require(fits, "TracedStep.of pack", f"have parameters {tuple(self.pack.flat.shape)}", pack)
        other = copy.copy(self)
        other.pack = pack
        return other

    @torch.no_grad()
    def __call__(self, *arguments: Tensor) -> tuple[Losses, Flat]:
        """Losses at the pack's present parameters, and their gradients."""
        shapes = [a.shape for a in arguments]
        require(
            shapes == self.shapes, "TracedStep arguments", f"have shapes {self.shapes}", shapes
        )
        return self._run(self.pack.flat.detach(), *self.pack.buffers.values(), *arguments)


def compiler() -> str | None:
    """The C++ compiler that fusing needs, beside Python's headers; `None` where either is missing.

    Asked before anything is tried: torch would find out only after seconds of work.
    """
    there = Path(sysconfig.get_paths()["include"], "Python.h").exists()
    return native.find_compiler() if there else None


def fused(graph: fx.GraphModule) -> Callable[..., Any]:
    """A cleaned list as machine code, made when it is first run.

    Straight by torch's compiler: `torch.compile` would look at every call what might have changed
    since, which takes a small pack's step a third longer. What can change, how the arguments lie
    in memory, is looked at here.
    """
    made: dict[Any, Callable[..., Any]] = {}

    @torch.no_grad()
    def run(*arguments: Tensor) -> Any:
        about = tuple((a.dtype, a.stride()) for a in arguments)
        if about not in made:
            made[about] = _compiled(graph, arguments)
        found = made[about](*arguments)
        return tuple(found) if isinstance(found, list) else found  # it makes lists of tuples

    return run


def _compiled(graph: fx.GraphModule, arguments: Sequence[Tensor]) -> Callable[..., Any]:
    place = compiler_cache()
    from torch import _inductor
    from torch._inductor import codecache, config

    if hasattr(codecache, "_HEADER_DIR"):  # these it would keep elsewhere in any case
        codecache._HEADER_DIR = str(place / "precompiled_headers")
        codecache._HEADER_LOCK_DIR = str(place / "precompiled_headers" / "locks")
    # Its helper processes would import torch again each; a step is one file to compile.
    config.compile_threads = 1
    own = copy.deepcopy(graph)
    for node in own.graph.nodes:
        node.meta.clear()  # shapes as they were traced, which it works out for itself
    # A step is a hundred kernels of some microseconds: called from C++, not from Python.
    made = _inductor.compile(own, list(arguments), options={"cpp_wrapper": True})
    return cast("Callable[..., Any]", made)


def _changes(node: fx.Node) -> bool:
    """Whether a kernel writes into what the list was given; what it made itself does not count."""
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
    """Whose memory a node is: views and what is written in place have that of their first."""
    while node.op == "call_function" and node.args and _is_node(node.args[0]):
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.arguments[0].alias_info is None:
            break
        node = node.args[0]
    return node


def cleaned(module: fx.GraphModule, fuse: bool = False) -> None:
    """Take out of a traced list what does nothing, and merge products with the sums after them.

    Args:
        module: The list, which is changed.
        fuse: Whether it will be compiled. Then a product over an axis of length 2 is written out:
            a compiler merges its sums with what comes after, which a kernel for products can't.
    """
    graph = module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and _idle(node):
            node.replace_all_uses_with(cast("fx.Node", node.args[0]))
    _unflipped(graph)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target == aten.bmm.default:
            _multiplied(graph, node, fuse)
        if node.target == aten.add.Tensor and not node.kwargs and not fuse:
            _biased(graph, node)
    graph.eliminate_dead_code()
    if not any(_counts_on_order(node) for node in graph.nodes):
        _all_turned(graph)
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()


def _shape(node: Any) -> tuple[int, ...]:
    """Of what a node gives; empty where that is no tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _idle(node: fx.Node) -> bool:
    if node.target == aten.detach.default:
        return True
    if node.target == aten.mul.Scalar:
        return bool(node.args[1] == 1)
    still = node.target in (*VIEWS, aten.expand.default)
    return still and _shape(node) == _shape(node.args[0])


def _swap(graph: fx.Graph, old: fx.Node, kernel: Any, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(old):
        new = graph.call_function(kernel, arguments)
    new.meta = old.meta
    old.replace_all_uses_with(new)


def _multiplied(graph: fx.Graph, node: fx.Node, fuse: bool) -> None:
    """A product over an axis of length 1 is a plain multiplication, one over 2 a sum of two."""
    inner = _shape(node.args[0])[-1]
    if inner == 1:
        _swap(graph, node, aten.mul.Tensor, node.args)
    elif fuse and inner == 2:
        _written_out(graph, node)


def _counts_on_order(node: fx.Node) -> bool:
    """Whether it reads memory by strides of its own, or writes through a view of something."""
    if node.target == aten.as_strided.default:
        return True
    schema = getattr(node.target, "_schema", None)
    writes = node.op == "call_function" and schema is not None and schema.is_mutable
    return writes and _is_node(node.args[0]) and cast("fx.Node", node.args[0]).target in VIEWS


def _all_turned(graph: fx.Graph) -> None:
    """Turn the products that are better turned.

    Numbers may lie in another order then, so that views which were traced become reshapes.
    """
    for node in list(graph.nodes):
        if node.target in PRODUCTS and _better_turned(node):
            _turned(graph, node)
    _unflipped(graph)
    for node in graph.nodes:
        if node.target in VIEWS:
            node.target = aten.reshape.default


def _better_turned(node: fx.Node) -> bool:
    """Whether a product has few columns, or all that is asked of it is its transpose.

    Kernels do a product with few rows up to seven times as fast as one with few columns. Weights'
    gradients are asked for transposed, which else takes a copy.
    """
    first, second = node.args[-2:]
    rows, inner = _shape(first)[-2:]
    columns = _shape(second)[-1]
    thin = columns <= THIN and rows >= 4 * columns and rows * inner >= LARGE
    return thin or all(_flips(user) for user in node.users)


def _flips(node: fx.Node) -> bool:
    """Whether it is a transpose of each matrix."""
    size = len(_shape(node))
    if size >= 2 and node.target == aten.transpose.int:
        return {cast("int", i) % size for i in node.args[1:]} == {size - 1, size - 2}
    return size >= 2 and node.target in (aten.t.default, aten.mT.default)


def _unflipped(graph: fx.Graph) -> None:
    """The transpose of a transpose is what there was."""
    for node in graph.nodes:
        if _flips(node) and _flips(cast("fx.Node", node.args[0])):
            node.replace_all_uses_with(cast("fx.Node", cast("fx.Node", node.args[0]).args[0]))


def _turned(graph: fx.Graph, node: fx.Node) -> None:
    """$AB + b = (B^T A^T + b^T)^T$."""
    kernel = cast("Any", node.target)
    *bias, first, second = node.args
    with graph.inserting_before(node):
        flipped = [_flip(graph, cast("fx.Node", a)) for a in (*bias, second, first)]
        product = graph.call_function(kernel, tuple(flipped))
        product.meta = {"val": node.meta["val"].mT}
        node.replace_all_uses_with(_flip(graph, product))


def _flip(graph: fx.Graph, node: fx.Node) -> fx.Node:
    flipped = graph.call_function(aten.mT.default, (node,))
    flipped.meta = {"val": node.meta["val"].mT}
    return flipped


def _written_out(graph: fx.Graph, node: fx.Node) -> None:
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


def _biased(graph: fx.Graph, node: fx.Node) -> None:
    """A product and a row added to each of its rows is one kernel."""
    first, second = node.args
    for bias, product in ((first, second), (second, first)):
        if not isinstance(product, fx.Node) or product.target != aten.bmm.default:
            continue
        whole = _shape(product)
        if len(product.users) == 1 and _shape(bias) == (whole[0], 1, whole[2]):
            _swap(graph, node, aten.baddbmm.default, (bias, *product.args))
            return
