"""trackio's SQLite database of a project: tables `metrics` and `configs` with JSON texts."""

import sqlite3
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.user_files import parse_json
from allometry.runs.importers.run_log import Logs, RunLog
from allometry.runs.importers.wandb_files import flat


def read_database(base: sqlite3.Connection, path: Path, columns: dict[str, set[str]]) -> Logs:
    """The runs of a project; older databases name runs only, newer ones have identifiers."""
    key = "run_id" if "run_id" in columns["metrics"] else "run_name"
    runs: dict[str, RunLog] = {}
    sql = f"select {key}, run_name, step, metrics from metrics order by id"
    for run, name, step, text in base.execute(sql):
        log = runs.setdefault(str(run), RunLog(str(name), []))
        log.points.append({"step": step} | _object(text, path))
    if {"config", key} <= columns.get("configs", set()):
        for run, text in base.execute(f"select {key}, config from configs"):
            if str(run) in runs:
                config = _object(text, path)
                config = {k: v for k, v in config.items() if not k.startswith("_")}
                runs[str(run)].config.update(config)
    if not runs:
        raise InputError(f"{path} must hold runs of trackio; got none.")
    return Logs(list(runs.values()), "trackio")


def _object(text: Any, path: Path) -> dict[str, Any]:
    if not isinstance(text, str | bytes):
        return {}
    made = parse_json(text, f"a row of {path}")
    return flat(made) if isinstance(made, dict) else {}
