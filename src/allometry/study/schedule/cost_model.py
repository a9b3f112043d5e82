"""What every run of a study costs here, from a few that are tried."""

from collections.abc import Callable, Sequence

import numpy as np

from allometry._core.spec import Spec
from allometry.study.request import Request
from allometry.study.schedule.timing import JobTime, StepTime
from allometry.study.tasks import Task

LARGEST_PACK = 8
"""Models stepped as one at most."""

PROBED = 4
"""Shapes of a family that are tried; the others lie between them."""

TRIED = 8
"""Runs at most that are no trainings and are tried; each takes some seconds."""

Ask = Callable[[Sequence[Sequence[Spec]]], Sequence[StepTime | JobTime | None]]


def find(
    shapes: dict[str, list[Task]], rest: Sequence[Task], requests: dict[str, Request], ask: Ask
) -> tuple[dict[str, StepTime], dict[str, float]]:
    """The price of every shape of training, and the seconds of every other run by its key.

    Trainings are tried at a few sizes of each family. Of the other runs of a family the one that
    is expected to be shortest and the one that is expected to be longest are tried (the middle one
    where there are many families), and how far off their own guesses were tells how far off those
    of the runs between them are. What can't be told is left out.

    Args:
        shapes: Trainings that might be packed, by a name for what they have in common.
        rest: Runs that are no trainings.
        requests: Of all of them, by key.
        ask: Tries the first runs of each shape.
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
    others = _others(rest, requests)
    chosen = _chosen(others)
    asked = [[t.spec for t in shapes[n][:LARGEST_PACK]] for some in picked.values() for n in some]
    asked += [[task.spec] for some in chosen.values() for task in some]
    answers = iter(ask(asked) if asked else ())
    prices: dict[str, StepTime] = {}
    for family, some in picked.items():
        tried = [(cost[n], p) for n in some if isinstance(p := next(answers), StepTime)]
        if tried:
            prices |= {name: _between(cost[name], tried) for name in families[family]}
    seconds: dict[str, float] = {}
    for family, some in chosen.items():
        found = [(t.work, a.seconds) for t in some if isinstance(a := next(answers), JobTime)]
        if found:
            seconds |= {task.key: _scaled(task.work, found) for task in others[family]}
    return prices, seconds


def _family(request: Request) -> str:
    return str(request.columns["family"])


def _per_datum(request: Request) -> float:
    budget = request.budget()
    return budget.C / budget.D


def _others(rest: Sequence[Task], requests: dict[str, Request]) -> dict[str, list[Task]]:
    """By family, those first that are expected to take longest; shortest first in each."""
    found: dict[str, list[Task]] = {}
    for task in sorted(rest, key=lambda task: task.work):
        found.setdefault(_family(requests[task.key]), []).append(task)
    return dict(sorted(found.items(), key=lambda pair: -sum(task.work for task in pair[1])))


def _chosen(others: dict[str, list[Task]]) -> dict[str, list[Task]]:
    """Which of them are tried: both ends of each family, or the middle of the dearest ones."""
    if 2 * len(others) <= TRIED:
        return {f: [tasks[0], tasks[-1]][: len(tasks)] for f, tasks in others.items()}
    return {f: [tasks[len(tasks) // 2]] for f, tasks in list(others.items())[:TRIED]}


def _scaled(work: float, tried: list[tuple[float, float]]) -> float:
    """Seconds of a run guessed to take `work`, from guesses and seconds of those tried."""
    guesses = np.log([max(guess, 1e-9) for guess, _ in tried])
    ratios = np.log([max(seconds, 1e-6) / max(guess, 1e-9) for guess, seconds in tried])
    return work * float(np.exp(np.interp(np.log(max(work, 1e-9)), guesses, ratios)))


def _between(cost: float, tried: list[tuple[float, StepTime]]) -> StepTime:
    """The price at a cost per datum, from the tried ones on either side."""
    costs = [c for c, _ in tried]

    def at(values: Sequence[float]) -> float:
        return float(np.interp(cost, costs, values))

    above = next((p for c, p in tried if c >= cost), tried[-1][1])
    packed = {}
    for rows in above.packed:
        pairs = [(c, p.packed[rows]) for c, p in tried if rows in p.packed]
        packed[rows] = float(np.interp(cost, [c for c, _ in pairs], [t for _, t in pairs]))
    measure = at([p.measure for _, p in tried])
    # Finishing is one more measurement and things that hardly depend on the size.
    rest = [p.finish - p.measure for _, p in tried if p.finish is not None]
    finish = measure + (max(0.0, rest[0]) if rest else 0.0)
    shares = [p.traced for _, p in tried]
    return StepTime(at([p.step for _, p in tried]), packed, measure, finish, at(shares))
