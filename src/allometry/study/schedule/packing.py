"""Which runs go together, on how many threads, and how long it will all take."""

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from allometry._core.files import atomic_write, path_inside
from allometry._core.spec import Spec
from allometry.runs.schedule_file import read_schedule
from allometry.study.request import Request, TrainingRequest
from allometry.study.schedule.cost_model import LARGEST_PACK, find
from allometry.study.schedule.deterministic import fixed
from allometry.study.schedule.measured_costs import load
from allometry.study.schedule.timing import LIMIT, StepTime, TimingOptions, probe, probe_compiled
from allometry.study.tasks import Bundle, ExecutionOptions, Task, alone
from allometry.train.lr_schedule import branch_step, log_spaced
from allometry.train.packed.trace import compiler

START = 2.5
"""Seconds until a worker is at work: a new process imports torch."""

CURVE = 12
"""Measurements along a training."""

LONG = 1800.0
"""Seconds of all bundles of one shape from which on compiling is tried.

Trying takes 10 to 30 s a shape on a core, and what is compiled takes a fifth to a third less.
"""

PAYS = 0.9
"""Share of a packed step's time below which it is traced."""


@final
@dataclass(frozen=True)
class Schedule:
    """What will be carried out, in which bundles, and in how many seconds.

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
        """Add to the folder's schedule, so that a resumed study goes on in the same way."""
        kept = read_schedule(folder)
        for bundle in self.bundles:
            keys = [task.key for task in bundle.tasks]
            about = {"keys": keys, "how": asdict(bundle.how)}
            about |= {"work": {task.key: task.work for task in bundle.tasks}}
            kept.setdefault(bundle.name, about)
        with atomic_write(path_inside(folder, "schedule.json")) as file:
            json.dump(kept, file, indent=1)


def bundles(tasks: Iterable[Task], folder: Path) -> list[Bundle]:
    """`tasks` in the bundles that the folder's schedule has; those it does not know, alone."""
    wanted = {task.key: task for task in tasks}
    found = []
    for name, about in read_schedule(folder).items():
        work = about["work"]
        members = [Task(wanted.pop(k).spec, work[k]) for k in about["keys"] if k in wanted]
        if members:
            found.append(Bundle(name, tuple(members), ExecutionOptions(**about["how"])))
    return found + [alone(task) for task in wanted.values()]


def schedule(
    tasks: Sequence[Task],
    folder: Path,
    *,
    workers: int,
    threads: int,
    precision: str = "float32",
    tell: Callable[[str], None] | None = None,
    every: Sequence[Spec] | None = None,
) -> Schedule:
    """Decide for all `tasks` that the folder has not decided before; see `choose`.

    Args:
        tasks: Runs to be carried out.
        folder: The study's; need not be there.
        workers: Processes at once.
        threads: Of each.
        precision: In which runs will train.
        tell: Told what takes long.
        every: All runs of a study whose digits must repeat; see `fixed`.
    """
    if every is not None:
        ways = {"workers": workers, "threads": threads, "precision": precision}
        tried = choose(tasks, **ways, together=False)
        same = fixed(every, [task for bundle in tried for task in bundle.tasks])
        return Schedule(tuple(same), workers, span(same, workers))
    known = {key for about in read_schedule(folder).values() for key in about["keys"]}
    fresh = [task for task in tasks if task.key not in known]
    old = bundles([task for task in tasks if task.key in known], folder)
    chosen = choose(fresh, workers=workers, threads=threads, precision=precision, tell=tell)
    both = (*old, *chosen)
    return Schedule(both, workers, span(both, workers))


