"""Runs of several recipes: usable rows, one learning rate per recipe and size, and pairs.

Letters: n runs, p pairs.
"""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.comparison.repeated_rows import RATES, distinct_runs
from allometry.laws.runs_table import VARIABLES, column_names, numbers, usable


@final
@dataclass(frozen=True)
class RecipeRuns:
    """Usable runs of several recipes, in the order of the table.

    `recipe` indexes `names`. `logs` holds the logs of N, D and C as far as they are known, and
    `y` the log loss. Runs with the same `slot` have the same size, data and seed.
    """

    names: tuple[str, ...]
    recipe: Int[ndarray, " n"]
    logs: dict[str, Float[ndarray, " n"]]
    y: Float[ndarray, " n"]
    slot: Int[ndarray, " n"]
    size: Int[ndarray, " n"]
    notes: tuple[str, ...]

    @property
    def scale(self) -> str:
        """The variable that a multiplier multiplies: compute if it is known."""
        return next(name for name in ("C", "N", "D") if name in self.logs)

    @property
    def x(self) -> Float[ndarray, " n"]:
        """Log of the scale."""
        return self.logs[self.scale]

    def take(self, rows: ndarray) -> "RecipeRuns":
        """Some of the rows."""
        return replace(
            self,
            recipe=self.recipe[rows],
            logs={k: v[rows] for k, v in self.logs.items()},
            y=self.y[rows],
            slot=self.slot[rows],
            size=self.size[rows],
        )

    def two(self, first: int, second: int) -> "RecipeRuns":
        """The runs of two recipes, renumbered 0 and 1."""
        part = self.take(np.flatnonzero(np.isin(self.recipe, (first, second))))
        names = (self.names[first], self.names[second])
        return replace(part, names=names, recipe=(part.recipe == second).astype(int))

    def pairs(self) -> Int[ndarray, "p 2"]:
        """Rows of the first and the second of two recipes that share size, data and seed."""
        rows: dict[int, list[list[int]]] = defaultdict(lambda: [[], []])
        for i, (slot, recipe) in enumerate(zip(self.slot, self.recipe, strict=True)):
            rows[int(slot)][int(recipe)].append(i)
        # A slot with several runs of a recipe has no seeds to pair by.
        found = [(a[0], b[0]) for a, b in rows.values() if len(a) == 1 and len(b) == 1]
        return np.array(sorted(found, key=max), dtype=int).reshape(-1, 2)

    def mostly_paired(self, least: int) -> bool:
        """Whether two recipes have at least so many pairs, and most of their runs are in one."""
        fewest = min(int((self.recipe == r).sum()) for r in (0, 1))
        return len(self.pairs()) >= max(least, 0.6 * fewest)


def read(data: Any, by: str) -> RecipeRuns:
    """The runs in a mapping of columns or a data frame, by the recipe in the column `by`.

    Args:
        data: Columns `by`, `loss` and at least one of N, D, C; optionally `seed`, `D_unique`,
            `status` and a learning rate (`lr`). If several rates were tried, the best of each
            recipe, size and amount of data is used.
        by: Column of the recipe.
    """
    names = column_names(data)
    require(by in names, "by", "be a column of the runs", by, f"Columns: {', '.join(names[:12])}.")
    require("loss" in names, "data", "have a column 'loss'", names)
    present = [name for name in VARIABLES if name in names]
    require(bool(present), "data", "have at least one of the columns N, D, C", names)
    columns = {name: numbers(data[name], name) for name in ("loss", *present)}
    present = [name for name in present if np.isfinite(columns[name]).any()]
    require(bool(present), "data", "have numbers in one of N, D, C", "none")
    # C may be missing in some rows if N and D give it.
    if {"N", "D", "C"} <= set(present):
        missing = ~np.isfinite(columns["C"])
        columns["C"] = np.where(missing, 6 * columns["N"] * columns["D"], columns["C"])
    fix = "Runs are compared at equal size; name the column of the recipe."
    require(by not in ("loss", *VARIABLES), "by", "not be the loss or a size", by, fix)
    labels = np.array([_label(v) for v in data[by]], dtype=object)
    require(len(labels) == len(columns["loss"]), by, "have a value per loss", len(labels))
    unnamed = labels == ""
    notes: list[str] = []
    status = {"status": data["status"]} if "status" in names else {}
    keep = usable(status, columns, present, notes) & ~unnamed
    if unnamed.any():
        notes.append(f"Runs without a value of {by} are left out: {int(unnamed.sum())}.")
    _note_failures(labels[~unnamed], keep[~unnamed], notes)
    rows = distinct_runs(data, names, labels, columns, np.flatnonzero(keep), notes)
    require(len(rows) > 0, "data", "hold runs that finished with a positive loss", "none")
    found = sorted(set(labels[rows].tolist()))
    fix = "Name the column of the recipe with by= (--by)."
    require(len(found) >= 2, by, "have at least 2 values", found, fix)
    logs = {name: np.log(columns[name][rows]) for name in present}
    if {"N", "D"} <= set(logs) and "C" not in logs:
        logs["C"] = np.log(6.0) + logs["N"] + logs["D"]
    index = {name: i for i, name in enumerate(found)}
    recipe = np.array([index[v] for v in labels[rows]])
    known = [name for name in names if name != by]
    slot, size = _slots(data, known, logs, rows)
    notes += _repeats(data, known, logs, rows)
    runs = RecipeRuns(
        tuple(found), recipe, logs, np.log(columns["loss"][rows]), slot, size, tuple(notes)
    )
    chosen = _one_rate(runs, data, known, rows)
    # The order of the rows must not matter, not even to the last digit.
    return chosen.take(np.lexsort((chosen.y, chosen.x, chosen.recipe)))


