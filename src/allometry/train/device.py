"""Where a training runs, in which precision, and whether twice means the same twice."""

import contextlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import numpy as np
import torch
from torch import nn

from allometry._core.errors import require

PRECISIONS = ("float32", "bfloat16", "float16")

GAIN = 0.75
"""Reduced precision is worth its noise where a step takes this share of the time or less."""


@final
@dataclass(frozen=True)
class On:
    """Where and how trainings run.

    Args:
        device: `"auto"` (CUDA, else MPS, else the CPU) or torch's name of one.
        precision: `"float32"`; `"bfloat16"` or `"float16"` for products and sums inside the model,
            weights staying as they are; or `"auto"`: reduced where that is found to be quicker.
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

    def resolved(self, index: int = 0) -> "On":
        """With `"auto"` replaced by what this machine has; `index` tells processes apart."""
        device = _existing(best_device(index) if self.device == "auto" else self.device)
        precision = self.precision
        if precision == "auto":
            precision = best_precision(device)
        return On(str(device), precision, self.deterministic)

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


def best_precision(device: torch.device) -> str:
    """Reduced where steps tried on `device` are quicker by a margin, bfloat16 before float16."""
    plain = step_seconds(On(str(device)))
    for precision in ("bfloat16", "float16") if device.type == "cuda" else ("bfloat16",):
        if step_seconds(On(str(device), precision)) <= GAIN * plain:
            return precision
    return "float32"


def step_seconds(on: On, width: int = 256, repeats: int = 5) -> float:
    """Seconds of a forward and backward pass of a small network."""
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    model = model.to(on.device, torch.float32)
    x = torch.ones(width, width, device=on.device, dtype=torch.float32)
    taken = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        with on.autocast():
            loss = model(x).square().mean()
        loss.backward()
        loss.item()  # waits for the device
        taken.append(time.perf_counter() - started)
    return median(taken[1:])


def _existing(name: str) -> torch.device:
    """The device of that name, refused where this machine has none."""
    kinds = {"cpu": True, "cuda": torch.cuda.is_available()}
    kinds |= {"mps": torch.backends.mps.is_available()}
    there = [kind for kind, is_there in kinds.items() if is_there]
    kind, _, index = name.partition(":")
    known = kind in there and (not index or index.isdigit())
    if known and kind == "cuda" and index:
        known = int(index) < torch.cuda.device_count()
    require(known, "device", f"be auto or one of {', '.join(there)}", name)
    return torch.device(name)
