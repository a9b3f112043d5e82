"""A study of runs that take no time, by the real driver, worker, journal and files."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from allometry._core.files import atomic_write, make_folder, path_inside
from allometry._core.spec import Spec
from allometry.study import Event, Executor, Study
from allometry.study.execute.driver import Workers, WorkerState, drive, order
from allometry.study.execute.executors import longest_first
from allometry.study.execute.worker import Worker
from allometry.study.request import Outcome, Request, RunContext
from allometry.study.tasks import Bundle, Task
from allometry.train import DeviceSettings, checkpoint
from allometry.train.budget import Budget

STEPS = 2

begun: list[str] = []
"""Keys of the runs that were begun or gone on with, in this process."""


@dataclass(frozen=True)
class StubRun(Request):
    """Checkpoints after every step, then leaves weights, a picture, a curve and a sample."""

    number: int

    @property
    def columns(self) -> dict[str, Any]:
        return {"family": "stub", "target": "none", "shape": "one", "rung": 0, "seed": self.number}

    def budget(self) -> Budget:
        return Budget(10, 2, 100, 6000.0)

    def work(self) -> float:
        return 1.0

    def __call__(self, place: RunContext) -> Outcome:
        begun.append(place.key)
        torch.manual_seed(self.number)
        model = nn.Linear(2, 1)
        optimiser = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        curve = {"step": [0.0], "tokens": [1.0], "flops": [1.0], "loss": [float(self.number)]}
        found = checkpoint.load(place.checkpoint, model, optimiser)
        curve, step = (found["curve"], found["step"]) if found else (curve, 0)
        while step < STEPS:
            optimiser.zero_grad()
            loss = model(torch.ones(1, 2)).square().sum()
            loss.backward()
            optimiser.step()
            step += 1
            for name, value in zip(curve, (step, step, step, loss.item()), strict=True):
                curve[name].append(float(value))
            if step < STEPS:
                checkpoint.save(place.checkpoint, model, optimiser, {"curve": curve, "step": step})
        checkpoint.save_weights(place.weights, model, {"family": "stub"})
        pictures = make_folder(path_inside(place.folder, "pictures"))
        with atomic_write(pictures / f"{place.key}.npz", "wb") as file:
            np.savez(file, samples=np.zeros((1, 3, 2)), step=np.array([1]))
        columns = self.columns | {"N": 10, "N_embedding": 2, "D": 100, "D_unique": 50, "C": 6e3}
        columns |= {"C_6ND": 6e3, "loss": curve["loss"][-1], "loss_se": 0.1, "seconds": 0.0}
        return Outcome(columns, curve, f"sample of {self.number}")


class _Crew(Workers):
    """One worker, in this very process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(1, DeviceSettings("cpu"))
        self.folder, self.messages = folder, []
        self.worker = Worker(lambda line: self.messages.append((0, json.loads(line))))

    def start(self, index: int) -> None:
        self.members[index] = WorkerState()
        self.messages.append((index, {"event": "ready"}))

    def dispatch(self, index: int, bundle: Bundle) -> None:
        self.members[index].start(bundle)
        self.worker.carry_out(order(bundle, self.folder, 1, self.on, index))

    def wait(self):
        now, self.messages[:] = list(self.messages), []
        return now

    def shut_down(self, index: int) -> None:
        self.messages.append((index, None))

    def remove(self, index: int) -> str:
        del self.members[index]
        return "left"

    def close(self) -> None:
        self.members.clear()


class Here(Executor):
    """Carries runs out in this process, one after another."""

    workers = threads = 1
    on = DeviceSettings("cpu")

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        yield from drive(_Crew(folder), longest_first(tasks), 1)


class _Nothing:
    name, D_unique = "nothing", 50.0

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "fingerprint": hashlib.sha256(b"nothing").hexdigest()}


def stub_study(runs: int) -> Study:
    """So many of them."""
    specs = [Spec(StubRun, number=number) for number in range(runs)]
    return Study(_Nothing(), [lambda *_, **__: specs], [10.0], tokens=100, seeds=1)
