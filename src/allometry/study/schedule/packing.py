"""Choose which runs are vectorised, their threads, and the expected time of a study."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np

from allometry._core.files import atomic_write, path_inside
from allometry._core.spec import Spec
from allometry.runs.schedule_file import read_schedule
from allometry.study.request import Request, TrainingRequest
from allometry.study.schedule.compiling import changed, compiled_bundles
from allometry.study.schedule.cost_model import LARGEST_PACK, estimate, largest_pack
from allometry.study.schedule.fixed_bundles import bundle_name, deterministic_bundles
from allometry.study.schedule.measured_costs import load
from allometry.study.schedule.step_time_cache import shape_key
from allometry.study.schedule.timing import (
    LIMIT,
    StepTime,
    TimingOptions,
    profile,
)
from allometry.study.tasks import Bundle, ExecutionOptions, Task, single
from allometry.train.lr_schedule import branch_step, log_spaced

START = 2.5
"""Seconds until a worker starts its first run: a new process imports torch."""

CURVE = 12
"""Evaluations along a training."""

TRACE_BELOW = 0.9
"""Relative time of a traced step below which tracing is used."""


@final
@dataclass(frozen=True)
class Schedule:
    """The bundles of a study, and its expected time.

    Args:
        bundles: With the expected seconds of each run.
        workers: Processes.
        seconds: Expected, from start to end.
    """

    bundles: tuple[Bundle, ...]
    workers: int
    seconds: float

    @property
    def tasks(self) -> list[Task]:
        """Every run."""
        return [task for bundle in self.bundles for task in bundle.tasks]

    def save(self, folder: Path) -> None:
        """Add to the folder's schedule, so that a resumed study uses the same bundles."""
        saved = read_schedule(folder)
        for bundle in self.bundles:
            keys = [task.key for task in bundle.tasks]
            about = {"keys": keys, "how": asdict(bundle.how)}
            about |= {"work": {task.key: task.work for task in bundle.tasks}}
            saved.setdefault(bundle.name, about)
        with atomic_write(path_inside(folder, "schedule.json")) as file:
            json.dump(saved, file, indent=1)


def bundles(tasks: Iterable[Task], folder: Path) -> list[Bundle]:
    """`tasks` in the bundles of the folder's schedule; the others one by one."""
    wanted = {task.key: task for task in tasks}
    found = []
    for name, about in read_schedule(folder).items():
        work = about["work"]
        members = [Task(wanted.pop(k).spec, work[k]) for k in about["keys"] if k in wanted]
        if members:
            found.append(Bundle(name, tuple(members), ExecutionOptions(**about["how"])))
    return found + [single(task) for task in wanted.values()]


def schedule(
    tasks: Sequence[Task],
    folder: Path,
    *,
    workers: int,
    threads: int,
    precision: str = "float32",
    device: str = "cpu",
    report: Callable[[str], None] | None = None,
    every: Sequence[Spec] | None = None,
) -> Schedule:
    """Choose bundles for all `tasks` that the folder's schedule does not contain; see `choose`.

    Args:
        tasks: Runs to carry out.
        folder: The study's; need not exist.
        workers: Processes at once.
        threads: Of each.
        precision: Of the trainings.
        device: Of the trainings.
        report: Receives messages about long operations.
        every: All runs of a deterministic study; see `deterministic_bundles`.
    """
    if every is not None:
        timed = choose(
            tasks,
            workers=workers,
            threads=threads,
            precision=precision,
            device=device,
            vectorise=False,
        )
        fixed = deterministic_bundles(every, [task for bundle in timed for task in bundle.tasks])
        return Schedule(tuple(fixed), workers, span(fixed, workers))
    known = {key for about in read_schedule(folder).values() for key in about["keys"]}
    fresh = [task for task in tasks if task.key not in known]
    old = bundles([task for task in tasks if task.key in known], folder)
    chosen = choose(
        fresh,
        workers=workers,
        threads=threads,
        precision=precision,
        device=device,
        report=report,
    )
    both = (*old, *chosen)
    return Schedule(both, workers, span(both, workers))


