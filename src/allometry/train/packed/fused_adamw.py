"""AdamW of stacked models on CPU in one pass over memory.

Torch's operations read and write parameters, moments and gradients ten times, which for small
models costs a quarter of a step. `adamw.cpp` has the arithmetic; without a compiler `applies` is
false and the caller uses torch.

Shapes: M models, P parameters of each.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from allometry import models
from allometry._core.native import load_kernels


@functools.cache
def _kernel() -> Any:
    """The kernel; `None` if it can't be built or loaded."""
    source = Path(models.__file__).parent / "kernels" / "adamw.cpp"
    library = load_kernels(source, symbols=("adamw",))
    return None if library is None else library.adamw


def applies(flat: Float[Tensor, "M P"], gradient: Float[Tensor, "M P"]) -> bool:
    """Whether `update` supports these parameters and their gradient."""
    plain = type(flat.data) is Tensor and type(gradient) is Tensor
    cpu = plain and flat.device.type == "cpu" and flat.dtype == gradient.dtype == torch.float32
    return cpu and flat.is_contiguous() and gradient.stride(-1) == 1 and _kernel() is not None


@torch.no_grad()
def update(
    flat: Float[Tensor, "M P"],
    moments: tuple[Float[Tensor, "M P"], Float[Tensor, "M P"]],
    gradient: Float[Tensor, "M P"],
    inverse_rates: Float[Tensor, "M P"] | None,
    shrink: Float[Tensor, "M P"] | None,
    rows: Sequence[tuple[float, float, float]],
    *,
    betas: tuple[float, float],
    eps: float,
) -> None:
    r"""$p \leftarrow p - f s p - l\,m / ((\sqrt v + \epsilon)\,r)$ for every model, in place.

    Args:
        flat: p.
        moments: m and v; both are updated first.
        gradient: Of each model.
        inverse_rates: r; `None` for 1.
        shrink: s; `None` for no decay.
        rows: For each model a factor on its gradient, f and l.
        betas: Decay rates of m and v.
        eps: Epsilon.

    References: `loshchilov2019` Algorithm 2.
    """
    M, P = flat.shape
    sizes = (ctypes.c_int64 * 3)(M, P, gradient.stride(0))
    numbers = (ctypes.c_float * (3 * M))(*(number for row in rows for number in row))
    scalars = [ctypes.c_float(number) for number in (*betas, eps)]
    tensors = (flat, *moments, gradient, inverse_rates, shrink)
    pointers = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors]
    _kernel()(sizes, *scalars, *pointers, numbers)
