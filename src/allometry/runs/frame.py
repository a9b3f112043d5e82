"""Convert a journal to a frame in batches, so that a million runs fit in memory."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from allometry.runs.journal import gc_disabled

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = ("sample", "measures")
"""Fields of a record that do not become columns."""

MANY = 20_000
"""Number of rows that are collected before they are converted to arrays."""


def frame(batches: Iterable[list[dict[str, Any]]], names: Iterable[str]) -> "pd.DataFrame":
    """One row for the last record of each run, in the order of the first records.

    Args:
        batches: Records, oldest first.
        names: Leading columns, which are present in any case.
    """
    import pandas as pd

    with gc_disabled():
        parts, rows = _parts(batches, names)
    kept = _latest(parts["key"]) if rows else None
    return pd.DataFrame({name: _joined(column, kept) for name, column in parts.items()})


def _parts(
    batches: Iterable[list[dict[str, Any]]], names: Iterable[str]
) -> tuple[dict[str, list[Any]], int]:
    """The pieces of every column, and the number of rows."""
    parts: dict[str, list[Any]] = {name: [] for name in names}
    values: dict[str, list[Any]] = {name: [] for name in parts}
    rows = waiting = 0

    def compact() -> None:
        for name, column in values.items():
            parts[name].append(_compact(column))
            values[name] = []

    for records in batches:
        columns, missing = _columns(records), [math.nan] * len(records)
        for name in columns:
            if name not in parts:
                parts[name] = [np.full(rows, math.nan)] if rows else []
                values[name] = [math.nan] * waiting
        for name, column in values.items():
            column.extend(columns.get(name, missing))
        waiting += len(records)
        if waiting >= MANY:
            compact()
            rows, waiting = rows + waiting, 0
    if waiting:
        compact()
    return parts, rows + waiting


def _columns(records: list[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """The values of every field; NaN for records without it."""
    kinds = dict.fromkeys(map(tuple, records))
    names = dict.fromkeys(name for kind in kinds for name in kind if name not in LEFT_OUT)
    if len(kinds) == 1:
        # The common case: all records have the same fields in the same order.
        (kind,) = kinds
        columns = zip(kind, zip(*map(dict.values, records), strict=True), strict=True)
        return {name: column for name, column in columns if name in names}
    return {name: [record.get(name, math.nan) for record in records] for name in names}


def _compact(values: list[Any]) -> Any:
    """Convert numbers and strings to arrays, which need less memory; keep other values."""
    kinds = set(map(type, values))
    if kinds <= {int, float}:
        array = np.array(values)
        return array if array.dtype.kind in "if" else values
    if kinds == {str}:
        import pandas as pd

        return pd.array(values, dtype="str")
    if dict in kinds:
        # Adjacent values (versions) are mostly equal: share one object.
        last = None
        for i, value in enumerate(values):
            if value == last:
                values[i] = last
            else:
                last = value
    return values


def _latest(keys: list[Any]) -> ndarray | None:
    """Indices of the last record of each key, ordered by first record; `None` if unique."""
    import pandas as pd

    series = pd.Series(_joined(keys, None))
    if series.is_unique:
        return None
    last = {key: i for i, key in enumerate(series)}
    return np.fromiter(last.values(), dtype=np.int64, count=len(last))


def _joined(parts: list[Any], kept: ndarray | None) -> Any:
    import pandas as pd

    if parts and all(isinstance(part, ndarray) for part in parts):
        column = np.concatenate(parts)
        return column if kept is None else column[kept]
    if parts and len({type(part) for part in parts}) == 1 and not isinstance(parts[0], list):
        strings = pd.concat([pd.Series(part) for part in parts], ignore_index=True)
        return strings if kept is None else strings.iloc[kept].reset_index(drop=True)
    values = [value for part in parts for value in part]
    return values if kept is None else [values[i] for i in kept.tolist()]