def span(chosen: Sequence[Bundle], workers: int) -> float:
    """Seconds from start to end if workers always take the longest bundle that is left."""
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
    tell: Callable[[str], None] | None = None,
    together: bool = True,
) -> list[Bundle]:
    """Pack what is cheaper packed, by prices tried on this machine.

    A step of M models packed is tried for M = 2, 4 and the most there are, at a few sizes of each
    family; what lies between them is taken to be on a line. Of runs that are no trainings some are
    tried as wholes; see `prices`.

    Args:
        tasks: Runs.
        workers: Processes at once.
        threads: Of each.
        precision: In which runs will train.
        tell: Told what takes long.
        together: Whether runs may be packed, traced, compiled or given more threads.
    """
    requests = {task.key: task.spec() for task in tasks}
    shapes: dict[str, list[Task]] = {}
    for task in tasks:
        if isinstance(requests[task.key], TrainingRequest):
            shapes.setdefault(_shape(task.spec, requests[task.key]), []).append(task)
    ways, until = TimingOptions(workers, threads, precision), time.monotonic() + LIMIT
    rest = [task for task in tasks if not isinstance(requests[task.key], TrainingRequest)]
    few = dataclasses.replace(ways, workers=min(workers, len(tasks)))
    prices, seconds = find(shapes, rest, requests, lambda asked: probe(asked, few))
    options = [
        _options(members, requests, prices[name])
        for name, members in shapes.items()
        if name in prices
    ]
    options = options if together else [option[:1] for option in options]
    found = [bundle for bundles in _quickest(options, workers) for bundle in bundles]
    found = _compile(found, ways, tell) if together else found
    if together and sum(len(bundle.tasks) for bundle in found) == len(tasks):
        # Runs that are no trainings would wait for threads that a long training has taken.
        found = _spread(found, ways, until)
    there = {task.key for bundle in found for task in bundle.tasks}
    left = [task for task in tasks if task.key not in there]
    if all(task.key in seconds for task in left):
        return found + [alone(Task(t.spec, seconds[t.key])) for t in left]
    # What could not be tried takes what runs like it have taken here.
    costs = load(workers, threads)
    guessed = {task.key: costs.seconds(alone(task)) for task in left}
    return found + [alone(Task(t.spec, seconds.get(t.key, guessed[t.key]))) for t in left]


def _compile(
    found: list[Bundle], ways: TimingOptions, tell: Callable[[str], None] | None
) -> list[Bundle]:
    """Compile where a shape takes so long that it could pay, and trying says that it does."""
    shapes: dict[str, list[Bundle]] = {}
    for bundle in found:
        shapes.setdefault(_pack(bundle), []).append(bundle)
    work = {name: sum(bundle.work for bundle in some) for name, some in shapes.items()}
    long = [name for name in shapes if work[name] > LONG]
    if not long or compiler() is None:
        return found
    if tell is not None:
        tell(f"Compiling {len(long)} shapes for this processor, up to half a minute each ...")
    heads = [[t.spec for t in shapes[name][0].tasks][: _rows_of(name)] for name in long]
    answers = dict(zip(long, probe_compiled(heads, ways), strict=True))
    made = []
    for bundle in found:
        name = _pack(bundle)
        price = answers.get(name)
        if price is not None:
            share = price.compiled / price.eager
            # Every worker that meets the shape loads it once.
            if work[name] * (1 - share) > price.once * min(ways.workers, len(shapes[name])):
                how = dataclasses.replace(bundle.how, compiled=True)
                bundle = _renamed(bundle, how, share)
        made.append(bundle)
    return made


def _pack(bundle: Bundle) -> str:
    """A name for what is compiled once: the shape and the number of rows."""
    spec = bundle.tasks[0].spec
    return json.dumps([bundle.how.size, _shape(spec, spec())])


def _rows_of(name: str) -> int:
    return json.loads(name)[0]


def _spread(found: list[Bundle], ways: TimingOptions, until: float) -> list[Bundle]:
    """Give more threads to each where there are fewer bundles than workers, if that helps."""
    more = ways.workers * ways.threads // max(1, len(found))
    left = (until - time.monotonic()) / 2
    if not found or more <= ways.threads or left <= 0:
        return found
    asked = [[bundle.tasks[0].spec] for bundle in found]
    each = [TimingOptions(len(found), n, ways.precision) for n in (ways.threads, more)]
    few, many = (probe(asked, way, left) for way in each)
    made = []
    for bundle, slow, quick in zip(found, few, many, strict=True):
        share = 1.0
        if isinstance(slow, StepTime) and isinstance(quick, StepTime):
            share = quick.step / slow.step
        if share < 0.9:
            how = dataclasses.replace(bundle.how, threads=more)
            bundle = _renamed(bundle, how, share, name=bundle.name)
        made.append(bundle)
    return made


