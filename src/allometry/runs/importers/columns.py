"""Recognise columns by name, unit and suffix; list rows that can't be used by line.

Letters: n rows.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.delimited import Sheet
from allometry._core.errors import InputError
from allometry._core.notebook import chart, html_table
from allometry._core.number_parsing import (
    LARGEST_NUMBER,
    SMALLEST_NUMBER,
    decimal_mark,
    number,
    numbers,
)
from allometry._core.user_files import shorten
from allometry.runs.importers import loss_names
from allometry.runs.importers.names import plain, recognise

__all__ = ["BadRow", "Curve", "Imported", "clean", "kinds", "plain", "recognise"]

Curve = dict[str, ndarray]
"""Columns along one training: `step`, `D`, `loss` and others that are known."""


@final
class UnrecognisedError(InputError):
    """A needed column was not recognised: which quantity (N, D or loss), and the columns."""

    def __init__(self, message: str, quantity: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.quantity = quantity
        self.names = list(names)


@final
@dataclass(frozen=True)
class BadRow:
    """A row that can't be used: its line in the file and the reason."""

    line: int
    why: str


@final
@dataclass(frozen=True)
class Imported:
    """Columns for `allometry.laws.fit`, and how they were recognised.

    Args:
        columns: N, D, C, loss and other quantities, one value per usable row.
        recognised: Column of the file and its unit, by quantity.
        bad: Rows left out, by line number.
        notes: Sentences on derived or assumed values.
        source: Kind of file.
        rows: What a row is: `"runs"` (the final loss of a run) or `"points"` (along one training).
        unit: Unit of the loss; other units were converted to nats.
        counted_in: What D counts: `"tokens"`, or `"steps"` or `"epochs"` if tokens are unknown.
        curves: Evaluations along each training, by the run's name, where the log has them.
        unrecognised: Columns that no quantity was read from.
        diverged: D of the rows whose loss is NaN or infinite.
    """

    columns: dict[str, ndarray]
    recognised: dict[str, str]
    bad: list[BadRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    source: str = ""
    rows: str = "runs"
    unit: str = "nats per token"
    counted_in: str = "tokens"
    curves: dict[str, Curve] = field(default_factory=dict)
    unrecognised: list[str] = field(default_factory=list)
    diverged: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Recognised columns, what a row is, and bad rows as plain values."""
        return {
            "recognised": dict(self.recognised),
            "rows": self.rows,
            "unit": self.unit,
            "bad": [{"line": bad.line, "why": bad.why} for bad in self.bad],
        }

    def words(self) -> list[str]:
        """Sentences on recognised, derived and left out values."""
        messages = [", ".join(f"{k} from {v!r}" for k, v in self.recognised.items()) + "."]
        messages += self.notes
        if self.bad:
            rows = "1 row was" if len(self.bad) == 1 else f"{len(self.bad)} rows were"
            messages.append(f"{rows} left out:")
        duplicates = [bad for bad in self.bad if bad.why.startswith("the same run")]
        other = [bad for bad in self.bad if not bad.why.startswith("the same run")]
        messages += [f"  line {bad.line}: {bad.why}" for bad in other[:20]]
        if len(other) > 20:
            messages.append(f"  and {len(other) - 20} more (all of them with --json)")
        if duplicates:
            lines = ", ".join(str(bad.line) for bad in duplicates[:12])
            more = ", ..." if len(duplicates) > 12 else ""
            messages.append(f"  the same run as an earlier line: {lines}{more}")
        return messages

    def plot(self) -> Any:
        """An Altair chart of the losses against compute (extra `plot`)."""
        return chart(self)

    def _repr_html_(self) -> str:
        names = [name for name, column in self.columns.items() if column.dtype.kind in "fi"]
        rows = [
            (name, self.recognised.get(name, ""), f"{column.min():.4g}", f"{column.max():.4g}")
            for name, column in ((name, self.columns[name]) for name in names)
            if len(column)
        ]
        what = "runs" if self.rows == "runs" else "points of one training"
        count = len(self.columns.get("loss", ()))
        heads = ("", "column", "least", "largest")
        return html_table(f"{count} {what}", heads, rows, self.words()[1:])

    def require_several_runs(self, command: str) -> None:
        """Refuse to plan from the learning curve of one run, or from data counted in steps."""
        if self.rows == "points":
            count = len(self.columns["loss"])
            raise InputError(
                f"{command} must be given several runs of different size; got {count} evaluations "
                "of one run. Add the logs of at least three runs, better five sizes and three "
                "lengths (`fit` fits the learning curve)."
            )
        if self.counted_in != "tokens" and "N" in self.columns:
            raise InputError(
                f"{command} must know the number of tokens; got D counted in {self.counted_in}. "
                "Give it with --d, or --d-from 'step*batch_size*sequence_length'."
            )


def clean(
    sheet: Sheet,
    found: dict[str, tuple[str, float]],
    unit: str | None = None,
    keep_also: Sequence[str] = (),
) -> Imported:
    """Convert cells to numbers; list each unusable row by line and reason.

    Args:
        sheet: The cells.
        found: Column of each quantity, with the factor of its unit.
        unit: Unit of the loss. Default: by the name of its column.
        keep_also: Further columns to keep, as text.
    """
    cells, lines = sheet.cells, sheet.lines
    keep = np.ones(len(lines), bool)
    bad = dict(sheet.bad)
    columns: dict[str, ndarray] = {}
    mark, notes = _mark(sheet, found)
    per = "token"
    for quantity, (column, factor) in found.items():
        values = cells[column]
        if quantity in ("family", "status"):
            columns[quantity] = np.array([str(v).strip() for v in values], dtype=object)
            continue
        with np.errstate(over="ignore"):
            columns[quantity] = numbers(values, mark) * factor
        if quantity == "seed":
            columns["seed"] = _seeds(values, columns["seed"])
        if quantity == "loss":
            about = loss_names.describe(column)
            unit = unit or about.unit
            columns["loss"] = loss_names.to_nats(columns["loss"], unit)
            notes += loss_names.note(column, unit, about.per)
            per = about.per
        if quantity in ("N", "D", "C", "loss"):
            _check_numbers(quantity, column, values, columns[quantity], bad)
    for quantity in ("N", "D", "C"):
        # A completely empty column is dropped and makes no row bad.
        if quantity in columns and not np.isfinite(columns[quantity]).any():
            del columns[quantity]
            bad = {i: why for i, why in bad.items() if not why.startswith(f"{quantity} (")}
    also = [name for name in keep_also if name in cells and name not in columns]
    for name in also:
        columns[name] = np.array([str(v).strip() for v in cells[name]], dtype=object)
    for i, first in _duplicates(columns, bad, also):
        bad[i] = f"the same run as line {lines[first]}"
    diverged = _diverged(cells[found["loss"][0]], columns) if "loss" in found else []
    keep[list(bad)] = False
    listed = [BadRow(lines[i], why) for i, why in sorted(bad.items())]
    columns = {k: v[keep] for k, v in columns.items()}
    recognised = {
        q: column + (f" x {factor:g}" if factor != 1 else "")
        for q, (column, factor) in found.items()
        if q in columns
    }
    notes += _notes(columns)
    used = {column for column, _ in found.values()} | set(also)
    rest = [name for name in cells if name not in used]
    return Imported(
        columns, recognised, listed, notes, sheet.source,
        unit=f"nats per {per}", unrecognised=rest, diverged=diverged,
    )  # fmt: skip


def _seeds(values: Sequence[Any] | ndarray, found: ndarray) -> ndarray:
    """Seeds; those written as words, such as `seed_3`, by the number at their end."""
    ends = [re.search(r"[A-Za-z_-](\d{1,15})$", str(v).strip()) for v in values]
    read = [float(end[1]) if end else np.nan for end in ends]
    return np.where(np.isfinite(found), found, read)


def _diverged(losses: Sequence[Any] | ndarray, columns: dict[str, ndarray]) -> list[float]:
    """D where the loss is written as NaN or infinite."""
    if "D" not in columns:
        return []
    words = ("nan", "inf", "-inf", "infinity", "-infinity")
    rows = [i for i, v in enumerate(losses) if str(v).strip().lower() in words]
    return [float(d) for d in columns["D"][rows] if np.isfinite(d)]


def _mark(sheet: Sheet, found: dict[str, tuple[str, float]]) -> tuple[str, list[str]]:
    """The decimal mark of the recognised columns, which must be unique."""
    for quantity, (column, _) in found.items():
        if column in sheet.twice:
            raise InputError(
                f"The column {column!r}, read as {quantity}, must be unique; got several with "
                "different values. Rename or remove the others."
            )
    used = {
        column: [v for i, v in enumerate(sheet.cells[column]) if i not in sheet.bad]
        for quantity, (column, _) in found.items()
        if quantity not in ("family", "status")
    }
    losses = [found[quantity][0] for quantity in ("loss", "loss_se") if quantity in found]
    return decimal_mark(used, losses)


def kinds(
    cells: dict[str, Sequence[Any]], found: dict[str, tuple[str, float]]
) -> dict[str, list[str]]:
    """Categorical columns that divide the runs into a few kinds, with their values.

    A column whose values each have one size N names the sizes: it is not a kind.
    """
    used = {column for column, _ in found.values()}
    sizes = cells[found["N"][0]] if "N" in found else None
    categories = {}
    for column, values in cells.items():
        if column in used:
            continue
        distinct = sorted({str(v).strip() for v in values} - {"", "None", "nan"})
        words = [v for v in distinct if math.isnan(number(v))]
        few = len(distinct) >= 2 and len(words) == len(distinct) <= min(30, len(values) // 5)
        if few and not (sizes is not None and _names_sizes(values, sizes)):
            categories[column] = distinct
    return categories


def _names_sizes(values: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Whether each value has one size, and not all have the same."""
    pairs = {(str(value).strip(), str(N)) for value, N in zip(values, sizes, strict=True)}
    several = len({N for _, N in pairs}) > 1
    return several and len(pairs) == len({value for value, _ in pairs})


def _check_numbers(
    quantity: str, column: str, values: Sequence[Any], numbers: ndarray, bad: dict[int, str]
) -> None:
    """Record the first problem of each row in `bad`."""
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((numbers >= SMALLEST_NUMBER) & (numbers <= LARGEST_NUMBER)))
    for i in wrong.tolist():
        if i in bad:
            continue
        value = values[i]
        if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "":
            bad[i] = f"{quantity} ({column}) is missing"
        elif np.isnan(numbers[i]):
            bad[i] = f"{quantity} ({column}) is not a number: {shorten(value, 30)!r}"
        elif 0 < numbers[i] < math.inf:
            bad[i] = f"{quantity} ({column}) is not from 1e-100 to 1e100: {numbers[i]:g}"
        else:
            bad[i] = f"{quantity} ({column}) is not positive and finite: {numbers[i]:g}"


