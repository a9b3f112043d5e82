"""A turn of a game as a list of kernels, traced once and run without autograd."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from allometry.train.packed.trace import cleaned, fused


def listed(
    turn: Callable[..., Any], examples: tuple[Tensor, ...], *, fuse: bool = False
) -> Callable[..., Any]:
    """The same function of tensors of the same shapes, slopes and all, as a list of kernels.

    What is saved is dispatching, batching and recording each operation; compiled, also most passes
    over memory between the products. The function must not decide by the values of tensors, nor
    keep anything (norms' running statistics, for one).

    Args:
        turn: From tensors to tensors.
        examples: Of its arguments.
        fuse: Also compile, which takes a C++ compiler and half a minute.
    """

    def plain(*arguments: Tensor) -> Any:
        # A bound method's own signature would confuse the tracer.
        return turn(*arguments)

    # Tracing tells arguments apart by identity: no two may be the same tensor.
    graph = make_fx(plain)(*(e.clone() for e in examples))
    cleaned(graph, fuse)
    return fused(graph) if fuse else graph
