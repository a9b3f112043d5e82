"""Where a training runs, in which precision, and whether twice means the same twice."""

import contextlib
import dataclasses
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from allometry._core.errors import require

PRECISIONS = ("float32", "bfloat16", "float16")

Agreed = Callable[[float], float]

GAIN = 0.75
"""Reduced precision is worth its noise where a step takes this share of the time or less."""


@final
@dataclass(frozen=True)
class DeviceSettings:
    """Where and how trainings run.

    Args:
        device: `"auto"` (CUDA, else MPS, else the CPU) or torch's name of one.
        precision: `"float32"`; `"bfloat16"` or `"float16"` for products and sums inside the model,
            weights staying as they are; or `"auto"`: reduced where a training is found to be
            quicker that way.
        deterministic: Only kernels that give the same digits every time, and every run begun from
            its own seed, whatever ran before it in the same process.
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
        """With the device that this machine has; `index` tells processes apart.

        Whether to reduce precision is for each training to find out (see `best_precision`), but
        for deterministic ones, which don't.
        """
        device = _existing(best_device(index) if self.device == "auto" else self.device)
        # Trying takes its time from others' work and differs from day to day: not for these.
        fixed = self.deterministic and self.precision == "auto"
        return DeviceSettings(
            str(device), "float32" if fixed else self.precision, self.deterministic
        )

    @property
    def packed(self) -> str:
        """The precision of packs: these scale no gradients, as float16 would need."""
        fixed = self.precision == "float16" or (self.deterministic and self.precision == "auto")
        return "float32" if fixed else self.precision

    def autocast(self) -> Any:
        """A context in which the model computes in the chosen precision."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        kind = torch.device(self.device).type
        return torch.autocast(kind, dtype=getattr(torch, self.precision))

    def scaler(self) -> torch.amp.GradScaler:
        """Keeps small gradients from vanishing in float16; passes others through."""
        kind = torch.device(self.device).type
        return torch.amp.GradScaler(kind, enabled=self.precision == "float16")

    @contextlib.contextmanager
    def repeatable(self, seed: int) -> Iterator[None]:
        """A context for one run: nothing is changed unless `deterministic`."""
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
    """CUDA where there is any (cards are shared out by `index`), else MPS, else the CPU."""
    if torch.cuda.is_available():
        return f"cuda:{index % torch.cuda.device_count()}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def best_precision(step: Callable[[], Tensor], on: DeviceSettings, agreed: Agreed = float) -> str:
    """Reduced where this very training's passes, tried, are quicker by a margin.

    Small products gain nothing from shorter numbers and pay for every conversion, so what pays for
    one model does not for another on the same device.

    Args:
        step: Gives a loss; called a few times and differentiated.
        on: Where.
        agreed: Makes one number of all processes' numbers, where several train one model.
    """
    plain = _seconds(step, dataclasses.replace(on, precision="float32"))
    choices = ("bfloat16", "float16") if torch.device(on.device).type == "cuda" else ("bfloat16",)
    for precision in choices:
        taken = _seconds(step, dataclasses.replace(on, precision=precision))
        if agreed(taken / plain) <= GAIN:
            return precision
    return "float32"


def _seconds(step: Callable[[], Tensor], on: DeviceSettings, repeats: int = 3) -> float:
    """Of a forward and a backward pass: the least, after one that pays for what is made once.

    Whatever else the machine does only ever adds to it.
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
    """The device of that name, refused where this machine has none."""
    kinds = {"cpu": True, "cuda": torch.cuda.is_available()}
    kinds |= {"mps": torch.backends.mps.is_available()}
    there = [kind for kind, is_there in kinds.items() if is_there]
    kind, _, index = name.partition(":")
    known = kind in there and (not index or index.isdigit())
    if known and kind == "cuda" and index:
        known = int(index) < torch.cuda.device_count()
    elif known and index:
        known = int(index) == 0  # there is one of the others
    require(known, "device", f"be auto or one of {', '.join(there)}", name)
    return torch.device(name)
