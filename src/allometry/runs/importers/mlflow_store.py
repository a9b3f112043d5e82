"""MLflow's local stores: the folder `mlruns` and the SQLite database `mlflow.db`."""

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.user_files import MOST_SMALL, MOST_TABLE, files_below, read_text
from allometry.runs.importers.run_log import Logs, RunLog
from allometry.runs.importers.yaml_subset import read_settings

_STATES = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}
MOST_POINTS = 10_000_000
"""Largest number of logged values in a store."""


def read_folder(folder: Path, found: Sequence[Path]) -> Logs:
    """The runs of a file store.

    Args:
        folder: The store.
        found: Its folders of metrics.
    """
    runs = []
    for metrics in found:
        meta = metrics.parent / "meta.yaml"
        about = read_settings(read_text(meta), str(meta)) if meta.is_file() else {}
        if about.get("lifecycle_stage") == "deleted":
            continue
        config: dict[str, Any] = {}
        params = metrics.parent / "params"
        if params.is_dir():
            for file in files_below(params, lambda _: True):
                config[str(file.relative_to(params))] = read_text(file, MOST_SMALL).strip()
        points: dict[float, dict[str, Any]] = {}
        for file in files_below(metrics, lambda _: True):
            name = str(file.relative_to(metrics))
            for line in read_text(file, MOST_TABLE).splitlines():
                _point(points, name, line.split(), config)
        name = about.get("run_name") or _tag(metrics.parent) or metrics.parent.name
        status = _STATES.get(str(about.get("status", "")), str(about.get("status", "")))
        runs.append(RunLog(name, [points[s] for s in sorted(points)], config, status))
    if not runs:
        raise InputError(f"{folder} must be an MLflow store; got no runs with metrics.")
    return Logs(runs, "MLflow runs")


def _point(
    points: dict[float, dict[str, Any]], name: str, parts: list[str], config: dict[str, Any]
) -> None:
    """Add a line `timestamp value step`; without a step the last value counts."""
    if len(parts) >= 3:
        try:
            step = float(parts[2])
        except ValueError:
            return
        if math.isfinite(step):
            points.setdefault(step, {"step": step})[name] = parts[1]
    elif len(parts) == 2:
        config[name] = parts[1]


def _tag(run: Path) -> str:
    file = run / "tags" / "mlflow.runName"
    return read_text(file).strip() if file.is_file() else ""


def read_database(base: sqlite3.Connection, path: Path) -> Logs:
    """The runs of a SQLite store."""
    runs: dict[str, RunLog] = {}
    sql = "select run_uuid, name, status from runs where lifecycle_stage = 'active'"
    for key, name, status in base.execute(sql):
        runs[str(key)] = RunLog(str(name or key), [], {}, str(status or "").lower())
    for key, name, value in base.execute("select run_uuid, key, value from params"):
        if str(key) in runs:
            runs[str(key)].config[str(name)] = value
    points: dict[str, dict[float, dict[str, Any]]] = {}
    sql = "select run_uuid, key, value, step, is_nan from metrics order by timestamp"
    for count, (key, name, value, step, nan) in enumerate(base.execute(sql)):
        if count > MOST_POINTS:
            raise InputError(f"{path} must have at most {MOST_POINTS:,} values; got more.")
        if str(key) in runs and isinstance(step, int | float):
            run = points.setdefault(str(key), {})
            run.setdefault(step, {"step": step})[str(name)] = math.nan if nan else value
    for key, table in points.items():
        runs[key].points.extend(table[step] for step in sorted(table))
    kept = [run for run in runs.values() if run.points]
    if not kept:
        raise InputError(f"{path} must be an MLflow store; got no runs with metrics.")
    return Logs(kept, "MLflow runs")