def _renamed(
    bundle: Bundle, how: ExecutionOptions, share: float, name: str | None = None
) -> Bundle:
    """The bundle carried out in another way, in a share of its time."""
    tasks = tuple(Task(task.spec, task.work * share) for task in bundle.tasks)
    return Bundle(name or _name(tasks), tasks, how)


def _name(tasks: Sequence[Task]) -> str:
    return hashlib.sha256("+".join(task.key for task in tasks).encode()).hexdigest()[:16]


def _quickest(options: list[list[list[Bundle]]], workers: int) -> list[list[Bundle]]:
    """One option of each shape: the least work, then whatever brings the end nearer.

    A second of trying is no exact science: packing must promise a tenth to be chosen.
    """

    def work(bundles: list[Bundle]) -> float:
        return sum(b.work * (1.0 if len(b.tasks) == 1 else 1.1) for b in bundles)

    taken = [min(option, key=work) for option in options]

    def end(chosen: Iterable[list[Bundle]]) -> float:
        return span([bundle for bundles in chosen for bundle in bundles], workers)

    while True:
        others = [
            [*taken[:i], other, *taken[i + 1 :]]
            for i, option in enumerate(options)
            for other in option
        ]
        best = min(others, key=end, default=taken)
        if end(best) >= end(taken) * 0.99:
            return taken
        taken = best


def _shape(spec: Spec, request: TrainingRequest) -> str:
    """A name for all that runs must have in common to be stepped as one."""

    def fixed(about: Any) -> Any:
        if not isinstance(about, dict):
            return about
        return {k: fixed(v) for k, v in about.items() if k not in request.free}

    return json.dumps(fixed(spec.to_dict()), sort_keys=True)


def _options(
    tasks: list[Task], requests: dict[str, Request], price: StepTime
) -> list[list[Bundle]]:
    """Every way to pack runs of one shape; the first is each by itself."""
    units: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: -_asked(requests, task).steps):
        units.setdefault(_asked(requests, task).trunk or task.key, []).append(task)
    packs = all(_asked(requests, task).packs for task in tasks)
    sizes = [1, *range(2, min(LARGEST_PACK, len(units)) + 1)] if packs and price.packed else [1]
    made = []
    for size in sizes:
        rows = list(units.values())
        chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
        made.append([_bundle(chunk, requests, price) for chunk in chunks])
    return made


def _bundle(units: list[list[Task]], requests: dict[str, Request], price: StepTime) -> Bundle:
    """Units that step as one, with the expected seconds of each run."""
    tasks = [task for unit in units for task in unit]
    after = {t.key: _after(_asked(requests, t).steps, price) for t in tasks}
    lengths = [[_asked(requests, task).steps for task in unit] for unit in units]
    traced = len(units) > 1 and price.traced < PAYS
    together = stepping(lengths, price) * (price.traced if traced else 1.0)
    whole = sum(map(sum, lengths))
    worked = tuple(
        Task(t.spec, together * _asked(requests, t).steps / whole + after[t.key]) for t in tasks
    )
    if len(tasks) == 1:
        return alone(worked[0])
    return Bundle(_name(worked), worked, ExecutionOptions(size=len(units), traced=traced))


def _asked(requests: dict[str, Request], task: Task) -> TrainingRequest:
    request = requests[task.key]
    assert isinstance(request, TrainingRequest)
    return request


def _after(steps: int, price: StepTime) -> float:
    """Seconds of measuring along the way and of finishing."""
    return len(log_spaced(steps, CURVE)) * price.measure + (price.finish or 0.0)


def stepping(lengths: Sequence[Sequence[int]], price: StepTime) -> float:
    """Seconds of all updates of trunks, each with the lengths of the trainings that share it."""
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
        seconds += (end - begin) * one_step(rows, price, packed=len(lengths) > 1)
    return seconds


def one_step(rows: int, price: StepTime, *, packed: bool) -> float:
    """Seconds of one update of `rows` models."""
    if rows <= 1 or not packed or not price.packed:
        return rows * price.step
    known = sorted(price.packed)
    last = price.packed[known[-1]] / known[-1]
    beyond = max(0, rows - known[-1]) * last
    interpolated = float(np.interp(rows, known, [price.packed[m] for m in known]))
    return max(price.step, interpolated + beyond)
