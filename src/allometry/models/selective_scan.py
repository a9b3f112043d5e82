r"""The selective scan of state-space models, over all positions at once.

$h_t = e^{\Delta_t A}\,h_{t-1} + \Delta_t B_t x_t$ and $y_t = C_t^T h_t$ for every channel. Steps
$\Delta$, inputs $B$ and outputs $C$ depend on the token, which makes the recurrence selective. On
CPU in float32 a C++ kernel keeps the states of a few channels in the cache. Elsewhere an
associative scan takes $\log_2 l$ passes over all positions.

Shapes: b batch, l positions, d channels, n states, g groups of the batch with their own A.
"""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from allometry._core.native import load_kernels

LONGEST = 4096
"""Largest number of positions for which the kernel keeps the states of a channel in memory."""

SINGLE_THREAD = 1 << 20
"""State updates below which a second thread does not pay."""


@functools.cache
def _kernels() -> tuple[Any, Any] | None:
    names = ("selective_scan", "selective_scan_backward")
    lib = load_kernels(Path(__file__).parent / "kernels" / "selective_scan.cpp", symbols=names)
    return None if lib is None else (lib.selective_scan, lib.selective_scan_backward)


def selective_scan(
    x: Float[Tensor, "b l d"],
    dt: Float[Tensor, "b l d"],
    A: Float[Tensor, "d n"],
    B: Float[Tensor, "b l n"],
    C: Float[Tensor, "b l n"],
) -> tuple[Float[Tensor, "b l d"], Float[Tensor, "b d n"]]:
    """Outputs y at all positions, and the state after the last one.

    Gradients flow through the outputs, not through the state.

    Args:
        x: Inputs.
        dt: Step sizes, positive; 0 leaves the state as it is.
        A: Rates, negative.
        B: Input weights.
        C: Output weights.

    References: `gu2023` Algorithm 2.
    """
    return torch.ops.allometry.selective_scan(x, dt, A[None], B, C)


def scan_step(
    state: Float[Tensor, "b d n"],
    x: Float[Tensor, "b d"],
    dt: Float[Tensor, "b d"],
    A: Float[Tensor, "d n"],
    B: Float[Tensor, "b n"],
    C: Float[Tensor, "b n"],
) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
    """One position of the recurrence: its output and the new state."""
    state = torch.exp(dt[:, :, None] * A) * state + (dt * x)[:, :, None] * B[:, None]
    return (state @ C[:, :, None])[:, :, 0], state


def associative_scan(
    a: Float[Tensor, "b l *rest"], u: Float[Tensor, "b l *rest"]
) -> Float[Tensor, "b l *rest"]:
    r"""All $h_t = a_t h_{t-1} + u_t$ with $h_0 = 0$, by doubling.

    $(a, u) \circ (a', u') = (a a', a' u + u')$ is associative, so spans of 1, 2, 4, ... positions
    are combined.

    References: `blelloch1990` section 1.4.
    """
    length, span = a.shape[1], 1
    while span < length:
        left, right = a[:, :-span], a[:, span:]
        u = torch.cat([u[:, :span], torch.addcmul(u[:, span:], right, u[:, :-span])], 1)
        a = torch.cat([a[:, :span], left * right], 1)
        span *= 2
    return u


