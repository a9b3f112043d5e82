"""Rebuild a model from its weights file.

A weights file is untrusted input. It names its model by a registered name, and it cannot request a
model larger than its tensors: construction stops as soon as the model exceeds them.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

from allometry._core.errors import AllometryError, InputError
from allometry._core.spec import Spec

SPARE_NUMBERS = 10_000_000
"""Numbers that a model may allocate beyond four times those in its file, such as masks."""

SPARE_PARTS = 1_000
"""Parts (modules, parameters, buffers) beyond sixteen for each tensor in its file."""


def restore(about: str, tensors: Mapping[str, Tensor], path: Path | str) -> nn.Module:
    """The model that a weights file describes, with its weights, ready to be evaluated.

    Args:
        about: `Spec` of the model as JSON, from the metadata of the file.
        tensors: Its weights.
        path: File name for error messages.

    Raises:
        InputError: The description is damaged, names no registered model, or does not fit the
            tensors.
    """
    try:
        spec = Spec.from_dict(_parsed(about))
        with _bounded(tensors):
            model: nn.Module = spec()
        model.load_state_dict(dict(tensors))
    except AllometryError as error:
        raise InputError(
            f"{path} does not describe a model this package can read: {error}"
        ) from error
    except Exception as error:  # a constructor with invalid arguments may fail in any way
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(
            f"{path} must contain the weights of the model that it describes; got others "
            f"({reason.strip().rstrip('.:')}). Use the file as the study wrote it."
        ) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(
                f"{path} must contain finite weights; got NaN or infinity in {name!r}. The run "
                "diverged, or the file is damaged."
            )
    dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), None)
    return (model if dtype is None else model.to(dtype=dtype)).eval()


def named(about: str, path: Path | str) -> str:
    """The registered name of the model that a weights file describes; empty if it has none."""
    try:
        said = _parsed(about)
    except InputError as error:
        raise InputError(f"{path} does not describe its model: {error}") from error
    name = said.get("spec") if isinstance(said, dict) else None
    return name if isinstance(name, str) else ""


def _parsed(about: str) -> Any:
    try:
        return json.loads(about)
    except (ValueError, RecursionError) as error:
        raise InputError("the description must be JSON of a few levels; it is damaged.") from error


@contextmanager
def _bounded(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Stop the construction of a model that exceeds `tensors`."""
    most = 16 * len(tensors) + SPARE_PARTS
    parts = 0

    def count(*_: Any) -> None:
        nonlocal parts
        parts += 1
        if parts > most:
            raise InputError(f"the model must have at most {most} parts; it asks for more.")

    handles = [
        hooks.register_module_module_registration_hook(count),
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
    ]
    try:
        with _Limit(4 * sum(t.numel() for t in tensors.values()) + SPARE_NUMBERS):
            yield
    finally:
        for handle in handles:
            handle.remove()


@final
class _Limit(TorchDispatchMode):
    """Refuses any operation that would allocate a tensor of more than `most` numbers."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        for value in args:
            sizes = value if isinstance(value, list | tuple) else [value]
            if all(isinstance(size, int) for size in sizes) and math.prod(sizes) > self.most:
                raise InputError(
                    f"the model must need at most {self.most} numbers, by the size of its file; "
                    "it asks for more."
                )
        return func(*args, **(kwargs or {}))
