"""Load runs in any format: recognise columns, what a row is, and what was derived."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from allometry._core.delimited import Sheet
from allometry._core.errors import InputError
from allometry._core.files import storage_errors
from allometry._core.number_parsing import number, numbers
from allometry._core.user_files import exists, shorten
from allometry.runs.importers import (
    clipboard,
    column_formulas,
    derived_columns,
    formats,
    loss_names,
    row_kinds,
)
from allometry.runs.importers.columns import (
    BadRow,
    Curve,
    Imported,
    UnrecognisedError,
    clean,
    kinds,
)
from allometry.runs.importers.names import plain, recognise
from allometry.runs.importers.run_log import Logs, final_rows, steps_of
from allometry.runs.importers.run_settings import add_settings

Found = dict[str, tuple[str, float]]


@final
@dataclass(frozen=True)
class _Rows:
    """The rows to fit, before conversion to numbers."""

    sheet: Sheet
    chosen: dict[str, str | None]
    log: bool
    curves: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    @property
    def points(self) -> bool:
        """Whether the rows are points along one training."""
        return len(self.curves) == 1


def load(
    path: Path | str,
    *,
    N: str | None = None,
    D: str | None = None,
    C: str | None = None,
    loss: str | None = None,
    family: str | None = None,
    where: Sequence[str] = (),
    n_from: str | None = None,
    d_from: str | None = None,
    config: Path | str | None = None,
    sql: str | None = None,
    rows: str = "auto",
    unit: str | None = None,
    keep: Sequence[str] = (),
) -> Imported:
    """Load the runs in a file or folder; report recognised columns and bad rows.

    Args:
        path: A file or folder in any supported format; `clipboard`, or `-` for standard input.
        N: Column of parameters. Default: recognised by name.
        D: Column of data.
        C: Column of FLOPs.
        loss: Column of the loss.
        family: Use only the runs of this family.
        where: Use only rows that match all of these `column=value` conditions.
        n_from: Expression of columns for N, such as `12*depth*width^2`.
        d_from: Expression of columns for D, such as `step*524288`.
        config: YAML, TOML, JSON or CSV file with further settings of each run.
        sql: Query that gives the runs, if `path` is a SQLite or DuckDB database.
        rows: `runs` if each row is a run, `points` if rows are points along trainings. Default:
            recognised by run names, steps and sizes.
        unit: Unit of the loss: nats, bits or perplexity. Default: by the column's name.
        keep: Further columns to keep as text, where they exist; names of settings mostly.
    """
    path = Path(path)
    read = _read(path, sql)
    if isinstance(read, Sheet):
        _require_header(path, read)
    if config is not None:
        read = add_settings(read, Path(config))
    chosen = {"N": N, "D": D, "C": C, "loss": loss}
    made = _rows(path, read, chosen, where, rows)
    made, found, derived = _derive(path, made, n_from, d_from)
    imported = clean(made.sheet, found, unit, keep)
    _require_runs(path, made.sheet, found, imported)
    notes = [*made.notes, *imported.notes, *derived, *_loss_notes(made, found)]
    notes += _kind_notes(made.sheet, found, keep) + _row_notes(made, imported)
    counted = _counted_in(found)
    if counted != "tokens":
        notes.append(
            f"D is counted in {counted}, as no column of tokens was recognised. "
            "Name it with --d, or give --d-from 'step*batch_size*sequence_length'."
        )
    return _of_family(
        replace(
            imported,
            notes=notes,
            bad=sorted([*made.bad, *imported.bad], key=lambda bad: bad.line),
            rows="points" if made.points else "runs",
            counted_in=counted,
            curves=_curves(made, found, unit or loss_names.describe(found["loss"][0]).unit),
        ),
        family,
    )


def _read(path: Path, sql: str | None) -> Sheet | Logs:
    """The cells or trainings of a path, of the clipboard or of standard input."""
    if clipboard.is_stream(path):
        with clipboard.as_file(path) as file:
            return formats.read(file, sql)
    with storage_errors("read", path):
        found = exists(path)
    if not found:
        raise InputError(f"{path} must be a file or folder of runs; got no such path.")
    return formats.read(path, sql)


def _rows(
    path: Path | str,
    read: Sheet | Logs,
    chosen: dict[str, str | None],
    where: Sequence[str],
    rows: str,
) -> _Rows:
    """The rows to fit: those of a table, or the last evaluation of each training."""
    bad: list[BadRow] = []
    logs = read if isinstance(read, Logs) else None
    if isinstance(read, Sheet):
        sheet = matching(read, where)
        log = formats.is_wandb_table(sheet) or steps_of(list(sheet.cells)) is not None
        found = recognise(list(sheet.cells), chosen, sheet.cells, log=log)
        size = found.get("N", (None,))[0]
        logs = None if sheet.source == "study" else row_kinds.split(sheet, size, rows)
        if logs is None:
            # A study's `loss` is its validation loss.
            return _Rows(sheet, chosen, log and sheet.source != "study")
        bad = [BadRow(sheet.lines[i], why) for i, why in sheet.bad.items()]
        where = ()
    assert logs is not None
    roles = {q: c for q, c in logs.roles.items() if chosen.get(q) is None}
    chosen = chosen | roles
    names = logs.names()
    found = recognise(names, chosen, logs.cells(), log=True)
    _require_loss(path, found, names)
    sheet, curves, notes = final_rows(logs, found["loss"][0])
    chosen = {q: c if c in sheet.cells else None for q, c in chosen.items()}
    chosen["loss"] = found["loss"][0]
    if not sheet.lines:
        raise InputError(f"{path} must hold losses; got none in {found['loss'][0]!r}.")
    if isinstance(read, Sheet) and len(curves) > 1:
        count = sum(map(len, curves.values()))
        notes.append(
            f"The {count} rows are points along {len(curves)} trainings; the last of each is "
            "used. With --rows runs each row is a run."
        )
    return _Rows(matching(sheet, where), chosen, True, curves, [*logs.notes, *notes], bad)


def _derive(
    path: Path | str, made: _Rows, n_from: str | None, d_from: str | None
) -> tuple[_Rows, Found, list[str]]:
    """Recognise columns and add derived ones: expressions, tokens of steps, sizes in names."""
    sheet, chosen = made.sheet, dict(made.chosen)
    notes = []
    for quantity, text in (("N", n_from), ("D", d_from)):
        if text is not None:
            values = column_formulas.evaluate(text, sheet.cells, f"--{quantity.lower()}-from")
            sheet = replace(sheet, cells={**sheet.cells, text: values.tolist()})
            chosen[quantity] = text
    found = recognise(list(sheet.cells), chosen, sheet.cells, log=made.log)
    if n_from is not None:
        found["N"] = (n_from, 1.0)
    if d_from is not None:
        found["D"] = (d_from, 1.0)
    _require_loss(path, found, list(sheet.cells))
    if "D" not in found and not {"N", "C"} <= set(found):
        seen = derived_columns.tokens_seen(sheet)
        if seen is not None:
            sheet, name = seen
            found["D"] = (name, 1.0)
            notes.append(f"D = {name}.")
    if "N" not in found and not {"D", "C"} <= set(found):
        sized = derived_columns.sizes_from_names(sheet)
        if sized is not None:
            sheet = sized
            found["N"] = (derived_columns.FROM_NAME, 1.0)
            notes.append("N is the nominal size in the names of the runs.")
    if not {"N", "D", "C"} & set(found) or (made.curves and not {"D", "C"} & set(found)):
        step = steps_of(list(sheet.cells))
        if step is None and "N" not in found:
            raise UnrecognisedError(
                f"{path} must have a column of parameters, tokens or FLOPs; got "
                f"{', '.join(list(sheet.cells)[:12])}. Name it with --n, --d or --c.",
                "N",
                list(sheet.cells),
            )
        if step is not None:
            found["D"] = (step, 1.0)
    if "N" not in found and not {"D", "C"} <= set(found):
        notes.append(_without_size(list(sheet.cells), found))
    return replace(made, sheet=sheet), found, notes


def _without_size(names: list[str], found: Found) -> str:
    """A note that no column of parameters was recognised."""
    example = derived_columns.shape_example(names)
    how = f"--n-from {shlex.quote(example)}" if example else "--n-from"
    known = " and ".join(q for q in ("D", "C") if q in found)
    return (
        f"No column of parameters was recognised, so the law is in {known} alone. Name it with "
        f"--n, or compute it with {how}."
    )


def _counted_in(found: Found) -> str:
    name = plain(found["D"][0])[0] if "D" in found else ""
    if name == "epoch":
        return "epochs"
    return "steps" if name and steps_of([found["D"][0]]) is not None else "tokens"


def _require_header(path: Path | str, sheet: Sheet) -> None:
    if sheet.cells and all(math.isfinite(number(name)) for name in sheet.cells):
        raise InputError(
            f"{path} must have a header line that names its columns; got the numbers "
            f"{', '.join(list(sheet.cells)[:12])}. Add one, such as params,tokens,loss."
        )


def _require_loss(path: Path | str, found: Found, names: list[str]) -> None:
    if "loss" in found:
        return
    if names and all(math.isfinite(number(name)) for name in names):
        return  # numbers in place of a header: reported as such
    likely = [name for name in names if "loss" in name.lower()]
    example = f", as in --loss {shlex.quote(likely[0])}" if likely else ""
    raise UnrecognisedError(
        f"{path} must have a column of losses; got {', '.join((likely or names)[:12])}. "
        f"Name it with --loss{example}.",
        "loss",
        names,
    )


def _require_runs(path: Path | str, sheet: Sheet, found: Found, imported: Imported) -> None:
    """Refuse a table without usable runs; the message has the reason of the first bad row."""
    sizes = [q for q in ("N", "D", "C") if q in found]
    if not any(q in imported.columns for q in sizes):
        column = found[sizes[0]][0]
        raise InputError(
            f"{path} must hold numbers in its column {column!r}; got "
            f"{shorten(next(iter(sheet.cells[column]), ''), 30)!r}."
        )
    if not len(imported.columns["loss"]):
        first = imported.bad[0]
        raise InputError(
            f"{path} must hold a run that can be fitted; all {len(imported.bad)} rows are bad, "
            f"the first on line {first.line}: {first.why}."
        )


def _loss_notes(made: _Rows, found: Found) -> list[str]:
    """Notes on training losses and on other evaluation sets."""
    column = found["loss"][0]
    names = list(made.sheet.cells)
    about = loss_names.describe(column)
    notes = []
    other = loss_names.others(names, column)
    if about.part == "training" or (made.log and about.part == "" and made.curves):
        notes.append(
            f"{column!r} is a training loss; laws are usually fitted to a validation loss."
        )
    elif other:
        listed = ", ".join(repr(shorten(name, 60)) for name in other[:6])
        more = f" and {len(other) - 6} more" if len(other) > 6 else ""
        notes.append(f"The loss is {column!r}; others are {listed}{more} (--loss chooses).")
    return notes


def _kind_notes(sheet: Sheet, found: Found, keep: Sequence[str]) -> list[str]:
    """A note on columns that divide the runs of a table into kinds, unless they are kept."""
    groups = kinds(sheet.cells, found) if sheet.source == "CSV" else {}
    groups = {column: values for column, values in groups.items() if column not in keep}
    if not groups:
        return []
    fewest = min(groups, key=lambda column: len(groups[column]))
    columns = ", ".join(f"{column} ({len(values)} values)" for column, values in groups.items())
    divide = f"column {columns} divides" if len(groups) == 1 else f"columns {columns} divide"
    example = shlex.quote(f"{fewest}={groups[fewest][0]}")
    return [
        f"The {divide} the runs into several kinds, which are fitted together; "
        f"--where {example} selects one."
    ]


def _row_notes(made: _Rows, imported: Imported) -> list[str]:
    """A note on rows that are, or may be, points along one training."""
    columns = imported.columns
    count = len(columns["loss"])
    if made.points and count > 1:
        return [f"These {count} rows are evaluations of one run: they give its learning curve."]
    data = columns.get("D")
    one_size = "N" not in columns or np.ptp(columns["N"]) == 0
    if data is None or count < 5 or not one_size or made.curves:
        return []
    gaps = np.diff(data)
    if gaps.min() > 0 and gaps.max() <= 1.01 * gaps.min():
        return [
            "One size, and D increases by equal amounts: if these rows are points along one "
            "training, say so with --rows points."
        ]
    return []


def _curves(made: _Rows, found: Found, unit: str) -> dict[str, Curve]:
    """The evaluations of each run as arrays: step, D and loss in nats."""
    step = steps_of(list(made.sheet.cells))
    wanted = {"step": step, "D": found.get("D", (None,))[0], "loss": found["loss"][0]}
    curves = {}
    for name, points in made.curves.items():
        columns: Mapping[str, list[Any]] = {
            key: [point.get(column) for point in points]
            for key, column in wanted.items()
            if column is not None and any(column in point for point in points)
        }
        if "loss" in columns:
            curve = {key: numbers(values) for key, values in columns.items()}
            curves[name] = curve | {"loss": loss_names.to_nats(curve["loss"], unit)}
    return curves


def matching(sheet: Sheet, where: Sequence[str]) -> Sheet:
    """The rows that match the conditions."""
    for text in where:
        column, sign, value = text.partition("=")
        if not sign or column not in sheet.cells:
            raise InputError(
                f"--where must be column=value with one of the columns "
                f"{', '.join(list(sheet.cells)[:12])}; got {text!r}."
            )
        if column in sheet.twice:
            raise InputError(f"--where must name one column; got {column!r}, which is duplicated.")
        keep = [i for i, v in enumerate(sheet.cells[column]) if str(v).strip() == value]
        if not keep:
            values = sorted({shorten(v, 40) for v in sheet.cells[column]})
            raise InputError(
                f"--where {column} must be one of {', '.join(values[:12])}; got {value!r}."
            )
        sheet = sheet.take(keep)
    return sheet


def _of_family(imported: Imported, family: str | None) -> Imported:
    """The rows of one family, or all."""
    if family is None or "family" not in imported.columns:
        return imported
    keep = imported.columns["family"] == family
    if not keep.any():
        names = ", ".join(sorted(set(map(str, imported.columns["family"]))))
        raise InputError(f"--family must be one of {names}; got {family!r}.")
    return replace(imported, columns={k: v[keep] for k, v in imported.columns.items()})
