"""A journal as a frame: batch by batch and column by column, so that a million runs fit."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from allometry.runs.journal import undisturbed

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = ("sample", "measures")
"""What a record has that is no column."""

MANY = 20_000
"""Rows whose values are kept as they came before they are made arrays of."""


def frame(batches: Iterable[list[dict[str, Any]]], names: Iterable[str]) -> "pd.DataFrame":
    """One row for the last record of each run, in the order of the first ones.

    Args:
        batches: Records, oldest first.
        names: Columns that come first, whether any record has them or not.
    """
    import pandas as pd

    with undisturbed():
        parts, rows = _parts(batches, names)
    kept = _latest(parts["key"]) if rows else None
    return pd.DataFrame({name: _joined(column, kept) for name, column in parts.items()})


def _parts(
    batches: Iterable[list[dict[str, Any]]], names: Iterable[str]
) -> tuple[dict[str, list[Any]], int]:
    """For every column a piece from each batch; how many rows there are."""
    parts: dict[str, list[Any]] = {name: [] for name in names}
    values: dict[str, list[Any]] = {name: [] for name in parts}
    rows = waiting = 0

    def compact() -> None:
        for name, column in values.items():
            parts[name].append(_compact(column))
            values[name] = []

    for records in batches:
        there, missing = _columns(records), [math.nan] * len(records)
        for name in there:
            if name not in parts:
                parts[name] = [np.full(rows, math.nan)] if rows else []
                values[name] = [math.nan] * waiting
        for name, column in values.items():
            column.extend(there.get(name, missing))
        waiting += len(records)
        if waiting >= MANY:
            compact()
            rows, waiting = rows + waiting, 0
    if waiting:
        compact()
    return parts, rows + waiting


def _columns(records: list[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """The values of every name that a record has; not a number where another has none."""
    kinds = dict.fromkeys(map(tuple, records))
    names = dict.fromkeys(name for kind in kinds for name in kind if name not in LEFT_OUT)
    if len(kinds) == 1:
        # All alike, as they mostly are: no name needs to be looked up.
        (kind,) = kinds
        columns = zip(kind, zip(*map(dict.values, records), strict=True), strict=True)
        return {name: column for name, column in columns if name in names}
    return {name: [record.get(name, math.nan) for record in records] for name in names}


def _compact(values: list[Any]) -> Any:
    """Numbers and words as arrays, which take a fraction of the room; other things as they are."""
    kinds = set(map(type, values))
    if kinds <= {int, float}:
        made = np.array(values)
        return made if made.dtype.kind in "if" else values
    if kinds == {str}:
        import pandas as pd

        return pd.array(values, dtype="str")
    if dict in kinds:
        # Neighbours mostly say the same (versions): one object for all of them.
        last = None
        for i, value in enumerate(values):
            if value == last:
                values[i] = last
            else:
                last = value
    return values


def _latest(keys: list[Any]) -> ndarray | None:
    """Where the last record of each key is, in the order of the first ones; `None` for all."""
    import pandas as pd

    whole = pd.Series(_joined(keys, None))
    if whole.is_unique:
        return None
    last = {key: i for i, key in enumerate(whole)}
    return np.fromiter(last.values(), dtype=np.int64, count=len(last))


def _joined(parts: list[Any], kept: ndarray | None) -> Any:
    import pandas as pd

    if parts and all(isinstance(part, ndarray) for part in parts):
        whole = np.concatenate(parts)
        return whole if kept is None else whole[kept]
    if parts and len({type(part) for part in parts}) == 1 and not isinstance(parts[0], list):
        words = pd.concat([pd.Series(part) for part in parts], ignore_index=True)
        return words if kept is None else words.iloc[kept].reset_index(drop=True)
    values = [value for part in parts for value in part]
    return values if kept is None else [values[i] for i in kept.tolist()]
