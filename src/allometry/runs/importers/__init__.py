"""Importers: convert run tables and logs to columns that a law can be fitted to.

CSV, TSV, JSON lines, Parquet, a study's folder, W&B exports, TensorBoard events, Hugging Face
trainer states and MLflow stores; the format is detected.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allometry._core.delimited import Cells, Sheet, read_csv
from allometry._core.errors import InputError
from allometry._core.files import storage_errors
from allometry._core.number_parsing import number
from allometry._core.user_files import exists, shorten
from allometry.runs.importers import logs, table_files
from allometry.runs.importers.columns import BadRow, Imported, clean, kinds, recognise

__all__ = ["BadRow", "Imported", "load", "number"]


def load(
    path: Path | str,
    *,
    N: str | None = None,
    D: str | None = None,
    C: str | None = None,
    loss: str | None = None,
    family: str | None = None,
    where: Sequence[str] = (),
) -> Imported:
    """Load the runs in a file or folder; report recognised columns and bad rows.

    Args:
        path: A file or folder in one of the formats above.
        N: Column of parameters. Default: recognised by name.
        D: Column of data.
        C: Column of FLOPs.
        loss: Column of the loss.
        family: Use only the runs of this family.
        where: Use only rows that match all of these `column=value` conditions.
    """
    path = Path(path)
    with storage_errors("read", path):
        found_path = exists(path)
    if not found_path:
        raise InputError(f"{path} must be a file or folder of runs; got no such path.")
    sheet = _where(_sheet(path), where)
    cells = sheet.cells
    found = recognise(list(cells), {"N": N, "D": D, "C": C, "loss": loss})
    if cells and all(math.isfinite(number(name)) for name in cells):
        raise InputError(
            f"{path} must have a header line that names its columns; got the numbers "
            f"{', '.join(list(cells)[:12])}. Add one, such as params,tokens,loss."
        )
    if "loss" not in found:
        likely = [name for name in cells if "loss" in name.lower()]
        example = f", as in --loss {likely[0]}" if likely else ""
        raise InputError(
            f"{path} must have a column of losses; got {', '.join((likely or list(cells))[:12])}. "
            f"Name it with --loss{example}."
        )
    if not {"N", "D", "C"} & set(found):
        step = next((s for s in ("_step", "step") if s in cells), None)
        if step is None:
            raise InputError(
                f"{path} must have a column of parameters, tokens or FLOPs; got "
                f"{', '.join(list(cells)[:12])}. Name it with --n, --d or --c."
            )
        found["D"] = (step, 1.0)
    imported = clean(sheet, found)
    _require_runs(path, cells, found, imported)
    groups = kinds(cells, found) if sheet.source == "CSV" else {}
    if groups:
        largest = max(groups, key=lambda column: len(groups[column]))
        columns = ", ".join(f"{column} ({len(values)})" for column, values in groups.items())
        example = shlex.quote(f"{largest}={groups[largest][0]}")
        imported.notes.append(
            f"The columns {columns} divide the runs into several kinds, which are fitted "
            f"together; --where {example} selects one."
        )
    if found.get("D", ("",))[0] in ("_step", "step"):
        imported.notes.append("D is counted in steps, as no column of tokens was recognised.")
    return _of_family(imported, family)


def _require_runs(
    path: Path,
    cells: Cells,
    found: dict[str, tuple[str, float]],
    imported: Imported,
) -> None:
    """Refuse a table without usable runs; the message has the reason of the first bad row."""
    sizes = [q for q in ("N", "D", "C") if q in found]
    if not any(q in imported.columns for q in sizes):
        column = found[sizes[0]][0]
        raise InputError(
            f"{path} must hold numbers in its column {column!r}; got "
            f"{shorten(next(iter(cells[column]), ''), 30)!r}."
        )
    if not len(imported.columns["loss"]):
        first = imported.bad[0]
        raise InputError(
            f"{path} must hold a run that can be fitted; all {len(imported.bad)} rows are bad, "
            f"the first on line {first.line}: {first.why}."
        )


def _where(sheet: Sheet, where: Sequence[str]) -> Sheet:
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


def _sheet(path: Path) -> Sheet:
    """The cells of a file or folder in any format."""
    if path.is_dir():
        return _folder(path)
    if path.name == "trainer_state.json":
        return logs.trainer_state(path)
    if "tfevents" in path.name:
        return logs.tensorboard(path)
    kind = path.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return table_files.read_jsonl(path)
    if kind == ".parquet":
        return table_files.read_parquet(path)
    if kind == ".json":
        raise InputError(
            f"{path} must be CSV, TSV, JSON lines or Parquet; got a .json file. Write one object "
            "per line and name it .jsonl."
        )
    sheet = read_csv(path)
    history = "_step" in sheet.cells and logs.is_history(sheet.cells)
    return replace(sheet, source="W&B history") if history else sheet


def _folder(path: Path) -> Sheet:
    if exists(path / "study.json"):
        return _study(path)
    if exists(path / "trainer_state.json"):
        return logs.trainer_state(path / "trainer_state.json")
    found = logs.below(path)
    if found.events:
        return logs.tensorboard(path, found.events)
    if found.metrics:
        return logs.mlflow(path, found.metrics)
    if any(path.glob("*.csv")):
        return logs.histories(path)
    raise InputError(
        f"{path} must hold a study, CSV histories, trainer_state.json, TensorBoard events or an "
        "MLflow store; got none of these."
    )


def _study(path: Path) -> Sheet:
    """The finished runs of a study folder, read without pandas."""
    from allometry.runs.folder import COLUMNS, Runs
    from allometry.runs.frame import LEFT_OUT

    finished = [r for r in Runs(path).journal.latest().values() if r["status"] == "done"]
    trained = [r for r in finished if r.get("C") is not None]
    records = trained or finished  # n-gram baselines have no compute
    if not records:
        raise InputError(f"{path} must hold finished runs; got none. See `allometry status`.")
    names = dict.fromkeys([*COLUMNS, *(name for r in records for name in r)])
    cells: dict[str, Any] = {
        name: [math.nan if r.get(name) is None else r[name] for r in records]
        for name in names
        if name not in LEFT_OUT
    }
    return Sheet(cells, list(range(1, len(records) + 1)), "study")


def _of_family(imported: Imported, family: str | None) -> Imported:
    """The rows of one family, or all."""
    if family is None or "family" not in imported.columns:
        return imported
    keep = imported.columns["family"] == family
    if not keep.any():
        names = ", ".join(sorted(set(map(str, imported.columns["family"]))))
        raise InputError(f"--family must be one of {names}; got {family!r}.")
    return replace(imported, columns={k: v[keep] for k, v in imported.columns.items()})
