"""A study with a wall-clock budget, counted from the start of the process.

Sizes are chosen to fit. A user's own code keeps its shapes; the longest that do not fit are left
out. The budget includes imports, the choice of sizes, runs, fits and the report. The folder stores
the time spent and the chosen sizes, so that a resumed study continues with them for the time left.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError
from allometry._core.files import atomic_write, path_inside
from allometry._core.process import seconds_since_start
from allometry.runs.schedule_file import read_schedule
from allometry.study.execute.driver import Event
from allometry.study.execute.executors import Executor
from allometry.study.execute.time_limited_queue import TimeLimitedQueue
from allometry.study.own_training.own_costs import costs_of
from allometry.study.schedule import measured_costs
from allometry.study.schedule.fixed_bundles import rule_bundles
from allometry.study.schedule.measured_costs import RunCosts
from allometry.study.schedule.packing import Schedule, bundles
from allometry.study.schedule.study_budget import fitted
from allometry.study.study import Study
from allometry.study.tasks import Bundle, Task, single

FILE = "budget.json"

WORKER_START = 6.0
"""Seconds from the start of the workers to their first run, with their imports."""

EXIT = 0.5
"""Seconds from the end of the report to the end of the process."""

SPENT = 0.9
"""Share of the budget above which no run is started."""


@final
@dataclass
class TimeBudget:
    """A study, its time budget and the expected runtimes.

    Args:
        study: With the sizes that fit.
        seconds: The whole budget.
        before: Seconds spent by earlier calls.
        costs: Runtimes on this machine.
        executor: Of the runs.
        asked: The request that the sizes were chosen for, as plain values.
        elapsed: Seconds that this call has taken so far.
    """

    study: Study
    seconds: float
    before: float
    costs: RunCosts
    executor: Executor
    asked: dict[str, Any]
    elapsed: Callable[[], float]
    queue: TimeLimitedQueue | None = None

    @property
    def own(self) -> bool:
        """Whether the runs are the user's own code, whose shapes are not chosen here."""
        return not getattr(self.study.target, "profiled", True)

    @property
    def spent(self) -> bool:
        """Whether earlier calls have used up the budget."""
        return self.before >= SPENT * self.seconds

    def schedule(self, folder: Path) -> Schedule:
        """The remaining runs, bundled by a fixed rule; bundles of the folder's schedule stay."""
        decided = {key for about in read_schedule(folder).values() for key in about["keys"]}
        tasks = self.study.tasks(folder)
        fresh = [task for task in tasks if task.key not in decided]
        old = bundles([task for task in tasks if task.key in decided], folder)
        new = rule_bundles(fresh) if self.executor.packs else [single(task) for task in fresh]
        return Schedule((*old, *new), self.executor.workers, self.left())

    def left(self) -> float:
        """Seconds left for runs."""
        runs = len(self.study.specs())
        report = self.costs.report(runs) + EXIT
        return self.seconds - self.before - self.elapsed() - report

    def make_queue(self, chosen: Sequence[Bundle]) -> TimeLimitedQueue:
        """The queue that keeps to the time left."""
        more = further_runs(self.study) if self.executor.packs and not self.own else None
        seconds = max(0.0, self.left())
        self.queue = TimeLimitedQueue(chosen, seconds, self.executor.workers, self.costs, more)
        return self.queue

    def expected(self, folder: Path) -> float:
        """Expected wall-clock seconds from the start of the process to its end."""
        chosen = [] if self.spent else self.schedule(folder).bundles
        queue = self.make_queue(chosen)
        # Until the first run begins, workers start and import torch.
        runs = min(queue.expected() + WORKER_START, queue.seconds) if chosen else 0.0
        report = self.costs.report(len(self.study.specs())) + EXIT
        return self.elapsed() + runs + report

    def watch(self, folder: Path) -> Callable[[Event], None]:
        """A callback that saves the time spent every few seconds, for a resumed study."""
        last = self.elapsed()

        def watch(event: Event) -> None:
            nonlocal last
            if event.kind == "done" and self.elapsed() > last + 2.0:
                last = self.elapsed()
                self.save(folder)

        return watch

    def save(self, folder: Path) -> None:
        """Write the chosen sizes and the time spent."""
        about = {"seconds": self.seconds, "spent": self.before + self.elapsed()}
        about |= {"asked": self.asked, "ladder": self.study.ladder, "tokens": self.study.tokens}
        with atomic_write(path_inside(folder, FILE)) as file:
            json.dump(about, file, indent=1)