def span(chosen: Sequence[Bundle], workers: int) -> float:
    """Seconds from start to end if workers always take the longest remaining bundle."""
    ends = [START] * workers
    for bundle in sorted(chosen, key=lambda bundle: -bundle.work):
        ends[int(np.argmin(ends))] += bundle.work
    return max(ends) if chosen else 0.0


def choose(
    tasks: Sequence[Task],
    *,
    workers: int,
    threads: int,
    precision: str = "float32",
    device: str = "cpu",
    report: Callable[[str], None] | None = None,
    vectorise: bool = True,
) -> list[Bundle]:
    """Vectorise where step times measured on this machine say that it is faster.

    A step of M vectorised models is profiled for M = 2, 4 and the largest number, at a few sizes
    of each family; other values are interpolated linearly. Some of the jobs without gradient
    training are timed end to end; see `cost_model`.

    Args:
        tasks: Runs.
        workers: Processes at once.
        threads: Of each.
        precision: Of the trainings.
        device: Of the trainings.
        report: Receives messages about long operations.
        vectorise: Whether runs may be vectorised, traced, compiled or given more threads.
    """
    requests = {task.key: task.spec() for task in tasks}
    shapes: dict[str, list[Task]] = {}
    for task in tasks:
        if isinstance(requests[task.key], TrainingRequest):
            shapes.setdefault(shape_key(task.spec, requests[task.key]), []).append(task)
    timing = TimingOptions(workers, threads, precision, device)
    until = time.monotonic() + LIMIT
    rest = [task for task in tasks if not isinstance(requests[task.key], TrainingRequest)]
    few = dataclasses.replace(timing, workers=min(workers, len(tasks)))
    largest = largest_pack(device)
    times, seconds = estimate(shapes, rest, requests, lambda specs: profile(specs, few), largest)
    options = [
        _options(members, requests, times[name], largest)
        for name, members in shapes.items()
        if name in times
    ]
    options = options if vectorise else [option[:1] for option in options]
    chosen = [bundle for bundles in _fastest(options, workers) for bundle in bundles]
    chosen = compiled_bundles(chosen, timing, report) if vectorise else chosen
    if vectorise and sum(len(bundle.tasks) for bundle in chosen) == len(tasks):
        # Otherwise jobs without training would wait for the threads of a long training.
        chosen = _spread(chosen, timing, until)
    bundled = {task.key for bundle in chosen for task in bundle.tasks}
    left = [task for task in tasks if task.key not in bundled]
    if all(task.key in seconds for task in left):
        return chosen + [single(Task(t.spec, seconds[t.key])) for t in left]
    # Runs that could not be profiled: the runtimes of similar finished runs.
    costs = load(workers, threads)
    estimates = {task.key: costs.seconds(single(task)) for task in left}
    return chosen + [single(Task(t.spec, seconds.get(t.key, estimates[t.key]))) for t in left]


def _spread(chosen: list[Bundle], timing: TimingOptions, until: float) -> list[Bundle]:
    """If there are fewer bundles than workers, give them more threads where that is faster."""
    more = timing.workers * timing.threads // max(1, len(chosen))
    left = (until - time.monotonic()) / 2
    if not chosen or more <= timing.threads or left <= 0:
        return chosen
    specs = [[bundle.tasks[0].spec] for bundle in chosen]
    options = [
        dataclasses.replace(timing, workers=len(chosen), threads=n) for n in (timing.threads, more)
    ]
    few, many = (profile(specs, option, left) for option in options)
    bundles = []
    for bundle, slow, fast in zip(chosen, few, many, strict=True):
        share = 1.0
        if isinstance(slow, StepTime) and isinstance(fast, StepTime):
            share = fast.step / slow.step
        if share < 0.9:
            how = dataclasses.replace(bundle.how, threads=more)
            bundle = changed(bundle, how, share, name=bundle.name)
        bundles.append(bundle)
    return bundles


