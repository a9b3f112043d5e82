"""What a row of a table is: the final loss of a run, or a point along a training."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from allometry._core.delimited import Sheet
from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry.runs.importers.names import RUN, plain
from allometry.runs.importers.run_log import LINE, Logs, RunLog, missing, steps_of

ROWS = ("auto", "runs", "points")
"""Values of `--rows`."""


def split(sheet: Sheet, size: str | None, rows: str = "auto") -> Logs | None:
    """The trainings in a table of points along them; `None` if each row is a run.

    A table of points has a column of steps which increase along each training. The trainings are
    distinguished by a column of run names, or by blocks of equal size. One block of equal size
    and increasing steps is one training.

    Args:
        sheet: The table.
        size: Its column of parameters.
        rows: `runs` if each row is a run, `points` if rows are points along trainings.

    Raises:
        InputError: Rows should be points, but nothing distinguishes the trainings.
    """
    if rows not in ROWS:
        raise InputError(f"--rows must be one of {', '.join(ROWS)}; got {rows!r}.")
    step = steps_of(list(sheet.cells))
    if rows == "runs" or (rows == "auto" and step is None) or len(sheet.lines) < 2:
        return None
    order = [number(v) for v in sheet.cells[step]] if step is not None else []
    if order and not any(map(math.isfinite, order)):
        return None
    for names in _identifiers(sheet):
        groups = _groups([tuple(sheet.cells[name][i] for name in names) for i in _all(sheet)])
        if _are_trainings(groups, order) and _one_size(groups, sheet, size):
            return _logs(sheet, groups)
    blocks = _blocks(sheet, size)
    if len(blocks) == 1 and (rows == "points" or _increasing(order)):
        return _logs(sheet, blocks)
    dense = all(_evenly_spaced([order[i] for i in rows]) for rows in blocks.values())
    if len(blocks) > 1 and order and (rows == "points" or dense):
        return _logs(sheet, blocks)
    if rows == "points":
        raise InputError(
            "--rows points must have a column of run names or steps; got "
            f"{', '.join(list(sheet.cells)[:12])}. Add a column `run`."
        )
    return None


def _all(sheet: Sheet) -> range:
    return range(len(sheet.lines))


def _identifiers(sheet: Sheet) -> list[tuple[str, ...]]:
    """Columns, alone or with the seed, that may identify the run of a row."""
    short = {plain(name)[0]: name for name in reversed(list(sheet.cells))}
    ids = [short[name] for name in RUN if name in short]
    seeds = [short[name] for name in ("seed", "variant", "version") if name in short]
    both = [(name, *seeds) for name in ids if seeds]
    return [(name,) for name in ids] + both


def _groups(keys: Sequence[Any]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(" ".join(str(part) for part in key), []).append(i)
    return groups


def _are_trainings(groups: dict[str, list[int]], order: Sequence[float]) -> bool:
    """Whether most groups have several rows, and steps that increase, except for restarts."""
    several = [rows for rows in groups.values() if len(rows) > 1]
    if not order or 2 * len(several) < len(groups):
        return False
    pairs = [(order[a], order[b]) for rows in several for a, b in pairwise(rows)]
    # A resumed run goes back once in many steps; other columns go up and down.
    return sum(a > b for a, b in pairs) <= 0.1 * len(pairs) and any(a < b for a, b in pairs)


def _one_size(groups: dict[str, list[int]], sheet: Sheet, size: str | None) -> bool:
    if size is None:
        return True
    column = sheet.cells[size]
    return all(
        len({str(column[i]) for i in rows if not missing(column[i])}) <= 1
        for rows in groups.values()
    )


def _blocks(sheet: Sheet, size: str | None) -> dict[str, list[int]]:
    """Neighbouring rows of equal size, by name."""
    if size is None:
        return {"run": list(_all(sheet))}
    return _groups([(v,) for v in sheet.cells[size]])


def _increasing(order: Sequence[float]) -> bool:
    pairs = list(pairwise(order))
    return sum(not a <= b for a, b in pairs) <= 0.1 * len(pairs) and order[0] < max(order)


def _evenly_spaced(steps: Sequence[float]) -> bool:
    """Whether steps are an arithmetic progression of at least five, as regular evaluations are."""
    if len(steps) < 5:
        return False
    gaps = [b - a for a, b in pairwise(steps)]
    return min(gaps[:-1]) > 0 and max(gaps[:-1]) <= 1.01 * min(gaps[:-1])


def _logs(sheet: Sheet, groups: dict[str, list[int]]) -> Logs:
    names = list(sheet.cells)
    runs = []
    for key, rows in groups.items():
        good = [i for i in rows if i not in sheet.bad]
        points = [
            {LINE: sheet.lines[i]} | {name: sheet.cells[name][i] for name in names} for i in good
        ]
        runs.append(RunLog(key, points))
    return Logs(runs, sheet.source)