def _duplicates(
    columns: dict[str, ndarray], bad: dict[int, str], also: Sequence[str]
) -> list[tuple[int, int]]:
    """Rows that repeat an earlier row in every number, with that row."""
    keys = [k for k in ("N", "D", "C", "loss", "seed") if k in columns]
    if len(keys) < 2:
        return []
    rows = np.stack([columns[k] for k in keys], 1)
    labels = list(zip(*(columns[name] for name in also), strict=True)) or [()] * len(rows)
    seen: dict[tuple[bytes, tuple[str, ...]], int] = {}
    out = []
    for i, row in enumerate(rows):
        if i in bad:
            continue
        key = (row.tobytes(), labels[i])
        if key in seen:
            out.append((i, seen[key]))
        else:
            seen[key] = i
    return out


def _notes(columns: dict[str, ndarray]) -> list[str]:
    """Notes on derived quantities and possibly mixed units."""
    notes = []
    have = {k for k in ("N", "D", "C") if k in columns}
    if len(have) == 2:
        missing = next(iter({"N", "D", "C"} - have))
        notes.append(f"{missing} follows from C = 6 N D.")
    for name in ("N", "D"):
        if name in columns and len(columns[name]) >= 4:
            logs = np.sort(np.log10(columns[name]))
            gaps = np.diff(logs)
            # Mixed units leave a gap of decades with clusters on both sides.
            if gaps.max(initial=0) > 2.5 and gaps.max() > 5 * np.median(gaps[gaps > 0], axis=None):
                at = int(gaps.argmax())
                notes.append(
                    f"{name} jumps from {10 ** logs[at]:.3g} to {10 ** logs[at + 1]:.3g} with "
                    "nothing between: check that one unit was used throughout."
                )
    return notes
