"""How long a step of a training takes here: a second of trying, in processes like the workers.

As many probes run at once as there will be workers, since cores that share memory and power are
slower together than one is alone. They say what they found shape by shape, and are ended when the
time for trying is up or one shape takes too long: nothing is interrupted from inside.
"""

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.process import available_cores
from allometry._core.spec import Spec

LIMIT = 10.0
"""Seconds of trying at most, with the imports that it takes."""

PATIENCE = 4.0
"""Seconds after which a shape is given up of which nothing is heard."""

WORTH = 4.0
"""Seconds that must be left for another process to be worth starting."""

READY = "ready"
"""What a process says when it begins to try."""


@final
@dataclass(frozen=True)
class TimingOptions:
    """How runs will be carried out.

    Args:
        workers: Processes at once.
        threads: Of each.
        precision: In which they will train; see `train.BatchedTrainer`.
    """

    workers: int
    threads: int
    precision: str = "float32"


@final
@dataclass(frozen=True)
class StepTime:
    """Seconds that one shape takes.

    Args:
        step: One update of one model in the plain loop.
        packed: One update of so many models stepped as one; empty where that could not pay.
        measure: One measurement of the curve.
        finish: What comes after the last step; `None` where it was not tried.
        traced: Share of a packed step's time that it takes once traced.
    """

    step: float
    packed: dict[int, float]
    measure: float
    finish: float | None = None
    traced: float = 1.0


@final
@dataclass(frozen=True)
class JobTime:
    """Seconds of a whole run that is no training; see `trial`."""

    seconds: float


@final
@dataclass(frozen=True)
class CompiledStepTime:
    """Seconds of one update eager and compiled, and until a worker finds what is compiled."""

    eager: float
    compiled: float
    once: float


def probe(
    shapes: Sequence[Sequence[Spec]], ways: TimingOptions, seconds: float = LIMIT
) -> list[StepTime | JobTime | None]:
    """The price of each shape, given by runs that differ in seed, rate or length.

    Of a shape that is no training the first run is tried and priced as a whole. `None` for what
    could not be tried.

    Args:
        shapes: Runs of each shape that might be packed; those of a family follow one another,
            smallest first.
        ways: How they will be carried out.
        seconds: For all of it; what has not been tried by then is not.
    """
    found: list[StepTime | JobTime | None] = []
    for prices in _answers(shapes, ways, seconds):
        if not prices:
            found.append(None)
        elif "seconds" in prices[0]:
            tried = [p["seconds"] for p in prices if p["seconds"] is not None]
            found.append(JobTime(_mean(tried)) if tried else None)
        else:
            found.append(_price(prices))
    return found


def _price(prices: list[dict[str, Any]]) -> StepTime:
    """What several processes found, in the mean."""
    packed = {int(m): _mean(p["packed"].get(m) for p in prices) for m in prices[0]["packed"]}
    step, measure = (_mean(p[name] for p in prices) for name in ("step", "measure"))
    tried = [p["finish"] for p in prices if p["finish"] is not None]
    finish = _mean(tried) if tried else None
    packed = {m: t for m, t in packed.items() if t > 0}
    return StepTime(step, packed, measure, finish, _mean(p["traced"] for p in prices))


def probe_compiled(
    packs: Sequence[Sequence[Spec]], ways: TimingOptions
) -> list[CompiledStepTime | None]:
    """What compiling whole packs is worth. It takes as long as compiling does.

    Each pack is compiled by one process; what is compiled stays on the disk, where workers find
    it within seconds.
    """
    workers = min(ways.workers, 2 * available_cores(), len(packs))
    shares = [list(range(i, len(packs), workers)) for i in range(workers)]
    asked = [[packs[i] for i in share] for share in shares]
    found: list[CompiledStepTime | None] = [None] * len(packs)
    for share, prices in zip(
        shares, _ask(asked, ways, compiled=True, seconds=math.inf), strict=True
    ):
        for i, price in zip(share, prices, strict=True):
            found[i] = None if price is None else CompiledStepTime(**price)
    return found


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are there; 0 where none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else 0.0


def _answers(
    shapes: Sequence[Sequence[Spec]], ways: TimingOptions, seconds: float
) -> list[list[dict[str, Any]]]:
    """What several processes at once say of each shape."""
    # A cluster may have room for more than this machine has.
    number = min(ways.workers, 2 * available_cores())
    answers = [a for a in _ask([shapes] * number, ways, compiled=False, seconds=seconds) if a]
    columns = ([a[i] for a in answers] for i in range(len(shapes)))
    return [[found for found in column if found is not None] for column in columns]


def _ask(
    asked: Sequence[Sequence[Sequence[Spec]]],
    ways: TimingOptions,
    *,
    compiled: bool,
    seconds: float,
) -> list[list[dict[str, Any] | None]]:
    """What processes that work at once say of the shapes that each is given, in so long."""
    until = time.monotonic() + seconds
    probes = [_Probe(shapes, ways, compiled) for shapes in asked]
    with selectors.DefaultSelector() as selector:
        for probe in probes:
            probe.start(selector)
        try:
            while selector.get_map() and time.monotonic() < until:
                for selected, _ in selector.select(min(0.2, max(0.0, until - time.monotonic()))):
                    selected.data.read(selector)
                for probe in probes:
                    if not compiled and probe.stuck():
                        probe.skip(selector, again=until - time.monotonic() > WORTH)
        finally:
            for probe in probes:
                probe.end(selector)
    return [probe.found for probe in probes]


@final
class _Probe:
    """A process that tries shapes, and what it has said of them."""

    def __init__(
        self, shapes: Sequence[Sequence[Spec]], ways: TimingOptions, compiled: bool
    ) -> None:
        self.shapes, self.ways, self.compiled = shapes, ways, compiled
        self.found: list[dict[str, Any] | None] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer, self.heard = b"", 0.0

    def start(self, selector: selectors.BaseSelector) -> None:
        """Try all shapes that nothing has been said of."""
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.ways.threads),
            "MKL_NUM_THREADS": str(self.ways.threads),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "allometry.study.schedule.timing_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        left = self.shapes[len(self.found) :]
        about = {
            "shapes": [[spec.to_dict() for spec in specs] for specs in left],
            "families": [str(specs[0]().columns["family"]) for specs in left],
            "compiled": self.compiled,
            "precision": self.ways.precision,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(about).encode())
            self.process.stdin.close()
        self.buffer, self.heard = b"", 0.0
        selector.register(self.process.stdout, selectors.EVENT_READ, self)

    def read(self, selector: selectors.BaseSelector) -> None:
        """Take in what it says."""
        assert self.process is not None
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.heard = time.monotonic()
            said = json.loads(line)
            if said != READY:
                self.found.append(said)
        if not data:
            self.end(selector)

    def stuck(self) -> bool:
        """Whether it has been at one shape for too long."""
        at = self.process is not None and self.heard > 0
        return at and time.monotonic() - self.heard > PATIENCE

    def skip(self, selector: selectors.BaseSelector, *, again: bool) -> None:
        """Give the shape up that it is at, and go on with the next where there is time for it."""
        self.end(selector, fill=False)
        self.found.append(None)
        if again and len(self.found) < len(self.shapes):
            self.start(selector)
        else:
            self.end(selector)

    def end(self, selector: selectors.BaseSelector, *, fill: bool = True) -> None:
        """No more of it; of what it has not come to nothing is known."""
        process, self.process = self.process, None
        if process is not None:
            assert process.stdout is not None
            selector.unregister(process.stdout)
            process.stdout.close()
            process.kill()
            process.wait()
        if fill:
            self.found += [None] * (len(self.shapes) - len(self.found))
