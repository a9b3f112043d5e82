"""Detect the format of a file or folder, and read it as a table or as logs of trainings."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from allometry._core.delimited import Sheet, read_csv
from allometry._core.errors import InputError
from allometry._core.user_files import MOST_TABLE, exists, files_below, parse_json, read_text
from allometry.runs.importers import long_tables, row_kinds, table_files, wandb_exports
from allometry.runs.importers.derived_columns import FROM_NAME, size_in_name
from allometry.runs.importers.run_log import LINE, Logs, RunLog, steps_of

is_wandb_table = wandb_exports.is_table
_DATABASES = (".db", ".sqlite", ".sqlite3", ".duckdb")


def read(path: Path, sql: str | None = None) -> Sheet | Logs:
    """The cells of a table, or the trainings in logs."""
    if sql is not None:
        from allometry.runs.importers import databases

        return databases.query(path, sql)
    made = _folder(path) if path.is_dir() else _file(path)
    long = long_tables.read_long(made) if isinstance(made, Sheet) else None
    return made if long is None else long


def _file(path: Path) -> Sheet | Logs:
    kind = path.suffix.lower()
    if path.name == "trainer_state.json":
        from allometry.runs.importers import hf_trainer

        return hf_trainer.read_states([path], path.parent)
    if "tfevents" in path.name:
        from allometry.runs.importers import tensorboard_events

        return tensorboard_events.read_events([path], path.parent)
    if kind == ".wandb":
        from allometry.runs.importers import wandb_files

        return wandb_files.read_logs([path], path)
    if kind in _DATABASES:
        return _database(path)
    if kind in (".jsonl", ".ndjson"):
        return table_files.read_jsonl(path)
    if kind == ".parquet":
        return table_files.read_parquet(path)
    if kind == ".xlsx":
        from allometry.runs.importers import excel

        return excel.read_excel(path)
    if kind == ".json":
        return _json([path])
    if kind in (".log", ".out", ".txt"):
        from allometry.runs.importers import text_logs

        return Logs([text_logs.require_text_log(path)], "text log")
    sheet = read_csv(path)
    if wandb_exports.is_chart(sheet):
        return wandb_exports.read_chart(sheet)
    history = "_step" in sheet.cells and row_kinds.split(sheet, None) is not None
    return replace(sheet, source="W&B history") if history else sheet


def _database(path: Path) -> Sheet | Logs:
    from allometry.runs.importers import databases, mlflow_store, trackio_database

    with databases.opened(path) as base:
        found = databases.tables(base)
        if {"runs", "metrics", "params"} <= set(found):
            return mlflow_store.read_database(base, path)
        if {"run_name", "step", "metrics"} <= found.get("metrics", set()):
            return trackio_database.read_database(base, path, found)
    return databases.query(path, databases.only_table(path))


def _json(files: list[Path]) -> Logs:
    from allometry.runs.importers import keras_history

    found: dict[Path, dict[str, Any]] = {}
    for path in files:
        try:
            data = parse_json(read_text(path, MOST_TABLE), str(path))
        except InputError:
            continue
        if keras_history.is_history(data):
            found[path] = data
    if not found:
        raise InputError(
            f"{files[0]} must be CSV, TSV, JSON lines or Parquet, or a Keras history; got another "
            ".json file. Write one object per line and name it .jsonl."
        )
    return keras_history.read_histories(found)


def _folder(path: Path) -> Sheet | Logs:
    if exists(path / "study.json"):
        return _study(path)
    if exists(path / "trainer_state.json") and not (path / "trainer_state.json").is_file():
        return _file(path / "trainer_state.json")  # a pipe or a device: refused by name
    files = list(files_below(path, lambda _: True))
    named: dict[str, list[Path]] = {}
    for file in files:
        named.setdefault(_kind(file), []).append(file)
    metrics = {
        path.joinpath(*parts[: parts.index("metrics") + 1]): None
        for file in files
        if "metrics" in (parts := file.relative_to(path).parts[:-1])
    }
    if "state" in named:
        from allometry.runs.importers import hf_trainer

        return hf_trainer.read_states(named["state"], path)
    if "wandb" in named or "summary" in named:
        from allometry.runs.importers import wandb_files

        if "wandb" in named:
            return wandb_files.read_logs(named["wandb"], path)
        return wandb_files.read_summaries(named["summary"], path)
    if "events" in named:
        from allometry.runs.importers import tensorboard_events

        return tensorboard_events.read_events(named["events"], path)
    if metrics:
        from allometry.runs.importers import mlflow_store

        return mlflow_store.read_folder(path, list(metrics))
    if "lightning" in named:
        from allometry.runs.importers import lightning_csv

        return lightning_csv.read_folders(named["lightning"], path)
    return _others(path, named)


def _kind(file: Path) -> str:
    if file.name == "trainer_state.json":
        return "state"
    if file.name.startswith("events.out.tfevents."):
        return "events"
    if file.name == "wandb-summary.json":
        return "summary"
    if file.name == "metrics.csv":
        return "lightning"
    kind = file.suffix.lower()
    return "database" if kind in _DATABASES else kind.removeprefix(".")


def _others(path: Path, named: dict[str, list[Path]]) -> Sheet | Logs:
    """Databases, CSV histories, Keras histories and printed logs directly in a folder."""
    near = {kind: [p for p in files if p.parent == path] for kind, files in named.items()}
    if near.get("database"):
        return _database(near["database"][0])
    for kind in ("csv", "tsv", "jsonl", "parquet"):
        if near.get(kind):
            return _histories(near[kind])
    printed = [p for kind in ("log", "out", "txt") for p in near.get(kind, ())]
    if printed:
        from allometry.runs.importers import text_logs

        runs = [run for file in printed if (run := text_logs.read_text_log(file)) is not None]
        if runs:
            return Logs(runs, "text logs")
    if near.get("json"):
        return _json(near["json"])
    raise InputError(
        f"{path} must hold a study, CSV histories, trainer_state.json, TensorBoard events, an "
        "MLflow store, or other known logs; got none of these."
    )


def _histories(files: list[Path]) -> Logs:
    """One run for each table."""
    runs = []
    for path in files:
        sheet = _file(path)
        if not isinstance(sheet, Sheet):
            raise InputError(f"{path} must be the history of one run; got several runs.")
        if sheet.bad:
            first = min(sheet.bad)
            raise InputError(
                f"{path} must be a table; line {sheet.lines[first]}: {sheet.bad[first]}."
            )
        names = [name for name in sheet.cells if name not in sheet.twice]
        points = [
            {LINE: line} | {name: sheet.cells[name][i] for name in names}
            for i, line in enumerate(sheet.lines)
        ]
        if steps_of(names) is None:  # without steps the last values count
            last: dict[str, Any] = {}
            for point in points:
                last |= {k: v for k, v in point.items() if str(v).strip() not in ("", "nan")}
            points = [last]
        size = size_in_name(path.stem)
        config = {} if math.isnan(size) else {FROM_NAME: size}
        runs.append(RunLog(path.stem, points, config))
    return Logs(runs, "folder of W&B histories")


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