def _label(value: Any) -> str:
    """The name of a recipe; empty if there is none. A recipe may be called "nan"."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value).strip()


def _note_failures(labels: ndarray, keep: ndarray, notes: list[str]) -> None:
    """Say so if the recipes fail at different rates: what is left is then a selection."""
    lost = {name: int((~keep & (labels == name)).sum()) for name in sorted(set(labels.tolist()))}
    if len(set(lost.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in lost.items() if count)
        notes.append(
            f"Runs without a usable loss: {listed}. The verdict is on those that finished."
        )


def _repeats(data: Any, names: list[str], logs: dict[str, ndarray], rows: ndarray) -> list[str]:
    """A note if runs saw their data several times."""
    if "D_unique" not in names or "D" not in logs:
        return []
    unique = numbers(data["D_unique"], "D_unique")[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        passes = np.exp(logs["D"]) / unique
    passes = passes[np.isfinite(passes)]
    if not len(passes) or passes.max() < 2:
        return []
    return [
        f"Some runs repeat their data, up to {passes.max():.3g} passes; beyond the runs the "
        "law assumes that repetition grows in the same way."
    ]


def _slots(
    data: Any, names: list[str], logs: dict[str, ndarray], rows: ndarray
) -> tuple[ndarray, ndarray]:
    """Indices of (size, data, seed) and of (size, data)."""
    # FLOPs may differ between recipes of the same size, so C identifies a size only alone.
    keys = [name for name in ("N", "D") if name in logs] or ["C"]
    parts: list[list[Hashable]] = [np.round(logs[name], 6).tolist() for name in keys]
    if "D_unique" in names:
        parts.append(np.round(numbers(data["D_unique"], "D_unique")[rows], 3).astype(str).tolist())
    sizes = list(zip(*parts, strict=True))
    size = {key: i for i, key in enumerate(dict.fromkeys(sizes))}
    seeds = [str(v) for v in data["seed"]] if "seed" in names else []
    slots = [(s, seeds[r] if seeds else "") for s, r in zip(sizes, rows.tolist(), strict=True)]
    slot = {key: i for i, key in enumerate(dict.fromkeys(slots))}
    return np.array([slot[k] for k in slots]), np.array([size[k] for k in sizes])


def _one_rate(runs: RecipeRuns, data: Any, names: list[str], rows: ndarray) -> RecipeRuns:
    """The runs at the best learning rate of each recipe and size; notes on unequal tuning."""
    column = next((name for name in RATES if name in names), None)
    if column is None:
        return runs
    rate = numbers(data[column], column)[rows]
    tried = {
        name: sorted({float(r) for r in rate[runs.recipe == i] if np.isfinite(r)})
        for i, name in enumerate(runs.names)
    }
    notes = list(runs.notes)
    keep, edges = np.ones(len(rate), bool), set()
    for recipe, size in sorted(set(zip(runs.recipe.tolist(), runs.size.tolist(), strict=True))):
        here = np.flatnonzero((runs.recipe == recipe) & (runs.size == size))
        grid = sorted({float(r) for r in rate[here] if np.isfinite(r)})
        if len(grid) < 2:
            continue
        means = [float(runs.y[here][rate[here] == r].mean()) for r in grid]
        best = int(np.argmin(means))
        if best in (0, len(grid) - 1):
            edges.add(runs.names[recipe])
        keep[here] = rate[here] == grid[best]
    notes += _rate_notes(column, tried, edges, tuned=not keep.all())
    return replace(runs.take(np.flatnonzero(keep)), notes=tuple(notes))


def _rate_notes(
    column: str, tried: dict[str, list[float]], edges: set[str], *, tuned: bool
) -> list[str]:
    notes = []
    counts = {name: len(rates) for name, rates in tried.items()}
    if tuned:
        notes.append(f"Of several values of {column}, the best of each recipe and size is used.")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        notes.append(
            f"The recipes were tuned unequally: values of {column} tried: {listed}. Try as many "
            "for each; the minimum of more tries is lower by chance."
        )
    elif max(counts.values()) == 1 and len({rates[0] for rates in tried.values() if rates}) == 1:
        notes.append(
            f"All recipes have the same {column}, which may be the best of one of them only."
        )
    if edges:
        notes.append(
            f"The best {column} is at the end of the values tried for "
            f"{', '.join(sorted(edges))}: it may not be the best. Try further values."
        )
    return notes
