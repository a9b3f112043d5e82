"""Tables with one value per row: run, name of the metric, step and value.

Neptune's exporter, TensorBoard's and many people's own scripts write such tables. Rows without a
step are settings of the run. In tables of Aim's `Metric.dataframe` the settings are columns
`run.*`, and `metric.context.*` distinguishes metrics of one name.
"""

import math
from collections.abc import Sequence
from typing import Any

from allometry._core.delimited import Sheet
from allometry._core.number_parsing import number
from allometry.runs.importers.names import RUN, column_named, plain
from allometry.runs.importers.run_log import LINE, Logs, RunLog, missing, steps_of

_METRIC = ("metric", "metricname", "attributepath", "attribute", "tag", "key", "series",
           "variable", "quantity")  # fmt: skip
_RUN = (*RUN, "runhash")
_VALUE = ("value", "floatvalue", "metricvalue", "intvalue", "stringvalue")


def read_long(sheet: Sheet) -> Logs | None:
    """The trainings in a table with one value per row; `None` for other tables."""
    names = list(sheet.cells)
    metric, run = column_named(names, _METRIC), column_named(names, _RUN)
    values = [name for short in _VALUE for name in names if plain(name)[0] == short]
    step = steps_of(names)
    if metric is None or run is None or step is None or not values:
        return None
    if any(math.isfinite(number(v)) for v in sheet.cells[metric][:50]):
        return None
    settings = [name for name in names if name.startswith("run.") and name != run]
    contexts = [name for name in names if name.startswith("metric.context.")]
    points: dict[str, dict[str, dict[str, Any]]] = {}
    config: dict[str, dict[str, Any]] = {}
    for i, line in enumerate(sheet.lines):
        value = _first(sheet, values, i)
        if i in sheet.bad or value is None:
            continue
        name, key = str(sheet.cells[run][i]), str(sheet.cells[metric][i])
        parts = [str(cell) for c in contexts if not missing(cell := sheet.cells[c][i])]
        key = "/".join([*parts, key])
        at = sheet.cells[step][i]
        if name not in config:
            own = {c.removeprefix("run."): sheet.cells[c][i] for c in settings}
            config[name] = {c: cell for c, cell in own.items() if not missing(cell)}
        if missing(at) or not math.isfinite(number(at)):
            config[name][key] = value
            continue
        point = points.setdefault(name, {}).setdefault(str(at), {LINE: line, step: at})
        point[key] = value
    order = str(step)
    runs = [
        RunLog(name, sorted(points.get(name, {}).values(), key=lambda p: number(p[order])), own)
        for name, own in config.items()
    ]
    return Logs(runs, "table of values") if any(run.points for run in runs) else None


def _first(sheet: Sheet, columns: Sequence[str], row: int) -> Any:
    """The first value of a row among several columns, one for each type."""
    for column in columns:
        value = sheet.cells[column][row]
        if not missing(value) and not (isinstance(value, float) and math.isnan(value)):
            return value
    return None
