"""Estimate the runtime of a job without gradient training by running part of it.

Such a job reports progress and can be stopped. Its step time is measured in the job itself; the
rest (construction, evaluation, finishing) in a copy that is cut to a few steps. A job without
progress runs until it ends, or until `profile` kills the process.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, final

from allometry.study.request import Request, RunContext, default_dtype
from allometry.train.loop import Progress, Stopped

WATCH = 1.0
"""Seconds for which a run is watched after its first progress."""

FEW = 40
"""Steps of the shortened run that is carried out to its end."""


@final
@dataclasses.dataclass
class _Watched:
    """The progress of a run: times, steps and, if it ended, the seconds."""

    started: float = dataclasses.field(default_factory=lambda: time.perf_counter())
    at: list[float] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)
    last: int = 0
    """Steps of the whole run."""
    seconds: float | None = None

    def watch(self, progress: Progress) -> None:
        """Record the run's progress."""
        self.at.append(time.perf_counter() - self.started)
        self.steps.append(progress.step)
        self.last = progress.steps

    def enough(self) -> bool:
        """Whether the run has been watched for long enough."""
        now = time.perf_counter() - self.started
        return len(self.at) > 2 and now - self.at[0] > WATCH and self.steps[-1] > self.steps[0]

    def pace(self) -> float:
        """Seconds per step: the median, since only a few steps include an evaluation."""
        pairs = zip(self.at, self.at[1:], self.steps, self.steps[1:], strict=False)
        return median((b - a) / (n - m) for a, b, m, n in pairs if n > m)


def job_seconds(request: Request) -> float | None:
    """Expected seconds of a run, from a part of it; `None` if that is not enough."""
    seen = _watched(request)
    if seen.seconds is not None:
        return seen.seconds
    if len(seen.at) < 3 or seen.steps[-1] == seen.steps[0]:
        return None
    pace = seen.pace()
    shortened = _shortened(request)
    if shortened is None:
        return seen.at[0] + pace * seen.last
    short = _watched(shortened)
    if short.seconds is None or not short.at:
        return seen.at[0] + pace * seen.last
    # A long run may prepare more than a short one, such as a traced step.
    more = max(0.0, seen.at[0] - short.at[0])
    return short.seconds + more + pace * (seen.last - short.last)


def _watched(request: Request) -> _Watched:
    """Carry out the run until it ends or has been watched for long enough."""
    with temporary_folder() as folder, default_dtype(request.dtype):
        seen = _Watched()
        with contextlib.suppress(Stopped):
            request(RunContext("trial", folder, seen.watch, seen.enough))
            seen.seconds = time.perf_counter() - seen.started
    return seen


def _shortened(request: Any) -> Any:
    """The request with few steps, wrapped or not."""
    names = {field.name for field in dataclasses.fields(request)}
    if "steps" in names:
        return dataclasses.replace(request, steps=min(FEW, request.steps))
    inner = _shortened(request.run) if "run" in names else None
    return None if inner is None else dataclasses.replace(request, run=inner)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary study folder."""
    with tempfile.TemporaryDirectory() as name:
        for part in ("weights", "checkpoints"):
            (Path(name) / part).mkdir()
        yield Path(name)
