"""CSV files that W&B's pages export: a chart (columns `run - metric`) and the table of runs."""

import re

from allometry._core.delimited import Sheet
from allometry.runs.importers.names import plain
from allometry.runs.importers.run_log import Logs, RunLog, missing

_COLUMN = re.compile(r"(?s)(.{1,400}) - (.{1,400}?)(__MIN|__MAX)?")
_TABLE = {"name", "state", "created", "runtime", "user", "tags", "sweep", "notes", "id"}


def is_table(sheet: Sheet) -> bool:
    """Whether a CSV is W&B's table of runs."""
    short = {plain(name)[0] for name in sheet.cells}
    return "name" in short and len(short & _TABLE) >= 3


def is_chart(sheet: Sheet) -> bool:
    """Whether a CSV is the export of a chart: its first column is shared by all runs."""
    names = list(sheet.cells)
    parts = [_COLUMN.fullmatch(name) for name in names[1:]]
    if len(names) < 2 or not all(parts) or _COLUMN.fullmatch(names[0]):
        return False
    return any(name.endswith("__MIN") for name in names) or len(names) > 2


def read_chart(sheet: Sheet) -> Logs:
    """One training for each run of a chart."""
    shared = next(iter(sheet.cells))
    columns: dict[str, dict[str, str]] = {}
    for name in list(sheet.cells)[1:]:
        match = _COLUMN.fullmatch(name)
        if match is not None and match[3] is None:
            run = re.sub(r"^(?:Group|name): ", "", match[1])
            columns.setdefault(run, {})[match[2]] = name
    runs = []
    for run, metrics in columns.items():
        points = []
        for i, at in enumerate(sheet.cells[shared]):
            values = {
                metric: sheet.cells[name][i]
                for metric, name in metrics.items()
                if not missing(sheet.cells[name][i])
            }
            if values and i not in sheet.bad:
                points.append({shared: at} | values)
        runs.append(RunLog(run, points))
    return Logs(runs, "W&B chart")
