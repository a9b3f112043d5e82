"""ReLU networks vectorised over models on CPU: all layers in one fused pass.

Separate matrix products write the hidden units of every layer to memory and read them back. Here a
block of rows goes through all layers while it is in the CPU caches. `perceptron.cpp` has the
arithmetic; without a compiler `applies` is false.

Shapes: M models, n rows, i inputs, o outputs, P parameters of a model.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from allometry._core.native import load_kernels

LANES = 16
"""Hidden units are padded to a multiple of this, the widest SIMD register."""

WIDEST = 256
"""Largest number of units of a layer for which it measured faster than torch's products."""

_enabled = contextvars.ContextVar("fused perceptron enabled", default=False)


@contextlib.contextmanager
def fused_mlp() -> Iterator[None]:
    """Use the fused pass inside this context wherever it applies.

    It is opt-in because compiling pays for it only in trainings. Gradients of its gradients take
    torch's products.
    """
    token = _enabled.set(True)
    try:
        yield
    finally:
        _enabled.reset(token)


@functools.cache
def _built() -> bool:
    """Whether the kernels could be built and loaded.

    They use torch's stable C++ interface, available from torch 2.10 on.
    """
    home = Path(torch.__file__).parent
    flags = (f"-I{home / 'include'}", f"-L{home / 'lib'}", "-ltorch_cpu")
    return load_kernels(Path(__file__).parent / "kernels" / "perceptron.cpp", flags) is not None


def applies(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether `perceptron` is enabled and supports `x` (n, i) and these layers."""
    if not _enabled.get():
        return False
    supported = x.device.type == "cpu" and x.dtype == torch.float32 and x.ndim == 2
    reduced = torch.is_autocast_enabled("cpu")
    fits = len(parameters) >= 4 and max(x.shape[1], *(len(p) for p in parameters)) <= WIDEST
    return supported and fits and not reduced and _built()


def perceptron(x: Float[Tensor, "n i"], parameters: Sequence[Tensor]) -> Float[Tensor, "n o"]:
    r"""$W_L \max(0, \dots \max(0, W_1 x + b_1) \dots) + b_L$ of every row.

    Under `torch.func.vmap` over models with different weights it is one call for all of them.

    Args:
        x: The rows.
        parameters: $W_1$ (units, i), $b_1$ (units), ..., $W_L$ (o, units), $b_L$ (o).
    """
    one = [p.unsqueeze(0) for p in parameters]
    out, _ = cast("tuple[Tensor, Tensor]", _Perceptron.apply(x.unsqueeze(0), *one))
    return out.squeeze(0)


def relu_layers(x: Float[Tensor, "n *i"], layers: nn.Sequential) -> Float[Tensor, "n o"]:
    """The outputs of linear layers with ReLU between, by the fused pass where it applies."""
    x = x.flatten(1)
    given = [cast("Tensor", p) for m in list(layers)[::2] for p in (m.weight, m.bias)]
    return perceptron(x, given) if applies(x, given) else layers(x)


def _sizes(x: Tensor, parameters: Sequence[Tensor]) -> list[int]:
    """Inputs, hidden units and outputs."""
    return [x.shape[2], *(b.shape[1] for b in parameters[1::2])]


def _empty(x: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs, and the hidden units from the second layer on, which the backward pass reads."""
    M, n, _ = x.shape
    s = _sizes(x, parameters)
    kept = sum(n * (-(-units // LANES) * LANES) for units in s[2:-1])
    return x.new_empty(M, n, s[-1]), x.new_empty(M, kept)


def _empty_back(_: Tensor, x: Tensor, parameters: Sequence[Tensor], *__: Any) -> tuple[Any, Any]:
    P = sum(p.shape[1:].numel() for p in parameters)
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(len(x), P)


@final
class _Perceptron(torch.autograd.Function):
    """The gradient rule.

    Registered with the operator instead, it would add Python overhead to every call.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.allometry.perceptron(x, list(parameters))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[1], *inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, ...]:
        kept, x, *parameters = ctx.saved_tensors
        slope, _ = grad_outputs
        if torch.is_grad_enabled():  # the gradients will be differentiated in turn
            return _separate_gradients(slope, x, parameters)
        dx, gradient = torch.ops.allometry.perceptron_backward(slope, x, parameters, kept)
        parts = gradient.split([p.shape[1:].numel() for p in parameters], 1)
        return dx, *(part.view(p.shape) for part, p in zip(parts, parameters, strict=True))


def _separate_gradients(
    slope: Float[Tensor, "M n o"], x: Float[Tensor, "M n i"], parameters: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients by torch's products, which are differentiable themselves."""
    inputs, hidden = [], x
    for i in range(0, len(parameters), 2):
        hidden = torch.relu(hidden) if i else hidden
        inputs.append(hidden)
        hidden = hidden @ parameters[i].mT + parameters[i + 1].unsqueeze(-2)
    gradients: list[Tensor] = []
    for i in range(len(inputs) - 1, -1, -1):
        gradients = [slope.mT @ inputs[i], slope.sum(-2), *gradients]
        slope = slope @ parameters[2 * i]
        slope = torch.where(inputs[i] > 0, slope, 0.0) if i else slope
    return slope, *gradients


def _vmap_rule(function: Any) -> Any:
    """Fold the mapped axis into the first axis."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> tuple[Any, Any]:
        def fold(value: Any, axis: Any) -> Any:
            if not isinstance(value, Tensor):
                return [fold(v, a) for v, a in zip(value, axis, strict=True)]
            size = info.batch_size
            whole = value.expand(size, *value.shape) if axis is None else value.movedim(axis, 0)
            return whole.flatten(0, 1)

        out = function(*(fold(v, a) for v, a in zip(arguments, in_dims, strict=True)))
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in out), (0, 0)

    return rule


def _register() -> None:
    name, back = "allometry::perceptron", "allometry::perceptron_backward"
    torch.library.define(name, "(Tensor x, Tensor[] parameters) -> (Tensor, Tensor)")
    torch.library.define(
        back, "(Tensor slope, Tensor x, Tensor[] parameters, Tensor kept) -> (Tensor, Tensor)"
    )
    torch.library.register_fake(name)(_empty)
    torch.library.register_fake(back)(_empty_back)
    torch.library.register_vmap(name, _vmap_rule(torch.ops.allometry.perceptron))
    torch.library.register_vmap(back, _vmap_rule(torch.ops.allometry.perceptron_backward))

    # As many as the unfused form.
    @register_flop_formula(torch.ops.allometry.perceptron)
    def _(x: tuple[int, ...], parameters: Any, *_: Any, **__: Any) -> int:
        M, n, _inputs = x
        return 2 * n * M * sum(p[1] * p[2] for p in parameters[::2])

    @register_flop_formula(torch.ops.allometry.perceptron_backward)
    def _(_slope: Any, x: tuple[int, ...], parameters: Any, *_: Any, **__: Any) -> int:
        M, n, _inputs = x
        return 4 * n * M * sum(p[1] * p[2] for p in parameters[::2])


_register()
