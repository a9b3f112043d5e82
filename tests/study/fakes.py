"""Runs that behave in known ways, carried out by real workers."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allometry._core.errors import DivergedError
from allometry.study.request import Outcome, Place, Request
from allometry.train.budget import Budget
from allometry.train.loop import Progress, Stopped


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

    def __call__(self, place: Place) -> Outcome:
        # A note for every start lets a test count how often a run was begun.
        with (place.folder / f"{self.name}.starts").open("a") as file:
            file.write("x")
        if self.behaviour == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "dies once" and _starts(place.folder, self.name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
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


def _starts(folder: Path, name: str) -> int:
    return len((folder / f"{name}.starts").read_text())
