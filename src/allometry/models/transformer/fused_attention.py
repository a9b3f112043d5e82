"""Attention of short sequences on a processor, in one pass over each head.

Torch's fused kernel calls a general product for every block of every head, which takes longer than
the arithmetic while sequences are short and heads narrow. Here a head is turned, scored, weighted
and summed while it lies in the nearest cache, and so are its gradients. `short_attention.cpp` has
the arithmetic; without a compiler `applies` is false.

Letters: b batch, n positions, h heads, m head size, g groups of the batch with turns of their own.
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

from allometry._core.native import load_library

LONGEST = 256
"""Positions up to which a head's scores fit a cache."""

WIDEST = 64
"""Head size up to which it was found to be quicker."""

ALONE = 1 << 22
"""Products of scores below which a second thread costs more than it brings."""


@functools.cache
def _kernels() -> tuple[Any, Any] | None:
    """The two passes; a fault in building or loading them is the same as not having them."""
    names = ("short_attention", "short_attention_backward")
    made = load_library(Path(__file__).with_name("short_attention.cpp"), symbols=names)
    return None if made is None else (made.short_attention, made.short_attention_backward)


def applies(y: Tensor) -> bool:
    """Whether `attention` can take `y` (b, n, 3 h, m): short, of at most 32 bits."""
    fits = y.shape[1] <= LONGEST and y.shape[3] <= WIDEST
    here = y.device.type == "cpu" and y.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return fits and here and _kernels() is not None


def attention(
    y: Float[Tensor, "b n h3 m"],
    turn: Float[Tensor, "2 #b 1 n half"] | None,
    *,
    scale: float,
    causal: bool,
) -> Float[Tensor, "b n h m"]:
    r"""$\mathrm{softmax}(s\,q k^T)\,v$ of every head.

    Computed in float32 whatever `y` is in: torch's own attention in bfloat16 takes several times
    as long on a processor as the two conversions.

    Args:
        y: Queries, keys and values of all heads beside one another.
        turn: Cosines and sines by which queries and keys are turned first (see `rotate`).
        scale: s, which multiplies the scores.
        causal: Whether a position sees itself and those before it only.
    """
    turns = None if turn is None else turn[:, :, 0].transpose(0, 1)
    wide = None if turns is None else turns.float()
    return torch.ops.allometry.short_attention(y.float(), wide, scale, causal)[0].to(y.dtype)


def _call(
    kernel: Any, y: Tensor, turns: Tensor | None, scale: float, causal: bool, *others: Tensor
) -> None:
    b, n, h3, m = y.shape
    work = b * h3 // 3 * n * n * m
    threads = torch.get_num_threads() if work >= ALONE else 1
    groups = 1 if turns is None else len(turns)
    sizes = (ctypes.c_int64 * 7)(b, n, h3 // 3, m, causal, threads, groups)
    place = None if turns is None else turns.data_ptr()
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in others]
    kernel(sizes, ctypes.c_float(scale), ctypes.c_void_p(place), *pointers)


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
    made = torch.empty_like(y)
    _call(kernels[1], y, turns, scale, causal, slope.contiguous(), y, sums, made)
    return made


def _empty(y: Tensor) -> tuple[Tensor, Tensor]:
    b, n, h3, m = y.shape
    return y.new_empty(b, n, h3 // 3, m), y.new_empty(b, h3 // 3, n)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    y, turns, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(y, turns, output[1])


def _back(ctx: Any, slope: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    y, turns, sums = ctx.saved_tensors
    back = torch.ops.allometry.short_attention_backward
    return back(slope, y, turns, sums, ctx.scale, ctx.causal), None, None, None


def _folded(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """A rule for vmap: members are more rows of the batch; `turns` is argument number `at`."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> tuple[Any, Any]:
        size, flat = info.batch_size, []
        for index, (value, axis) in enumerate(zip(arguments, in_dims, strict=True)):
            if not isinstance(value, Tensor):
                flat.append(value)
            elif index == at and axis is None and len(value) == 1:
                flat.append(value)  # one turn for all rows of all members
            else:
                whole = (
                    value.expand(size, *value.shape) if axis is None else value.movedim(axis, 0)
                )
                flat.append(whole.flatten(0, 1))
        made = function(*flat)
        single = isinstance(made, Tensor)
        parts = [part.unflatten(0, (size, -1)) for part in ((made,) if single else made)]
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
    torch.library.register_autograd(name, _back, setup_context=_keep)
    torch.library.register_vmap(name, _folded(torch.ops.allometry.short_attention, 1))
    back = torch.ops.allometry.short_attention_backward
    torch.library.register_vmap(f"{name}_backward", _folded(back, 2))

    # As many as the plain form has: two products there, four on the way back.
    @register_flop_formula(torch.ops.allometry.short_attention)
    def _(y: tuple[int, ...], *_: Any, **__: Any) -> int:
        b, n, h3, m = y
        return 4 * b * (h3 // 3) * n * n * m

    @register_flop_formula(back)
    def _(slope: tuple[int, ...], *_: Any, **__: Any) -> int:
        b, n, h, m = slope
        return 8 * b * h * n * n * m


_register()