def _fastest(options: list[list[list[Bundle]]], workers: int) -> list[list[Bundle]]:
    """One option for each shape: the least work, then the earliest end.

    Profiled times are not exact: vectorisation must gain at least a tenth to be chosen.
    """

    def work(bundles: list[Bundle]) -> float:
        return sum(b.work * (1.0 if len(b.tasks) == 1 else 1.1) for b in bundles)

    best = [min(option, key=work) for option in options]

    def end(chosen: Iterable[list[Bundle]]) -> float:
        return span([bundle for bundles in chosen for bundle in bundles], workers)

    while True:
        others = [
            [*best[:i], other, *best[i + 1 :]]
            for i, option in enumerate(options)
            for other in option
        ]
        better = min(others, key=end, default=best)
        if end(better) >= end(best) * 0.99:
            return best
        best = better


def _options(
    tasks: list[Task], requests: dict[str, Request], step_time: StepTime, largest: int
) -> list[list[Bundle]]:
    """Every way to bundle runs of one shape; the first is one by one."""
    if largest > LARGEST_PACK:
        # On a GPU, packs beyond the largest profiled one may not fit its memory.
        largest = max(step_time.packed, default=1)
    units: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: -_training(requests, task).steps):
        units.setdefault(_training(requests, task).stable_phase or task.key, []).append(task)
    packs = all(_training(requests, task).packs for task in tasks)
    sizes = [1, *range(2, min(largest, len(units)) + 1)] if packs and step_time.packed else [1]
    ways = []
    for size in sizes:
        rows = list(units.values())
        chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
        ways.append([_bundle(chunk, requests, step_time) for chunk in chunks])
    return ways


def _bundle(units: list[list[Task]], requests: dict[str, Request], step_time: StepTime) -> Bundle:
    """A bundle of vectorised units, with the expected seconds of each run."""
    tasks = [task for unit in units for task in unit]
    after = {t.key: _after(_training(requests, t).steps, step_time) for t in tasks}
    lengths = [[_training(requests, task).steps for task in unit] for unit in units]
    traced = len(units) > 1 and step_time.traced < TRACE_BELOW
    stepped = stepping(lengths, step_time) * (step_time.traced if traced else 1.0)
    total = sum(map(sum, lengths))
    timed = tuple(
        Task(t.spec, stepped * _training(requests, t).steps / total + after[t.key]) for t in tasks
    )
    if len(tasks) == 1:
        return single(timed[0])
    name = bundle_name([task.key for task in timed])
    return Bundle(name, timed, ExecutionOptions(size=len(units), traced=traced))


def _training(requests: dict[str, Request], task: Task) -> TrainingRequest:
    request = requests[task.key]
    assert isinstance(request, TrainingRequest)
    return request


def _after(steps: int, step_time: StepTime) -> float:
    """Seconds of evaluation during training, and of finishing."""
    return len(log_spaced(steps, CURVE)) * step_time.measure + (step_time.finish or 0.0)


def stepping(lengths: Sequence[Sequence[int]], step_time: StepTime) -> float:
    """Seconds of all updates.

    Args:
        lengths: For each stable phase, the lengths of the trainings that share it.
        step_time: Of the shape.
    """
    ends = sorted({0, *(n for unit in lengths for s in unit for n in (s, branch_step(s)))})
    seconds = 0.0
    for begin, end in itertools.pairwise(ends):
        rows = 0
        for unit in lengths:
            if len(unit) == 1:
                rows += begin < unit[0]
            else:
                cooling = sum(branch_step(s) <= begin < s for s in unit)
                rows += cooling + any(branch_step(s) > begin for s in unit)
        seconds += (end - begin) * one_step(rows, step_time, packed=len(lengths) > 1)
    return seconds


def one_step(rows: int, step_time: StepTime, *, packed: bool) -> float:
    """Seconds of one update of `rows` models."""
    if rows <= 1 or not packed or not step_time.packed:
        return rows * step_time.step
    known = sorted(step_time.packed)
    last = step_time.packed[known[-1]] / known[-1]
    beyond = max(0, rows - known[-1]) * last
    interpolated = float(np.interp(rows, known, [step_time.packed[m] for m in known]))
    return max(step_time.step, interpolated + beyond)
