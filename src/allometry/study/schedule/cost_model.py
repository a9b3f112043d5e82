"""Estimate the runtime of every run of a study from a few that are profiled."""

from collections.abc import Callable, Sequence

import numpy as np

from allometry._core.spec import Spec
from allometry.study.request import Request
from allometry.study.schedule.timing import JobTime, StepTime
from allometry.study.tasks import Task

LARGEST_PACK, LARGEST_ON_GPU = 8, 64
"""Largest number of vectorised models on CPU, and on a GPU if its memory suffices."""


def largest_pack(device: str) -> int:
    """Largest number of vectorised models on a device."""
    return LARGEST_PACK if device == "cpu" else LARGEST_ON_GPU


PROBED = 4
"""Profiled shapes of a family; the others are interpolated."""

JOBS = 8
"""Largest number of profiled jobs without gradient training; each takes some seconds."""

Profile = Callable[[Sequence[Sequence[Spec]]], Sequence[StepTime | JobTime | None]]


def estimate(
    shapes: dict[str, list[Task]],
    rest: Sequence[Task],
    requests: dict[str, Request],
    profile: Profile,
    largest: int = LARGEST_PACK,
) -> tuple[dict[str, StepTime], dict[str, float]]:
    """The step times of every shape of training, and the seconds of every other run by its key.

    Trainings are profiled at a few sizes of each family. Of the other jobs of a family those with
    the smallest and the largest expected time are profiled (the middle one if there are many
    families); the error of their expected times corrects those of the others. Runs without an
    estimate are left out.

    Args:
        shapes: Trainings that can be vectorised together, by `shape_key`.
        rest: Jobs without gradient training.
        requests: Of all runs, by key.
        profile: Profiles the first runs of each shape.
        largest: Number of runs of a shape that are profiled together.
    """
    cost = {name: _per_datum(requests[members[0].key]) for name, members in shapes.items()}
    families: dict[str, list[str]] = {}
    for name, members in shapes.items():
        families.setdefault(_family(requests[members[0].key]), []).append(name)
    picked: dict[str, list[str]] = {}
    for family, names in families.items():
        names.sort(key=cost.__getitem__)
        some = sorted({round(i) for i in np.linspace(0, len(names) - 1, PROBED)})
        picked[family] = [names[i] for i in some]
    jobs = _by_family(rest, requests)
    chosen = _chosen(jobs)
    asked = [[t.spec for t in shapes[n][:largest]] for some in picked.values() for n in some]
    asked += [[task.spec] for some in chosen.values() for task in some]
    answers = iter(profile(asked) if asked else ())
    times: dict[str, StepTime] = {}
    for family, some in picked.items():
        tried = [(cost[n], p) for n in some if isinstance(p := next(answers), StepTime)]
        if tried:
            times |= {name: _interpolated(cost[name], tried) for name in families[family]}
    seconds: dict[str, float] = {}
    for family, some in chosen.items():
        found = [(t.work, a.seconds) for t in some if isinstance(a := next(answers), JobTime)]
        if found:
            seconds |= {task.key: _scaled(task.work, found) for task in jobs[family]}
    return times, seconds


def _family(request: Request) -> str:
    return str(request.columns["family"])


def _per_datum(request: Request) -> float:
    budget = request.budget()
    return budget.C / budget.D


def _by_family(rest: Sequence[Task], requests: dict[str, Request]) -> dict[str, list[Task]]:
    """Jobs by family, the family with the longest total first, the shortest job first in each."""
    found: dict[str, list[Task]] = {}
    for task in sorted(rest, key=lambda task: task.work):
        found.setdefault(_family(requests[task.key]), []).append(task)
    return dict(sorted(found.items(), key=lambda pair: -sum(task.work for task in pair[1])))


def _chosen(jobs: dict[str, list[Task]]) -> dict[str, list[Task]]:
    """The profiled jobs: both ends of each family, or the middle of the longest families."""
    if 2 * len(jobs) <= JOBS:
        return {f: [tasks[0], tasks[-1]][: len(tasks)] for f, tasks in jobs.items()}
    return {f: [tasks[len(tasks) // 2]] for f, tasks in list(jobs.items())[:JOBS]}


def _scaled(work: float, tried: list[tuple[float, float]]) -> float:
    """Seconds of a run with expected time `work`, from expected and measured times of others."""
    guesses = np.log([max(guess, 1e-9) for guess, _ in tried])
    ratios = np.log([max(seconds, 1e-6) / max(guess, 1e-9) for guess, seconds in tried])
    return work * float(np.exp(np.interp(np.log(max(work, 1e-9)), guesses, ratios)))


def _interpolated(cost: float, tried: list[tuple[float, StepTime]]) -> StepTime:
    """The step time at a cost per datum, from the profiled ones on both sides."""
    costs = [c for c, _ in tried]

    def at(values: Sequence[float]) -> float:
        return float(np.interp(cost, costs, values))

    above = next((p for c, p in tried if c >= cost), tried[-1][1])
    packed = {}
    for rows in above.packed:
        pairs = [(c, p.packed[rows]) for c, p in tried if rows in p.packed]
        packed[rows] = float(np.interp(cost, [c for c, _ in pairs], [t for _, t in pairs]))
    measure = at([p.measure for _, p in tried])
    # Finishing is one more measurement and work that hardly depends on the size.
    rest = [p.finish - p.measure for _, p in tried if p.finish is not None]
    finish = measure + (max(0.0, rest[0]) if rest else 0.0)
    shares = [p.traced for _, p in tried]
    return StepTime(at([p.step for _, p in tried]), packed, measure, finish, at(shares))
