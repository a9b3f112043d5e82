"""Logs of training: W&B histories, HF Trainer states, TensorBoard events, MLflow runs.

A log of one run gives a learning curve, one row per evaluation; a folder of logs gives one row per
run, its last evaluation.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError, require_extra
from allometry._core.files import storage
from allometry.study.importers.columns import number
from allometry.study.importers.tables import Cells, read_csv

_STEPS = ("_step", "step", "steps", "global_step")


def is_history(cells: Cells) -> bool:
    """Whether a CSV is the history of one run: a step column, rising from row to row."""
    for name in _STEPS:
        if name in cells:
            steps = [number(v) for v in cells[name]]
            return len(steps) > 1 and all(a <= b for a, b in pairwise(steps))
    return False


def histories(folder: Path) -> tuple[Cells, list[int], str]:
    """The last row of each W&B history in a folder; size and data also from the file's name."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.csv")):
        cells, _ = read_csv(path)
        last = {name: _last(values) for name, values in cells.items()}
        rows.append({"run": path.stem} | _from_name(path.stem) | last)
    if not rows:
        raise InputError(f"{folder} must hold CSV histories; got none.")
    return _columns(rows), list(range(1, len(rows) + 1)), "folder of W&B histories"


def _last(values: Any) -> Any:
    """The last cell that holds something."""
    return next(
        (v for v in reversed(list(values)) if str(v).strip() not in ("", "nan", "None")), ""
    )


def _from_name(stem: str) -> dict[str, float]:
    """A size such as 190M or 1.3B at the start of a run's name."""
    match = re.match(r"(\d+(?:\.\d+)?)([KMB])(?![a-zA-Z])", stem)
    return {"params (from name)": number(match.group(0))} if match else {}


def trainer_state(path: Path) -> tuple[Cells, list[int], str]:
    """The evaluations in a Hugging Face `trainer_state.json`, one row each."""
    with storage("read", path):
        text = path.read_text(encoding="utf-8")
    try:
        state = json.loads(text)
        log = state["log_history"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} must be a trainer_state.json; got no log_history.") from error
    key = "eval_loss" if any("eval_loss" in row for row in log) else "loss"
    rows = []
    most = max(float(state.get("global_step") or 1), 1.0)
    for row in log:
        if key not in row:
            continue
        seen = row.get("num_input_tokens_seen")
        made = {"step": row.get("step"), "loss": row[key]}
        made["tokens"] = seen if seen else None
        if state.get("total_flos") and row.get("step"):
            made["total_flos"] = float(state["total_flos"]) * float(row["step"]) / most
        rows.append(made)
    if not rows:
        raise InputError(f"{path} must hold evaluations; got a log_history without losses.")
    return _columns(rows), list(range(1, len(rows) + 1)), "HF trainer state"


def tensorboard(path: Path) -> tuple[Cells, list[int], str]:
    """The scalars of a TensorBoard event file or of each run folder below `path`."""
    require_extra("tensorboard", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = [path] if path.is_file() else sorted(path.rglob("events.out.tfevents.*"))
    tables: dict[Path, dict[float, dict[str, Any]]] = {}
    for file in files:
        log = EventAccumulator(str(file), size_guidance={"scalars": 0})
        log.Reload()
        # A run that was resumed has several files in its folder.
        table = tables.setdefault(file.parent, {})
        for tag in log.Tags()["scalars"]:
            for event in log.Scalars(tag):
                table.setdefault(event.step, {"step": event.step})[tag] = event.value
    runs = [[table[step] for step in sorted(table)] for table in tables.values()]
    runs = [rows for rows in runs if rows]
    if not runs:
        raise InputError(f"{path} must hold TensorBoard scalars; got none.")
    if len(runs) == 1:
        return _columns(runs[0]), list(range(1, len(runs[0]) + 1)), "TensorBoard events"
    merged = []
    for rows in runs:
        last: dict[str, Any] = {}
        for row in rows:
            last |= row
        merged.append(last)
    return _columns(merged), list(range(1, len(merged) + 1)), "TensorBoard runs"


def mlflow(folder: Path) -> tuple[Cells, list[int], str]:
    """The runs of a local MLflow store: parameters, and the last value of each metric."""
    rows = []
    for metrics in sorted(folder.rglob("metrics")):
        if not metrics.is_dir():
            continue
        row: dict[str, Any] = {"run": metrics.parent.name}
        params = metrics.parent / "params"
        if params.is_dir():
            for file in sorted(params.iterdir()):
                row[file.name] = file.read_text(encoding="utf-8").strip()
        for file in sorted(f for f in metrics.rglob("*") if f.is_file()):
            lines = file.read_text(encoding="utf-8").strip().splitlines()
            if lines:
                row[str(file.relative_to(metrics))] = lines[-1].split()[1]
        rows.append(row)
    if not rows:
        raise InputError(f"{folder} must be an MLflow store; got no runs with metrics.")
    return _columns(rows), list(range(1, len(rows) + 1)), "MLflow runs"


def _columns(rows: list[dict[str, Any]]) -> Cells:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}
