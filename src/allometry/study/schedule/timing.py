"""Profile training steps on this machine for about a second, in processes like the workers.

As many profilers run at once as there will be workers, since cores that share memory and power are
slower together. They report shape by shape, and are killed when the time is up or one shape takes
too long; nothing is interrupted from inside.
"""

import contextlib
import json
import math
import os
import selectors
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from allometry._core.process import available_cores
from allometry._core.spec import Spec
from allometry.study.execute import child_processes
from allometry.study.schedule import step_time_cache

LIMIT = 10.0
"""Largest number of seconds for profiling, imports included."""

BUILDING = 20.0
"""Largest number of further seconds until processes are ready: some build kernels, once."""

SHARE = 0.7
"""Share of the seconds for profiling that is left when the last process is ready."""

SHAPE_TIMEOUT = 4.0
"""Seconds after which a shape without a result is skipped."""

RESTART = 4.0
"""Seconds that must be left to start another process."""

READY = "ready"
"""The first message of a process, before it profiles."""


@final
@dataclass(frozen=True)
class TimingOptions:
    """The conditions of the runs.

    Args:
        workers: Processes at once.
        threads: Of each.
        precision: Of the trainings; see `train.BatchedTrainer`.
        device: Of the trainings.
    """

    workers: int
    threads: int
    precision: str = "float32"
    device: str = "cpu"


@final
@dataclass(frozen=True)
class StepTime:
    """Measured seconds of one shape.

    Args:
        step: One update of one model in the plain loop.
        packed: One update by the number of vectorised models; empty if that can't be faster.
        measure: One evaluation.
        finish: Everything after the last step; `None` if not measured.
        traced: Time of a traced vectorised step relative to an untraced one.
    """

    step: float
    packed: dict[int, float]
    measure: float
    finish: float | None = None
    traced: float = 1.0


@final
@dataclass(frozen=True)
class JobTime:
    """Seconds of a job without gradient training; see `job_timing`."""

    seconds: float


@final
@dataclass(frozen=True)
class CompiledStepTime:
    """Seconds of one update eager and compiled, to load the compiled code, and to compile it."""

    eager: float
    compiled: float
    once: float
    cold: float = 0.0


def profile(
    shapes: Sequence[Sequence[Spec]], options: TimingOptions, seconds: float = LIMIT
) -> list[StepTime | JobTime | None]:
    """The step time of each shape, given by runs that differ in seed, rate or length.

    Of a job without gradient training the first run is timed end to end. `None` for shapes that
    could not be profiled.

    Args:
        shapes: Runs of each shape that can be vectorised; those of a family are adjacent, smallest
            first.
        options: The conditions of the runs.
        seconds: For all shapes; those that are not finished by then get `None`.
    """
    keys = step_time_cache.entry_keys(shapes, asdict(options))
    known = step_time_cache.load(keys)
    missing = [i for i, key in enumerate(keys) if key not in known]
    fresh: dict[str, dict[str, Any]] = {}
    if missing:
        results = _results([shapes[i] for i in missing], options, seconds)
        found = ((keys[i], _found(prices)) for i, prices in zip(missing, results, strict=True))
        fresh = {key: asdict(each) for key, each in found if each is not None}
        step_time_cache.store(fresh)
    return [_restored((known | fresh).get(key)) for key in keys]


def _found(prices: list[dict[str, Any]]) -> StepTime | JobTime | None:
    """The mean over several processes; `None` if none has a result."""
    if prices and "seconds" in prices[0]:
        tried = [p["seconds"] for p in prices if p["seconds"] is not None]
        return JobTime(_mean(tried)) if tried else None
    return _price(prices) if prices else None


def _restored(stored: dict[str, Any] | None) -> StepTime | JobTime | None:
    """A result from plain values."""
    if stored is None:
        return None
    if "seconds" in stored:
        return JobTime(stored["seconds"])
    packed = {int(models): seconds for models, seconds in stored["packed"].items()}
    step, measure, finish, traced = (stored[k] for k in ("step", "measure", "finish", "traced"))
    return StepTime(step, packed, measure, finish, traced)


def _price(prices: list[dict[str, Any]]) -> StepTime:
    """The mean over several processes."""
    packed = {int(m): _mean(p["packed"].get(m) for p in prices) for m in prices[0]["packed"]}
    step, measure = (_mean(p[name] for p in prices) for name in ("step", "measure"))
    tried = [p["finish"] for p in prices if p["finish"] is not None]
    finish = _mean(tried) if tried else None
    packed = {m: t for m, t in packed.items() if t > 0}
    return StepTime(step, packed, measure, finish, _mean(p["traced"] for p in prices))


def profile_compiled(
    shapes: Sequence[Sequence[Spec]], options: TimingOptions
) -> list[CompiledStepTime | None]:
    """Step times of compiled shapes. It takes as long as compilation does.

    Each shape is compiled by one process; the compiled code stays on disk, from where workers load
    it within seconds, and the step times in the cache of `known_compiled`.
    """
    workers = min(options.workers, 2 * available_cores(), len(shapes))
    shares = [list(range(i, len(shapes), workers)) for i in range(workers)]
    asked = [[shapes[i] for i in share] for share in shares]
    found: list[CompiledStepTime | None] = [None] * len(shapes)
    for share, prices in zip(
        shares, _profile(asked, options, compiled=True, seconds=math.inf), strict=True
    ):
        for i, price in zip(share, prices, strict=True):
            found[i] = None if price is None else CompiledStepTime(**price)
    keys = _compiled_keys(shapes, options)
    known = zip(keys, found, strict=True)
    step_time_cache.store({key: asdict(each) for key, each in known if each is not None})
    return found


