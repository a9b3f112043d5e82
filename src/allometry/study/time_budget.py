"""A study kept to a time on the clock, which is counted from the start of the process.

All that a person waits for is in it: imports, the choice of sizes, runs, laws and the page. The
folder remembers what has been spent and which sizes were chosen, so that whoever resumes the study
goes on with these for the time that is left.
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
from allometry.study.schedule import measured_costs as known
from allometry.study.schedule.budget import fitted
from allometry.study.schedule.measured_costs import MeasuredCosts
from allometry.study.schedule.packing import Schedule, bundles
from allometry.study.schedule.untimed import together
from allometry.study.study import Study
from allometry.study.tasks import Bundle, Task, alone

FILE = "budget.json"

ENDING = 0.5
"""Seconds that the process takes to leave after the report."""

SPENT = 0.9
"""Share of the budget from which on nothing more is begun."""


@final
@dataclass
class TimeBudget:
    """A study, the time it may take and what it is known to take.

    Args:
        study: With the sizes that fit.
        seconds: The whole budget.
        before: What earlier calls have spent of it.
        costs: What runs take here.
        executor: Who carries them out.
        asked: What the sizes were chosen for, in plain values.
        elapsed: Seconds that this call has taken so far.
    """

    study: Study
    seconds: float
    before: float
    costs: MeasuredCosts
    executor: Executor
    asked: dict[str, Any]
    elapsed: Callable[[], float]
    queue: TimeLimitedQueue | None = None

    @property
    def spent(self) -> bool:
        """Whether earlier calls have used the budget up."""
        return self.before >= SPENT * self.seconds

    def schedule(self, folder: Path) -> Schedule:
        """What is left to do in the folder, packed by rule; what it has decided stays."""
        decided = {key for about in read_schedule(folder).values() for key in about["keys"]}
        tasks = self.study.tasks(folder)
        fresh = [task for task in tasks if task.key not in decided]
        old = bundles([task for task in tasks if task.key in decided], folder)
        made = together(fresh) if self.executor.packs else [alone(task) for task in fresh]
        return Schedule((*old, *made), self.executor.workers, self.left())

    def left(self) -> float:
        """Seconds for runs, from now."""
        runs = len(self.study.specs())
        report = self.costs.report(runs) + ENDING
        return self.seconds - self.before - self.elapsed() - report

    def allot(self, chosen: Sequence[Bundle]) -> TimeLimitedQueue:
        """The queue that keeps to the time that is left."""
        more = further(self.study) if self.executor.packs else None
        seconds = max(0.0, self.left())
        self.queue = TimeLimitedQueue(chosen, seconds, self.executor.workers, self.costs, more)
        return self.queue

    def expected(self, folder: Path) -> float:
        """Seconds on the clock from the start of the process to its end."""
        chosen = [] if self.spent else self.schedule(folder).bundles
        runs = self.allot(chosen).expected()
        report = self.costs.report(len(self.study.specs())) + ENDING
        return self.elapsed() + runs + report

    def watch(self, folder: Path) -> Callable[[Event], None]:
        """Keeps what has been spent every few seconds, for whoever resumes the study."""
        last = self.elapsed()

        def watch(event: Event) -> None:
            nonlocal last
            if event.kind == "done" and self.elapsed() > last + 2.0:
                last = self.elapsed()
                self.save(folder)

        return watch

    def save(self, folder: Path) -> None:
        """Keep what was chosen and what has been spent."""
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
    """The study with sizes that fit, or those that the folder has for the same question.

    Args:
        study: What was asked for; its largest size is not looked at.
        folder: The study's; need not be there.
        seconds: On the clock, from the start of the process to the end of the report.
        executor: Who will carry it out.
        elapsed: Seconds of the budget that have passed; since the start of the process if not
            given.

    Raises:
        InputError: The budget is too small for anything; it says what would do.
    """
    costs = known.load(executor.workers, executor.threads)
    asked: dict[str, Any] = {
        "smallest": study.ladder[0],
        "rungs": len(study.ladder),
        "tokens": study.tokens,
        "seeds": study.seeds,
        "target": study.target.describe().get("fingerprint"),
        "families": _families(study),
    }
    kept = _read(folder)
    if kept.get("asked") == json.loads(json.dumps(asked)):
        sizes = (study.target, study.recipes, kept["ladder"], study.seeds, kept["tokens"])
        made = Study(*sizes, study.unit)
        return TimeBudget(made, seconds, float(kept["spent"]), costs, executor, asked, elapsed)
    made = fitted(study, seconds, costs, executor.workers)
    return TimeBudget(made, seconds, 0.0, costs, executor, asked, elapsed)


def _families(study: Study) -> list[str]:
    least = Study(study.target, study.recipes, study.ladder[:1], study.seeds, study.tokens)
    return sorted({str(spec().columns["family"]) for spec in least.specs()})


def further(study: Study) -> Iterator[list[Bundle]]:
    """More of the same for time that is left over: the next size up, another seed, and so on."""
    sizes, seeds = list(study.ladder), study.seeds
    have = study.specs()
    seen = {_what(spec) for spec in have}
    for _ in range(12):
        for taller in (True, False):
            if taller and len(sizes) > 1:
                sizes = [*sizes, round(sizes[-1] * sizes[-1] / sizes[-2])]
            elif not taller:
                seeds += 1
            made = Study(study.target, study.recipes, sizes, seeds, study.tokens, study.unit)
            with contextlib.suppress(InputError):
                specs = made.specs()
                # Where another size or seed changes all runs they would not be further ones.
                if not set(have) <= set(specs):
                    continue
                more = [spec for spec in specs if _what(spec) not in seen]
                seen |= {_what(spec) for spec in more}
                if more:
                    yield together([Task(spec, spec().work()) for spec in more])


def _what(spec: Any) -> tuple[Any, ...]:
    """What a run is, whatever rung it is counted as."""
    request = spec()
    about, budget = request.columns, request.budget()
    return about["family"], about["shape"], about["seed"], budget.N, budget.D


def _read(folder: Path) -> dict[str, Any]:
    """What the folder remembers; nothing where that is not ours."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        sizes = [*found["ladder"], *found["tokens"], found["spent"]]
        if all(isinstance(n, int | float) and math.isfinite(n) and n >= 0 for n in sizes):
            return found
    return {}
