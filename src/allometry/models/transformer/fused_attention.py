"""Fused attention of short sequences on CPU, in one pass over each head.

Torch's fused kernel calls a general matrix product for every block of every head, which costs more
than the arithmetic of short sequences and narrow heads. Here rotation, scores, softmax, weighted
sum and gradients of a head stay in the L1 cache. `short_attention.cpp` has the arithmetic; without
a compiler `applies` is false.

Shapes: b batch, n positions, h heads, m head size, g groups of the batch with their own rotations.
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

LONGEST = 256
"""Largest number of positions for which the scores of a head fit the cache."""

WIDEST = 64
"""Largest head size for which it measured faster."""

SINGLE_THREAD = 1 << 22
"""Multiplications below which a second thread does not pay."""


@functools.cache
def _kernels() -> tuple[Any, Any] | None:
    """The forward and backward kernels; `None` if they cannot be built or loaded."""
    names = ("short_attention", "short_attention_backward")
    lib = load_kernels(
        Path(__file__).parents[1] / "kernels" / "short_attention.cpp", symbols=names
    )
    return None if lib is None else (lib.short_attention, lib.short_attention_backward)


def applies(y: Tensor) -> bool:
    """Whether `attention` supports `y` (b, n, 3 h, m): short, on CPU, in at most 32 bits."""
    fits = y.shape[1] <= LONGEST and y.shape[3] <= WIDEST
    cpu = y.device.type == "cpu" and y.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return fits and cpu and _kernels() is not None


def attention(
    y: Float[Tensor, "b n h3 m"],
    rotation: Float[Tensor, "2 #b 1 n half"] | None,
    *,
    scale: float,
    causal: bool,
) -> Float[Tensor, "b n h m"]:
    r"""$\mathrm{softmax}(s\,q k^T)\,v$ of every head.

    Computed in float32 for every dtype of `y`: on CPU, torch's attention in bfloat16 takes several
    times as long as the two conversions.

    Args:
        y: Queries, keys and values of all heads, concatenated.
        rotation: Cosines and sines of the rotary positions (see `rotate`).
        scale: s, which multiplies the scores.
        causal: Whether the mask is causal.
    """
    turns = None if rotation is None else rotation[:, :, 0].transpose(0, 1).float()
    return torch.ops.allometry.short_attention(y.float(), turns, scale, causal)[0].to(y.dtype)


def _call(
    kernel: Any, y: Tensor, turns: Tensor | None, scale: float, causal: bool, *others: Tensor
) -> None:
    b, n, h3, m = y.shape
    work = b * h3 // 3 * n * n * m
    threads = torch.get_num_threads() if work >= SINGLE_THREAD else 1
    groups = 1 if turns is None else len(turns)
    sizes = (ctypes.c_int64 * 7)(b, n, h3 // 3, m, causal, threads, groups)
    address = None if turns is None else turns.data_ptr()
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in others]
    kernel(sizes, ctypes.c_float(scale), ctypes.c_void_p(address), *pointers)


def _forward(y: Tensor, turns: Tensor | None, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    kernels = _kernels()
    assert kernels is not None
    y, turns = y.contiguous(), None if turns is None else turns.contiguous()
    out, sums = _empty(y)
    _call(kernels[0], y, turns, scale, causal, y, out, sums)
    return out, sums


def _backward(
    slope: Tensor, y: Tensor, turns: Tensor | None, sums: Tensor, scale: float, causal: bool
) -> Tensor:
    kernels = _kernels()
    assert kernels is not None
    y, turns = y.contiguous(), None if turns is None else turns.contiguous()
    gradient = torch.empty_like(y)
    _call(kernels[1], y, turns, scale, causal, slope.contiguous(), y, sums, gradient)
    return gradient


def _empty(y: Tensor) -> tuple[Tensor, Tensor]:
    b, n, h3, m = y.shape
    return y.new_empty(b, n, h3 // 3, m), y.new_empty(b, h3 // 3, n)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    y, turns, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(y, turns, output[1])


def _autograd_backward(ctx: Any, slope: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    y, turns, sums = ctx.saved_tensors
    back = torch.ops.allometry.short_attention_backward
    return back(slope, y, turns, sums, ctx.scale, ctx.causal), None, None, None


def _vmap_rule(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Fold the mapped axis into the batch; `turns` is argument number `at`."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> tuple[Any, Any]:
        size, flat = info.batch_size, []
        for index, (value, axis) in enumerate(zip(arguments, in_dims, strict=True)):
            if not isinstance(value, Tensor):
                flat.append(value)
            elif index == at and axis is None and len(value) == 1:
                flat.append(value)  # one rotation for the whole batch of every model
            else:
                whole = (
                    value.expand(size, *value.shape) if axis is None else value.movedim(axis, 0)
                )
                flat.append(whole.flatten(0, 1))
        out = function(*flat)
        single = isinstance(out, Tensor)
        parts = [part.unflatten(0, (size, -1)) for part in ((out,) if single else out)]
        return (parts[0], 0) if single else (tuple(parts), (0,) * len(parts))

    return rule


def _register() -> None:
    name = "allometry::short_attention"
    torch.library.define(
        name, "(Tensor y, Tensor? turns, float scale, bool causal) -> (Tensor, Tensor)"
    )
    torch.library.define(
        f"{name}_backward",
        "(Tensor slope, Tensor y, Tensor? turns, Tensor sums, float scale, bool causal) -> Tensor",
    )
    torch.library.impl(name, "cpu", _forward)
    torch.library.impl(f"{name}_backward", "cpu", _backward)
    torch.library.register_fake(name)(lambda y, *_: _empty(y))
    torch.library.register_fake(f"{name}_backward")(lambda _, y, *__: torch.empty_like(y))
    torch.library.register_autograd(name, _autograd_backward, setup_context=_setup_context)
    torch.library.register_vmap(name, _vmap_rule(torch.ops.allometry.short_attention, 1))
    back = torch.ops.allometry.short_attention_backward
    torch.library.register_vmap(f"{name}_backward", _vmap_rule(back, 2))

    # As many as the unfused form: two products forward, four backward.
    @register_flop_formula(torch.ops.allometry.short_attention)
    def _(y: tuple[int, ...], *_: Any, **__: Any) -> int:
        b, n, h3, m = y
        return 4 * b * (h3 // 3) * n * n * m

    @register_flop_formula(back)
    def _(slope: tuple[int, ...], *_: Any, **__: Any) -> int:
        b, n, h, m = slope
        return 8 * b * h * n * n * m


_register()
