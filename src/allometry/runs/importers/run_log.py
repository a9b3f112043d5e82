"""The log of one training, and what a set of such logs says about final losses.

A log of one run gives a learning curve, one row per evaluation. Several logs give one row per
run, its last evaluation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from allometry._core.delimited import Sheet, from_rows
from allometry._core.number_parsing import number
from allometry._core.user_files import shorten
from allometry.runs.importers.names import STEP, column_named

RUN = "run"
"""Column of the run's name in a sheet made of logs."""

LINE = "(line)"
"""Key of a point's line number in its file."""

DIVERGED = 1.5
"""A run has diverged if its last loss exceeds its lowest by this factor."""

FINISHED = 0.98
"""A run is finished if it made this share of its planned steps."""


@final
@dataclass(frozen=True)
class RunLog:
    """One training.

    Args:
        name: Its name.
        points: Logged values by name, in the order written.
        config: Values that hold for the whole run: settings, summary, size.
        status: State that the tool recorded, such as `finished` or `crashed`.
        total_steps: Planned number of steps, if known.
    """

    name: str
    points: list[dict[str, Any]]
    config: dict[str, Any] = field(default_factory=dict)
    status: str = ""
    total_steps: float = math.nan


@final
@dataclass(frozen=True)
class Logs:
    """All trainings in a file or folder.

    Args:
        runs: The trainings.
        source: Kind of file.
        roles: Column of a quantity, where the format defines it.
        notes: Sentences on derived values.
    """

    runs: list[RunLog]
    source: str
    roles: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """All names of logged values and settings."""
        names: dict[str, None] = {}
        for run in self.runs:
            for point in run.points:
                names.update(dict.fromkeys(point))
            names.update(dict.fromkeys(run.config))
        names.pop(LINE, None)
        return list(names)

    def cells(self) -> Mapping[str, list[Any]]:
        """Some cells of each name, to find out which hold numbers."""
        cells: dict[str, list[Any]] = {}
        for run in self.runs[:50]:
            for point in (run.config, *run.points[:200]):
                for name, value in point.items():
                    if len(column := cells.setdefault(name, [])) < 200:
                        column.append(value)
        return cells


def missing(value: Any) -> bool:
    """Whether a cell is empty; a logged NaN is not: it marks divergence."""
    return value is None or (isinstance(value, str) and value.strip() in ("", "None"))


def steps_of(names: Sequence[str]) -> str | None:
    """The column that counts updates; W&B's `_step` first."""
    return "_step" if "_step" in names else column_named(names, STEP)


def curve(run: RunLog, loss: str, step: str | None) -> tuple[list[dict[str, Any]], bool]:
    """The evaluations of a run in the order of its steps, and whether it was resumed.

    Values that were logged at other times, such as the tokens seen, keep their last value. A run
    that was resumed from an earlier step replaces what it had logged after that step.
    """
    rows: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    resumed = False
    for point in run.points:
        now = number(point.get(step)) if step is not None else math.nan
        before = number(last.get(step)) if step is not None else math.nan
        if now < before:
            resumed = True
            last = {name: value for name, value in last.items() if name not in (step, loss)}
            while rows and number(rows[-1].get(step or "")) >= now:
                rows.pop()
        last |= {name: value for name, value in point.items() if not missing(value)}
        if not missing(point.get(loss)):
            if rows and now == number(rows[-1].get(step or "")):
                rows.pop()
            rows.append(dict(last))
    return rows, resumed


def final_rows(logs: Logs, loss: str) -> tuple[Sheet, dict[str, list[dict[str, Any]]], list[str]]:
    """One row per run, its last evaluation; or, for a single run, one row per evaluation.

    Returns:
        The rows, the evaluations of each run by name, and notes.
    """
    step = steps_of(logs.names())
    curves: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    resumed, empty = [], []
    for run in logs.runs:
        points, again = curve(run, loss, step)
        name = _unique(run.name, curves)
        if again:
            resumed.append(name)
        if not points and missing(run.config.get(loss)):
            empty.append(name)
            continue
        curves[name] = points
        end = points[-1] if points else {}
        # A setting may have the name of a metric; the last logged value counts.
        rows.append({RUN: name} | run.config | end | _status(run, points, loss, step))
    if resumed:
        notes.append(f"{_listed('Run', resumed)} resumed; repeated steps are used once.")
    if empty:
        notes.append(f"{_listed('Run', empty)} without a value of {loss!r}; left out.")
    if len(rows) == 1 and len(points := curves[rows[0][RUN]]) > 1:
        config = {k: v for k, v in rows[0].items() if k not in points[-1] and k != "status"}
        rows = [config | point for point in points]
    lines = [int(row.pop(LINE, i)) for i, row in enumerate(rows, 1)]
    return replace(from_rows(rows, logs.source), lines=lines), curves, notes


def _status(
    run: RunLog, points: Sequence[dict[str, Any]], loss: str, step: str | None
) -> dict[str, str]:
    """The state of a run: as recorded, unless its curve shows that it diverged or stopped."""
    values = [number(point[loss]) for point in points]
    finite = [v for v in values if math.isfinite(v)]
    if values and (not math.isfinite(values[-1]) or values[-1] > DIVERGED * min(finite)):
        return {"status": "diverged"}
    made = number(points[-1].get(step)) if points and step is not None else math.nan
    if made < FINISHED * run.total_steps:
        return {"status": "unfinished"}
    return {"status": run.status} if run.status else {}


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    count, made = 2, name
    while made in taken:
        made, count = f"{name} ({count})", count + 1
    return made


def _listed(noun: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    listed = ", ".join(repr(shorten(name, 60)) for name in names[:4])
    return f"{noun} {listed} was" if len(names) == 1 else f"{noun}s {listed}{more} were"
