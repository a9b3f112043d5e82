"""Runs with odd results: values that no journal can contain, exceptions without a message."""

import copy
import dataclasses
import fcntl
import math
import os
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from allometry._core.estimate import Estimate
from allometry.study.execute import run_results
from allometry.study.request import Outcome, Request, RunContext, TrainingRequest
from allometry.train.budget import Budget
from allometry.train.loop import Progress
from allometry.train.optimiser import adamw
from allometry.train.training import Training
from tests.study.fakes import FakeRun, Sick


class Mute(Exception):
    """Can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Locked(Exception):
    """Holds what can't be sent to another process."""

    def __init__(self, message: str) -> None:
        super().__init__(message, threading.Lock())

    def __reduce__(self) -> Any:
        raise TypeError("can't be pickled")

    def __str__(self) -> str:
        return "unpicklable"


def deep() -> list[Any]:
    """A list that contains itself."""
    inside: list[Any] = []
    inside.append(inside)
    return inside


def raising(make: Callable[[], BaseException]) -> Any:
    raise make()


Change = Callable[[Outcome], Any]


def changed(outcome: Outcome, **fields: Any) -> Outcome:
    """As `dataclasses.replace`, but unchecked, as it is outside the tests."""
    made = copy.copy(outcome)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def column(value: Any, name: str = "loss") -> Change:
    return lambda o: changed(o, columns=o.columns | {name: value})


DONE: dict[str, tuple[Change, Any]] = {
    "float32": (column(np.float32(0.5)), 0.5),
    "float64": (column(np.float64(0.5)), 0.5),
    "longdouble": (column(np.longdouble(0.5)), 0.5),
    "int64": (column(np.int64(3)), 3),
    "0-d array": (column(np.array(0.5)), 0.5),
    "tensor": (column(torch.tensor(0.5, requires_grad=True)), 0.5),
    "bfloat16": (column(torch.tensor(0.5, dtype=torch.bfloat16)), 0.5),
    "fraction": (column(Fraction(1, 2)), 0.5),
    "decimal": (column(Decimal("0.5")), 0.5),
    "large whole number": (column(2**70), float(2**70)),
    "none": (column(None), None),
    "array elsewhere": (column(np.array([1.0, 2.0]), "rates"), 1.5),
    "numpy truth": (column(np.bool_(True), "chosen"), 1.5),
    "number as a name": (column({0.1: [1.0]}, "rates"), 1.5),
    "half a character": (lambda o: changed(o, sample="\ud800 sample"), 1.5),
    "key of its own": (column("0123456789abcdef", "key"), 1.5),
    "status of its own": (column("failed", "status"), 1.5),
    "unknown measure": (
        lambda o: changed(o, measures={"odd": Estimate(math.nan)}),
        1.5,
    ),
    "measure named key": (
        lambda o: changed(o, measures={"key": Estimate(1.0)}),
        1.5,
    ),
}
"""What ends well, and the loss that the journal then has."""

DIVERGED: dict[str, tuple[Change, str]] = {
    "nan": (column(math.nan), "loss of the result is nan"),
    "inf": (column(math.inf), "loss of the result is inf"),
    "-inf": (column(-math.inf), "loss of the result is -inf"),
    "nan of numpy": (column(np.float32("nan")), "loss of the result is nan"),
    "nan of torch": (column(torch.tensor(math.nan)), "loss of the result is nan"),
    "nan elsewhere": (column(math.nan, "test_loss"), "test_loss of the result is nan"),
    "nan inside": (column({"a": [1.0, math.nan]}, "rates"), r"rates\['a'\]\[1\] of the result"),
    "too large for a float": (column(10**400), "loss of the result is inf"),
    "nan in the curve": (
        lambda o: changed(o, curve=o.curve | {"loss": [2.0, math.nan]}),
        r"curve loss\[1\] of the result is nan",
    ),
}
"""What is a divergence, and what its reason says."""

