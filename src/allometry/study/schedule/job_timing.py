"""How long a run takes that is no training which could be laid open: a part of it carried out.

Such a run tells its progress and can be stopped, and mostly has a number of steps: what a step
takes is seen in the run itself, and all the rest (making, measuring, finishing) in one that is cut
to a few steps. One that says nothing is waited for: `probe` ends the process that tries it.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, final

from allometry.study.request import Request, RunContext
from allometry.train.loop import Progress, Stopped

LOOK = 1.0
"""Seconds for which a run is looked at once it makes progress."""

FEW = 40
"""Steps of the run that is carried out to its end."""


@final
@dataclasses.dataclass
class _Watched:
    """What a run did: when it told which step, and when it ended, if it did."""

    started: float = dataclasses.field(default_factory=lambda: time.perf_counter())
    at: list[float] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)
    last: int = 0
    """Steps of the whole run."""
    seconds: float | None = None

    def watch(self, progress: Progress) -> None:
        """Told by the run."""
        self.at.append(time.perf_counter() - self.started)
        self.steps.append(progress.step)
        self.last = progress.steps

    def enough(self) -> bool:
        """Asked by the run: whether it has been looked at for long enough."""
        now = time.perf_counter() - self.started
        return len(self.at) > 2 and now - self.at[0] > LOOK and self.steps[-1] > self.steps[0]

    def pace(self) -> float:
        """Seconds of a step: the median, since measurements fall on a few steps alone."""
        pairs = zip(self.at, self.at[1:], self.steps, self.steps[1:], strict=False)
        return median((b - a) / (n - m) for a, b, m, n in pairs if n > m)


def whole(request: Request) -> float | None:
    """Expected seconds of a run, from a part of it; `None` where it can't be told."""
    seen = _tried(request)
    if seen.seconds is not None:
        return seen.seconds
    if len(seen.at) < 3 or seen.steps[-1] == seen.steps[0]:
        return None
    pace = seen.pace()
    few = _cut(request)
    if few is None:
        return seen.at[0] + pace * seen.last
    short = _tried(few)
    if short.seconds is None or not short.at:
        return seen.at[0] + pace * seen.last
    # A long run may prepare more than a short one does, such as a list of kernels.
    more = max(0.0, seen.at[0] - short.at[0])
    return short.seconds + more + pace * (seen.last - short.last)


def _tried(request: Request) -> _Watched:
    """The run, until it ends or has been looked at for long enough."""
    with nowhere() as folder:
        seen = _Watched()
        with contextlib.suppress(Stopped):
            request(RunContext("trial", folder, seen.watch, seen.enough))
            seen.seconds = time.perf_counter() - seen.started
    return seen


def _cut(request: Any) -> Any:
    """The request with a few steps in place of many, be it wrapped in others."""
    names = {field.name for field in dataclasses.fields(request)}
    if "steps" in names:
        return dataclasses.replace(request, steps=min(FEW, request.steps))
    inner = _cut(request.run) if "run" in names else None
    return None if inner is None else dataclasses.replace(request, run=inner)


@contextlib.contextmanager
def nowhere() -> Iterator[Path]:
    """A study's folder that is thrown away."""
    with tempfile.TemporaryDirectory() as name:
        for part in ("weights", "checkpoints"):
            (Path(name) / part).mkdir()
        yield Path(name)
