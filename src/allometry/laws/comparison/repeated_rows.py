"""Rows that are no runs of their own: repeated rows, and seeds without an effect."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

RATES = ("lr", "learning_rate", "max_lr", "peak_lr", "rate")
"""Columns of the learning rate, in order of preference."""

SETTINGS = (*RATES, "D_unique")
"""Further columns in which runs of one size differ."""


def distinct_runs(
    data: Any,
    names: list[str],
    labels: ndarray,
    columns: Mapping[str, Float[ndarray, " n"]],
    rows: Int[ndarray, " k"],
    notes: list[str],
) -> Int[ndarray, " m"]:
    """The rows that are runs of their own; what is left out is added to the notes.

    A row that repeats another one would be counted as a replicate without noise. The same holds
    for the seeds of a recipe if they all end with the same loss: its code ignores them.

    Args:
        data: The table.
        names: Its columns.
        labels: Recipe of each row.
        columns: Loss, N, D and C as far as they are known.
        rows: Usable rows.
        notes: Receives sentences.
    """
    others = [str(v) for name in SETTINGS if name in names for v in data[name]]
    width, count = len(others) // max(len(labels), 1), len(labels)
    settings = [tuple(others[i + j * count] for j in range(width)) for i in range(count)]
    seeds = [str(v) for v in data["seed"]] if "seed" in names else None
    sizes = [key for key in columns if key != "loss"]

    def place(row: int) -> tuple[Hashable, ...]:
        return (labels[row], settings[row], *(float(columns[key][row]) for key in sizes))

    seen: set[tuple[Hashable, ...]] = set()
    kept: list[int] = []
    for row in rows.tolist():
        key = (place(row), "" if seeds is None else seeds[row], float(columns["loss"][row]))
        if key not in seen:
            kept.append(row)
        seen.add(key)
    if len(kept) < len(rows):
        again = len(rows) - len(kept)
        what = f"{again} rows repeat others" if again > 1 else "1 row repeats another"
        notes.append(f"{what} (same recipe, size, seed and loss): each run counts once.")
    if seeds is None:
        return np.array(kept, dtype=int)
    groups: dict[str, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in kept:
        groups[labels[row]][place(row)].append(row)
    for name, mine in groups.items():
        several = [group for group in mine.values() if len(group) > 1]
        if several and all(np.ptp(columns["loss"][group]) == 0 for group in several):
            dropped = {row for group in several for row in group[1:]}
            kept = [row for row in kept if row not in dropped]
            notes.append(
                f"All seeds of {name} have the same loss at each size, so they do not show the "
                "noise of a run: each size counts once."
            )
    return np.array(kept, dtype=int)
