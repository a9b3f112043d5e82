"""Runs that behave in known ways, carried out by real workers."""

import errno
import math
import os
import resource
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from allometry._core.errors import DivergedError
from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write
from allometry.study.request import (
    Outcome,
    Request,
    RunContext,
    TrainingRequest,
    default_dtype,
)
from allometry.train.budget import Budget
from allometry.train.loop import Progress, Stopped
from allometry.train.optimiser import adamw
from allometry.train.training import Training


@dataclass(frozen=True)
class FakeRun(Request):
    name: str
    behaviour: str = "good"
    seconds: float = 0.0

    @property
    def columns(self) -> dict[str, Any]:
        return {"family": "fake", "target": "none", "shape": self.name, "rung": 0, "seed": 0}

    def budget(self) -> Budget:
        return Budget(10, 2, 100, 6000.0)

    def work(self) -> float:
        return self.seconds + 0.01

    def __call__(self, place: RunContext) -> Outcome:
        # A note for every start lets a test count how often a run was begun.
        with (place.folder / f"{self.name}.starts").open("a") as file:
            file.write("x")
        if self.behaviour == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "dies once" and _starts(place.folder, self.name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "asked to exit once" and _starts(place.folder, self.name) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            while not place.stop():
                time.sleep(0.01)
            (place.folder / f"{self.name}.saved").touch()
            raise Stopped
        if self.behaviour == "disk full once" and _starts(place.folder, self.name) == 1:
            with atomic_write(place.folder / "x"):
                raise OSError(errno.ENOSPC, "No space left on device")
        if self.behaviour == "hungry":
            _eat()
        if self.behaviour == "raises":
            raise KeyError("nothing here")
        if self.behaviour == "diverges":
            raise DivergedError("the loss became nan at step 3 of 9")
        if self.behaviour == "prints":
            print("this must not reach the driver's pipe")
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            time.sleep(0.01)
            place.watch(Progress(1, 2, 1.0))
            if place.stop():
                raise Stopped
        budget = self.budget()
        columns = self.columns | {"N": budget.N, "N_embedding": 2, "D": budget.D, "D_unique": 50}
        columns |= {"C": budget.C, "C_6ND": budget.C_6ND, "loss": 1.5, "loss_se": 0.1}
        curve = {
            "step": [1.0, 2.0],
            "tokens": [50.0, 100.0],
            "flops": [3e3, 6e3],
            "loss": [2, 1.5],
        }
        return Outcome(columns | {"seconds": self.seconds}, curve, f"sample of {self.name}")


@dataclass(frozen=True)
class Deaf(FakeRun):
    """A run that says nothing, and does not listen."""

    def work(self) -> float:
        return 0.1

    def __call__(self, place: RunContext) -> Outcome:
        time.sleep(self.seconds)
        return super().__call__(place)


def _starts(folder: Path, name: str) -> int:
    return len((folder / f"{name}.starts").read_text())


def _eat() -> None:
    """Ask for more memory than there is to be had, and leave the limit as it was."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, before[1]))
    try:
        torch.zeros(1 << 34)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Sick(nn.Module):
    """One number to be brought to zero; above some rate its loss is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


@dataclass(frozen=True)
class SickRun(TrainingRequest):
    """Diverges at step 3 unless its rate is at most `bearable`."""

    lr: float
    bearable: float
    steps: int = 6

    @property
    def columns(self) -> dict[str, Any]:
        return {"family": "sick", "target": "none", "shape": "one", "rung": 0, "seed": 0}

    def budget(self) -> Budget:
        return Budget(1, 0, self.steps, 6.0 * self.steps)

    def work(self) -> float:
        return 0.01

    def training(self) -> Training:
        model = Sick()

        def objective(model, step):
            ill = self.lr > self.bearable and int(step) == 2
            return model.weight.square().sum() * (math.nan if ill else 1.0)

        return Training(
            model=model,
            optimiser=adamw(model, lr=self.lr),
            objective=objective,
            batch=lambda step: (torch.tensor(step),),
            measure=lambda model: Estimate(float(model.weight.detach().square()), 0.0),
            steps=self.steps,
            seen=1,
        )

    def finish(self, place, training, model, trained) -> Outcome:
        N = self.budget()
        columns = self.columns | {"N": 1, "N_embedding": 0, "D": N.D, "D_unique": 1, "C": N.C}
        columns |= {"C_6ND": N.C_6ND, "loss": trained.loss.value, "loss_se": 0.0}
        return Outcome(columns | {"seconds": trained.seconds})


class Named(Request):
    """A fake run with something besides."""

    name: str

    @property
    def columns(self) -> dict[str, Any]:
        return FakeRun(self.name).columns

    def budget(self) -> Budget:
        return FakeRun(self.name).budget()

    def work(self) -> float:
        return {"a": 2.0, "b": 1.0}.get(self.name, 0.1)


@dataclass(frozen=True)
class Tossed(Named):
    """Its loss is drawn from the generator that everything in the process shares."""

    name: str

    def __call__(self, place: RunContext) -> Outcome:
        outcome = FakeRun(self.name)(place)
        return replace(outcome, columns=outcome.columns | {"loss": float(torch.rand(()))})


@dataclass(frozen=True)
class ProcessRun(Named):
    """A run that says which process it is in."""

    name: str
    seconds: float

    def __call__(self, place: RunContext) -> Outcome:
        (place.folder / f"{self.name}.pid").write_text(str(os.getpid()))
        return FakeRun(self.name, seconds=self.seconds)(place)


@dataclass(frozen=True)
class OnTarget(Request):
    """A fake run on a target."""

    target: Any
    seed: int = 0

    @property
    def columns(self) -> dict[str, Any]:
        return FakeRun(f"seed {self.seed}").columns

    def budget(self) -> Budget:
        return FakeRun("any").budget()

    def work(self) -> float:
        return 0.1

    def __call__(self, place: RunContext) -> Outcome:
        return FakeRun(f"seed{self.seed}")(place)


def carry_out(spec, folder, key="key"):
    """Carry out a run in this process as a worker does, with the default dtype of the request."""
    for part in ("checkpoints", "weights", "samples"):
        (folder / part).mkdir(exist_ok=True)
    request = spec()
    with default_dtype(request.dtype):
        return request(RunContext(key, folder, lambda _: None, lambda: False))
