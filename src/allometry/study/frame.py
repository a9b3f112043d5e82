"""A journal as a frame: batch by batch and column by column, so that a million runs fit."""

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = ("sample", "measures")
"""What a record has that is no column."""


def frame(batches: Iterable[list[dict[str, Any]]], names: Iterable[str]) -> "pd.DataFrame":
    """One row for the last record of each run, in the order of the first ones.

    Args:
        batches: Records, oldest first.
        names: Columns that come first, whether any record has them or not.
    """
    import pandas as pd

    parts: dict[str, list[Any]] = {name: [] for name in names}
    rows = 0
    for records in batches:
        there = dict.fromkeys(name for kind in dict.fromkeys(map(tuple, records)) for name in kind)
        for name in there:
            if name not in LEFT_OUT:
                parts.setdefault(name, [np.full(rows, math.nan)] if rows else [])
        for name, column in parts.items():
            if name in there:
                column.append(_compact([record.get(name, math.nan) for record in records]))
            else:
                column.append(np.full(len(records), math.nan))
        rows += len(records)
    kept = _latest(parts["key"]) if rows else None
    return pd.DataFrame({name: _joined(column, kept) for name, column in parts.items()})


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
    whole = list(itertools.chain.from_iterable(keys))
    last = {key: i for i, key in enumerate(whole)}
    if len(last) == len(whole):
        return None
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