def known_compiled(
    shapes: Sequence[Sequence[Spec]], options: TimingOptions
) -> list[CompiledStepTime | None]:
    """Step times of shapes that an earlier study has compiled; `None` for the others."""
    keys = _compiled_keys(shapes, options)
    known = step_time_cache.load(keys)
    return [CompiledStepTime(**known[key]) if key in known else None for key in keys]


def _compiled_keys(shapes: Sequence[Sequence[Spec]], options: TimingOptions) -> list[str]:
    return step_time_cache.entry_keys(shapes, asdict(options) | {"compiled": True})


def _mean(values: Iterable[float | None]) -> float:
    """The mean of the values that are not `None`; 0 if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def _results(
    shapes: Sequence[Sequence[Spec]], options: TimingOptions, seconds: float
) -> list[list[dict[str, Any]]]:
    """The results of several simultaneous processes for each shape."""
    # A cluster may have more workers than this machine has cores.
    number = min(options.workers, 2 * available_cores())
    answers = [
        a for a in _profile([shapes] * number, options, compiled=False, seconds=seconds) if a
    ]
    columns = ([a[i] for a in answers] for i in range(len(shapes)))
    return [[found for found in column if found is not None] for column in columns]


def _profile(
    asked: Sequence[Sequence[Sequence[Spec]]],
    options: TimingOptions,
    *,
    compiled: bool,
    seconds: float,
) -> list[list[dict[str, Any] | None]]:
    """Results of simultaneous processes, each for its own shapes, within a time limit."""
    begun = time.monotonic()
    profilers = [_Profiler(shapes, options, compiled) for shapes in asked]

    def left() -> float:
        """Seconds until the time is up, which may move while processes are not ready."""
        ready = [profiler.ready for profiler in profilers]
        until = begun + seconds + BUILDING
        if all(ready):
            until = max(begun + seconds, max(ready) + SHARE * seconds)
        return max(0.0, until - time.monotonic())

    with selectors.DefaultSelector() as selector:
        for profiler in profilers:
            profiler.start(selector)
        try:
            while selector.get_map() and left() > 0:
                for selected, _ in selector.select(min(0.2, left())):
                    selected.data.read(selector)
                for profiler in profilers:
                    if not compiled and profiler.stuck():
                        profiler.skip(selector, again=left() > RESTART)
        finally:
            for profiler in profilers:
                profiler.end(selector)
    return [profiler.found for profiler in profilers]


@final
class _Profiler:
    """A process that profiles shapes, and its results."""

    def __init__(
        self, shapes: Sequence[Sequence[Spec]], options: TimingOptions, compiled: bool
    ) -> None:
        self.shapes, self.options, self.compiled = shapes, options, compiled
        self.found: list[dict[str, Any] | None] = []
        self.process: child_processes.Child | None = None
        self.buffer, self.heard = b"", 0.0
        self.ready = 0.0
        """When it was ready for the first time."""

    def start(self, selector: selectors.BaseSelector) -> None:
        """Profile all shapes without a result."""
        self.process = child_processes.start(
            "allometry.study.schedule.timing_worker",
            threads=self.options.threads,
            device=self.options.device,
        )
        left = self.shapes[len(self.found) :]
        about = {
            "shapes": [[spec.to_dict() for spec in specs] for specs in left],
            "families": [str(specs[0]().columns["family"]) for specs in left],
            "compiled": self.compiled,
            "precision": self.options.precision,
            "device": self.options.device,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(about).encode())
            self.process.stdin.close()
        self.buffer, self.heard = b"", 0.0
        selector.register(self.process.stdout, selectors.EVENT_READ, self)

    def read(self, selector: selectors.BaseSelector) -> None:
        """Read its results."""
        assert self.process is not None
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.heard = time.monotonic()
            self.ready = self.ready or self.heard
            result = json.loads(line)
            if result != READY:
                self.found.append(result)
        if not data:
            self.end(selector)

    def stuck(self) -> bool:
        """Whether one shape takes too long."""
        at = self.process is not None and self.heard > 0
        return at and time.monotonic() - self.heard > SHAPE_TIMEOUT

    def skip(self, selector: selectors.BaseSelector, *, again: bool) -> None:
        """Skip the current shape, and continue with the next if there is time."""
        self.end(selector, fill=False)
        self.found.append(None)
        if again and len(self.found) < len(self.shapes):
            self.start(selector)
        else:
            self.end(selector)

    def end(self, selector: selectors.BaseSelector, *, fill: bool = True) -> None:
        """Kill it; the remaining shapes have no result."""
        process, self.process = self.process, None
        if process is not None:
            assert process.stdout is not None
            selector.unregister(process.stdout)
            process.stdout.close()
            process.kill()
            process.wait()
        if fill:
            self.found += [None] * (len(self.shapes) - len(self.found))