def budgeted(
    study: Study,
    folder: Path,
    seconds: float,
    executor: Executor,
    elapsed: Callable[[], float] = seconds_since_start,
) -> TimeBudget:
    """The study with sizes that fit, or with those that the folder has for the same request.

    Args:
        study: The request; its largest size is ignored.
        folder: The study's; need not exist.
        seconds: Wall-clock time from the start of the process to the end of the report.
        executor: Of the runs.
        elapsed: Seconds of the budget that have passed. Default: since the start of the process.

    Raises:
        InputError: The budget is too small; the message has the smallest sufficient one.
    """
    machine = measured_costs.load(executor.workers, executor.threads)
    costs = costs_of(study, folder, machine)
    asked: dict[str, Any] = {
        "smallest": study.ladder[0],
        "rungs": len(study.ladder),
        "tokens": study.tokens,
        "seeds": study.seeds,
        "target": study.target.describe().get("fingerprint"),
        "families": _families(study),
    }
    saved = _read(folder)
    if saved.get("asked") == json.loads(json.dumps(asked)):
        sizes = (study.target, study.recipes, saved["ladder"], study.seeds, saved["tokens"])
        resumed = Study(*sizes, study.unit)
        spent = float(saved["spent"])
        return TimeBudget(resumed, seconds, spent, costs, executor, asked, elapsed)
    sized = study if costs is not machine else fitted(study, seconds, machine, executor.workers)
    return TimeBudget(sized, seconds, 0.0, costs, executor, asked, elapsed)


def _families(study: Study) -> list[str]:
    least = Study(study.target, study.recipes, study.ladder[:1], study.seeds, study.tokens)
    return sorted({str(spec().columns["family"]) for spec in least.specs()})


def further_runs(study: Study) -> Iterator[list[Bundle]]:
    """More runs for time left over: the next larger size, another seed, and so on."""
    sizes, seeds = list(study.ladder), study.seeds
    requested = study.specs()
    seen = {_run_identity(spec) for spec in requested}
    for _ in range(12):
        for larger in (True, False):
            if larger and len(sizes) > 1:
                sizes = [*sizes, round(sizes[-1] * sizes[-1] / sizes[-2])]
            elif not larger:
                seeds += 1
            grown = Study(study.target, study.recipes, sizes, seeds, study.tokens, study.unit)
            with contextlib.suppress(InputError):
                specs = grown.specs()
                # If another size or seed changes all runs, they do not extend the study.
                if not set(requested) <= set(specs):
                    continue
                new = [spec for spec in specs if _run_identity(spec) not in seen]
                seen |= {_run_identity(spec) for spec in new}
                if new:
                    yield rule_bundles([Task(spec, spec().work()) for spec in new])


def _run_identity(spec: Any) -> tuple[Any, ...]:
    """The identity of a run without its rung."""
    request = spec()
    columns, budget = request.columns, request.budget()
    return columns["family"], columns["shape"], columns["seed"], budget.N, budget.D


def _read(folder: Path) -> dict[str, Any]:
    """The folder's budget file; empty if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        saved = json.loads((folder / FILE).read_text(encoding="utf-8"))
        numbers = [*saved["ladder"], *saved["tokens"], saved["spent"]]
        if all(isinstance(n, int | float) and math.isfinite(n) and n >= 0 for n in numbers):
            return saved
    return {}