def _rates(A: Tensor, b: int) -> Tensor:
    """A of every row of the batch, (b, 1, d, n)."""
    return A.repeat_interleave(b // len(A), 0)[:, None]


def _states(x: Tensor, dt: Tensor, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Decay factors and states (b, l, d, n)."""
    decay = torch.exp(dt[..., None] * _rates(A, len(x)))
    return decay, associative_scan(decay, (dt * x)[..., None] * B[:, :, None])


def _native(x: Tensor) -> tuple[Any, Any] | None:
    fits = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[1] <= LONGEST
    return _kernels() if fits and x.numel() else None


def _call(kernel: Any, x: Tensor, A: Tensor, *tensors: Tensor) -> None:
    b, length, d = x.shape
    n = A.shape[2]
    threads = torch.get_num_threads() if b * length * d * n >= SINGLE_THREAD else 1
    sizes = (ctypes.c_int64 * 6)(b, length, d, n, len(A), threads)
    kernel(sizes, *(ctypes.c_void_p(t.data_ptr()) for t in tensors))


def _empty(x: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[0], x.shape[2], A.shape[2])


def _forward(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    kernels = _native(x)
    if kernels is None:
        _, h = _states(x, dt, A, B)
        return (h @ C[..., None])[..., 0], h[:, -1].clone()
    x, dt, A, B, C = (t.contiguous() for t in (x, dt, A, B, C))
    y, last = _empty(x, A)
    _call(kernels[0], x, A, x, dt, A, B, C, y, last)
    return y, last


def _backward(
    gy: Tensor, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    kernels = _native(x)
    if kernels is not None:
        gy, x, dt, A, B, C = (t.contiguous() for t in (gy, x, dt, A, B, C))
        gx, gdt, gB, gC = (torch.empty_like(t) for t in (x, dt, B, C))
        gA = x.new_empty(x.shape[0], *A.shape[1:])
        _call(kernels[1], x, A, gy, x, dt, A, B, C, gx, gdt, gA, gB, gC)
        return gx, gdt, gA.unflatten(0, (len(A), -1)).sum(1), gB, gC
    decay, h = _states(x, dt, A, B)
    before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
    own = gy[..., None] * C[:, :, None]
    later = torch.cat([decay[:, 1:], torch.ones_like(decay[:, :1])], 1)
    slope = associative_scan(later.flip(1), own.flip(1)).flip(1)  # of each state
    to_in = (slope @ B[..., None])[..., 0]
    through = slope * before * decay
    gdt = (through * _rates(A, len(x))).sum(-1) + to_in * x
    gA = (through * dt[..., None]).sum(1).unflatten(0, (len(A), -1)).sum(1)
    gB = (slope * (dt * x)[..., None]).sum(2)
    return to_in * dt, gdt, gA, gB, (gy[..., None] * h).sum(2)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _autograd_backward(ctx: Any, gy: Tensor, _: Tensor | None) -> tuple[Tensor, ...]:
    return torch.ops.allometry.selective_scan_backward(gy, *ctx.saved_tensors)


def _vmap_rule(function: Callable[..., Any], rates: int) -> Callable[..., Any]:
    """Fold the mapped axis into the batch; A is argument number `rates` and has groups."""

    def rule(info: Any, in_dims: Any, *arguments: Tensor) -> tuple[Any, Any]:
        size, flat = info.batch_size, []
        for index, (value, axis) in enumerate(zip(arguments, in_dims, strict=True)):
            if index == rates and axis is None and len(value) == 1:
                flat.append(value)
                continue
            whole = value.expand(size, *value.shape) if axis is None else value.movedim(axis, 0)
            flat.append(whole.flatten(0, 1))
        parts = [part.unflatten(0, (size, -1)) for part in function(*flat)]
        return tuple(parts), (0,) * len(parts)

    return rule


def _register() -> None:
    name = "allometry::selective_scan"
    five = "Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C"
    torch.library.define(name, f"({five}) -> (Tensor, Tensor)")
    back = f"{name}_backward"
    torch.library.define(back, f"(Tensor gy, {five}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
    torch.library.impl(name, "CompositeExplicitAutograd", _forward)
    torch.library.impl(back, "CompositeExplicitAutograd", _backward)
    torch.library.register_fake(name)(lambda x, dt, A, B, C: _empty(x, A))
    torch.library.register_fake(back)(lambda gy, *five: tuple(torch.empty_like(t) for t in five))
    torch.library.register_autograd(name, _autograd_backward, setup_context=_setup_context)
    scan, gradient = (
        torch.ops.allometry.selective_scan,
        torch.ops.allometry.selective_scan_backward,
    )
    torch.library.register_vmap(name, _vmap_rule(scan, 2))
    torch.library.register_vmap(back, _vmap_rule(gradient, 3))

    # Six for each state and position (step times rate, two products and a sum, a product and a
    # sum for the output), and twice as many backward. Exponentials do not count.
    @register_flop_formula(scan)
    def _(x: tuple[int, ...], dt: Any, A: tuple[int, ...], *_: Any, **__: Any) -> int:
        return 6 * x[0] * x[1] * x[2] * A[2]

    @register_flop_formula(gradient)
    def _(gy: tuple[int, ...], x: Any, dt: Any, A: tuple[int, ...], *_: Any, **__: Any) -> int:
        return 12 * gy[0] * gy[1] * gy[2] * A[2]


_register()