FAILED: dict[str, tuple[Change, str]] = {
    "complex": (column(1j), "loss must be made of numbers.*; got complex"),
    "words": (column("low"), "loss must be a number or None; got str"),
    "truth": (column(True), "loss must be a number or None; got bool"),
    "vector": (column(np.array([0.5])), "loss must be a number or None; got list"),
    "object": (column(object(), "odd"), "odd must be made of numbers.*; got object"),
    "bytes": (column(b"x", "odd"), "odd must be made of numbers.*; got bytes"),
    "set": (column({1}, "odd"), "odd must be made of numbers.*; got set"),
    "path": (column(Path("x"), "odd"), "odd must be made of numbers.*; got PosixPath"),
    "date": (column(np.datetime64("2020-01-01"), "odd"), "odd must be made of.*; got datetime64"),
    "name that is none": (column({(1, 2): 3}, "odd"), "names in a result must be strings"),
    "without end": (column(deep(), "odd"), "odd must be nested at most 16 deep"),
    "long array": (column(torch.zeros(2_000_000), "odd"), "odd must have at most 1,000,000"),
    "nothing": (lambda o: None, "a run must return an Outcome; got None"),
    "mapping": (lambda o: o.columns, "a run must return an Outcome; got dict"),
    "sample of bytes": (lambda o: changed(o, sample=b"x"), "sample must be a string"),
    "bare measure": (lambda o: changed(o, measures={"m": 1.0}), "be an Estimate"),
    "ragged curve": (
        lambda o: changed(o, curve={"step": [1.0], "loss": [1.0, 2.0]}),
        "equally long",
    ),
    "curve of words": (lambda o: changed(o, curve={"loss": ["x"]}), "must be numbers"),
    "curve that can't be saved": (
        lambda o: changed(o, curve={"file": [1.0]}),
        "file",
    ),
    "too much": (
        lambda o: changed(o, sample="x" * (run_results.LARGEST + 1)),
        "at most 64 MB; got 64 MB",
    ),
    "mute": (lambda o: raising(Mute), r"Mute, whose message can't be read \(RuntimeError\)"),
    "unpicklable": (lambda o: raising(lambda: Locked("x")), "Locked: unpicklable"),
    "verbose": (
        lambda o: raising(lambda: ValueError("x" * 10_000_000)),
        r"x\.\.\. \(10,000,000 characters in all\)$",
    ),
    "no message": (lambda o: raising(AssertionError), "^AssertionError$"),
    "name of a file": (lambda o: raising(lambda: OSError("bad \udcff name")), r"bad \? name"),
    "exit": (lambda o: sys.exit(0), "^SystemExit: 0$"),
    "interrupt": (lambda o: raising(KeyboardInterrupt), "^KeyboardInterrupt$"),
}
"""What is a failure, and what its reason says."""

KINDS: dict[str, tuple[Change, Any]] = {**DONE, **DIVERGED, **FAILED}


@dataclass(frozen=True)
class OddRun(Request):
    """Ends in one of `KINDS`."""

    kind: str

    @property
    def columns(self) -> dict[str, Any]:
        return {"family": "odd", "target": "none", "shape": self.kind, "rung": 0, "seed": 0}

    def budget(self) -> Budget:
        return Budget(10, 2, 100, 6000.0)

    def work(self) -> float:
        return 0.01

    def __call__(self, place: RunContext) -> Outcome:
        place.watch(dataclasses.replace(PROGRESS, loss=math.nan))
        if self.kind == "garbage":
            speak(b"this is no message\n")
        outcome = FakeRun(self.kind.replace(" ", "_"))(place)
        outcome = dataclasses.replace(outcome, columns=outcome.columns | self.columns)
        return KINDS[self.kind][0](outcome) if self.kind in KINDS else outcome


PROGRESS = Progress(1, 2, 1.0)


def speak(words: bytes) -> None:
    """Into every pipe that this process can write to, the driver's among them."""
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        try:
            pipe = stat.S_ISFIFO(os.fstat(int(name)).st_mode)
            if pipe and int(name) > 2 and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_WRONLY:
                os.write(int(name), words)
        except OSError:
            continue


@dataclass(frozen=True)
class OddTraining(TrainingRequest):
    """A training whose finish ends in one of `KINDS`; `"unmeasurable"` is no number on the way."""

    kind: str
    steps: int = 3
    free: ClassVar[tuple[str, ...]] = ("kind", "steps")

    @property
    def columns(self) -> dict[str, Any]:
        return OddRun(self.kind).columns

    def budget(self) -> Budget:
        return Budget(1, 0, self.steps, 6.0 * self.steps)

    def work(self) -> float:
        return 0.01

    def training(self) -> Training:
        model = Sick()
        bad = self.kind == "unmeasurable"

        def measure(model: Any) -> Estimate:
            return Estimate(math.nan if bad else float(model.weight.detach().square()), 0.0)

        return Training(
            model=model,
            optimiser=adamw(model, lr=0.1),
            objective=lambda model, step: model.weight.square().sum() + 0 * step.sum(),
            batch=lambda step: (torch.tensor([float(step)]),),
            measure=measure,
            steps=self.steps,
            seen=1,
        )

    def finish(self, place: RunContext, training: Any, model: Any, trained: Any) -> Outcome:
        return OddRun(self.kind)(place)
