"""Device, precision and determinism of trainings."""

import contextlib
import dataclasses
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.transformer.fused_decoder import fused_decoder

PRECISIONS = ("float32", "bfloat16", "float16")

Agreed = Callable[[float], float]

GAIN = 0.75
"""Reduced precision is used if a step takes at most this fraction of the time."""


@final
@dataclass(frozen=True)
class DeviceSettings:
    """Device, precision and determinism of trainings.

    Args:
        device: `"auto"` (CUDA, else MPS, else the CPU) or a torch device name.
        precision: `"float32"`; `"bfloat16"` or `"float16"` for the arithmetic inside the model,
            with weights unchanged; or `"auto"`: reduced if a training measures faster that way.
        deterministic: Use deterministic kernels only, and seed every run itself, independent of
            earlier runs in the same process.
    """

    device: str = "auto"
    precision: str = "float32"
    deterministic: bool = False

    def __post_init__(self) -> None:
        known = ("auto", *PRECISIONS)
        choice = f"be one of {', '.join(known)}"
        require(self.precision in known, "precision", choice, self.precision)
        kind, devices = self.device.partition(":")[0], ("auto", "cpu", "cuda", "mps")
        require(kind in devices, "device", f"be one of {', '.join(devices)}", self.device)

    def resolved(self, index: int = 0) -> "DeviceSettings":
        """Settings with a concrete device; `index` spreads processes over several GPUs.

        Each training chooses its own precision (see `best_precision`), except deterministic ones,
        which use float32.
        """
        several = self.device == "auto" or (self.device == "cuda" and torch.cuda.is_available())
        device = _existing(best_device(index) if several else self.device)
        # Timings vary from day to day, so deterministic trainings do not use them.
        fixed = self.deterministic and self.precision == "auto"
        return DeviceSettings(
            str(device), "float32" if fixed else self.precision, self.deterministic
        )

    @property
    def packed(self) -> str:
        """The precision of stacked models, which do not scale gradients as float16 needs."""
        fixed = self.precision == "float16" or (self.deterministic and self.precision == "auto")
        return "float32" if fixed else self.precision

    def autocast(self) -> Any:
        """A context in which the model computes in the chosen precision."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        kind = torch.device(self.device).type
        return torch.autocast(kind, dtype=getattr(torch, self.precision))

    def scaler(self) -> torch.amp.GradScaler:
        """The gradient scaler of float16; disabled in other precisions."""
        kind = torch.device(self.device).type
        return torch.amp.GradScaler(kind, enabled=self.precision == "float16")

    @contextlib.contextmanager
    def repeatable(self, seed: int) -> Iterator[None]:
        """A context for one run: changes nothing unless `deterministic`."""
        if not self.deterministic:
            yield
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        before = torch.are_deterministic_algorithms_enabled()
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - whatever draws from the global one
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def best_device(index: int = 0) -> str:
    """CUDA if available (GPUs are assigned by `index`), else MPS, else the CPU."""
    if torch.cuda.is_available():
        return f"cuda:{index % torch.cuda.device_count()}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@fused_decoder()
def best_precision(step: Callable[[], Tensor], on: DeviceSettings, agreed: Agreed = float) -> str:
    """Reduced precision if the passes of this training measure faster by a margin.

    Small products gain nothing from reduced precision and pay for every conversion, so the choice
    depends on the model, not only on the device.

    Args:
        step: Returns a loss; called a few times and differentiated.
        on: Device settings.
        agreed: Reduces the numbers of all processes to one, if several train one model.
    """
    plain = _seconds(step, dataclasses.replace(on, precision="float32"))
    choices = ("bfloat16", "float16") if torch.device(on.device).type == "cuda" else ("bfloat16",)
    for precision in choices:
        taken = _seconds(step, dataclasses.replace(on, precision=precision))
        if agreed(taken / plain) <= GAIN:
            return precision
    return "float32"


def device_of(model: nn.Module) -> torch.device:
    """The device of a model; the CPU for one without parameters and buffers."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _seconds(step: Callable[[], Tensor], on: DeviceSettings, repeats: int = 3) -> float:
    """Runtime of a forward and a backward pass: the minimum, after one warm-up pass.

    Other load on the machine only adds to it.
    """
    taken = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        with on.autocast():
            loss = step()
        loss.backward()
        loss.item()  # waits for the device
        taken.append(time.perf_counter() - started)
    return min(taken[1:])


def _existing(name: str) -> torch.device:
    """The device of that name; refused if this machine does not have it."""
    kinds = {"cpu": True, "cuda": torch.cuda.is_available()}
    kinds |= {"mps": torch.backends.mps.is_available()}
    there = [kind for kind, is_there in kinds.items() if is_there]
    kind, _, index = name.partition(":")
    known = kind in there and (not index or index.isdigit())
    if known and kind == "cuda" and index:
        known = int(index) < torch.cuda.device_count()
    elif known and index:
        known = int(index) == 0  # there is only one of the other kinds
    require(known, "device", f"be auto or one of {', '.join(there)}", name)
    return torch.device(name)
