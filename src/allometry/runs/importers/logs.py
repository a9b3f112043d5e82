"""Training logs: W&B histories, HF Trainer states, TensorBoard events, MLflow runs.

A log of one run gives a learning curve, one row per evaluation. A folder of logs gives one row per
run, its last evaluation.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from allometry._core.delimited import Cells, Sheet, from_rows, read_csv
from allometry._core.errors import InputError, require_extra
from allometry._core.number_parsing import number
from allometry._core.user_files import (
    MOST_SMALL,
    MOST_TABLE,
    files_below,
    open_regular,
    parse_json,
    read_text,
)

_STEPS = ("_step", "step", "steps", "global_step")


def is_history(cells: Cells) -> bool:
    """Whether a CSV is the history of one run: it has a nondecreasing step column."""
    for name in _STEPS:
        if name in cells:
            steps = [number(v) for v in cells[name]]
            return len(steps) > 1 and all(a <= b for a, b in pairwise(steps))
    return False


@final
@dataclass(frozen=True)
class FoundLogs:
    """Logs below a folder: TensorBoard's event files, MLflow's folders of metrics."""

    events: list[Path]
    metrics: list[Path]


def below(folder: Path) -> FoundLogs:
    """The logs below a folder, found in one bounded walk."""
    events, metrics = [], {}
    for path in files_below(folder, lambda _: True):
        if path.name.startswith("events.out.tfevents."):
            events.append(path)
        parts = path.relative_to(folder).parts[:-1]
        if "metrics" in parts:
            metrics[folder.joinpath(*parts[: parts.index("metrics") + 1])] = None
    return FoundLogs(events, list(metrics))


def histories(folder: Path) -> Sheet:
    """The last row of each W&B history in a folder; a size may come from the file's name."""
    rows: list[dict[str, Any]] = []
    for path in sorted(p for p in folder.glob("*.csv") if p.is_file()):
        sheet = read_csv(path)
        if sheet.bad:
            first = min(sheet.bad)
            raise InputError(
                f"{path} must be a table; line {sheet.lines[first]}: {sheet.bad[first]}."
            )
        last = {name: _last(values) for name, values in sheet.cells.items()}
        last = {name: value for name, value in last.items() if name not in sheet.twice}
        rows.append({"run": path.stem} | _from_name(path.stem) | last)
    if not rows:
        raise InputError(f"{folder} must hold CSV histories; got none.")
    return from_rows(rows, "folder of W&B histories")


def _last(values: Any) -> Any:
    """The last nonempty cell."""
    return next(
        (v for v in reversed(list(values)) if str(v).strip() not in ("", "nan", "None")), ""
    )


def _from_name(stem: str) -> dict[str, float]:
    """A size such as 190M or 1.3B at the start of a run's name."""
    match = re.match(r"(\d+(?:\.\d+)?)([KMB])(?![a-zA-Z])", stem)
    return {"params (from name)": number(match.group(0))} if match else {}


def trainer_state(path: Path) -> Sheet:
    """The evaluations in a Hugging Face `trainer_state.json`, one row each."""
    state = parse_json(read_text(path, MOST_TABLE), str(path))
    log = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(log, list):
        raise InputError(f"{path} must be a trainer_state.json; got no log_history.")
    log = [row for row in log if isinstance(row, dict)]
    key = "eval_loss" if any("eval_loss" in row for row in log) else "loss"
    rows = []
    most = max(number(state.get("global_step") or 1), 1.0)
    for row in log:
        if key not in row:
            continue
        seen = row.get("num_input_tokens_seen")
        cells = {"step": row.get("step"), "loss": row[key]}
        cells["tokens"] = seen if seen else None
        if state.get("total_flos") and row.get("step"):
            cells["total_flos"] = number(state["total_flos"]) * number(row["step"]) / most
        rows.append(cells)
    if not rows:
        raise InputError(f"{path} must hold evaluations; got a log_history without losses.")
    return from_rows(rows, "HF trainer state")


def tensorboard(path: Path, files: Sequence[Path] = ()) -> Sheet:
    """The scalars of a TensorBoard event file, or of `files` below the folder `path`."""
    require_extra("tensorboard", "tensorboard")
    tables: dict[Path, dict[float, dict[str, Any]]] = {}
    for file in files or [path]:
        # A resumed run has several files in its folder.
        table = tables.setdefault(file.parent, {})
        for tag, step, value in _scalars(file):
            table.setdefault(step, {"step": step})[tag] = value
    runs = [[table[step] for step in sorted(table)] for table in tables.values()]
    runs = [rows for rows in runs if rows]
    if not runs:
        raise InputError(f"{path} must hold TensorBoard scalars; got none.")
    if len(runs) == 1:
        return from_rows(runs[0], "TensorBoard events")
    merged = []
    for rows in runs:
        last: dict[str, Any] = {}
        for row in rows:
            last |= row
        merged.append(last)
    return from_rows(merged, "TensorBoard runs")


def _scalars(file: Path) -> list[tuple[str, int, float]]:
    """Tag, step and value of every scalar up to the first damaged record."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # Its reader passes lengths from the file to malloc, so they are checked first.
    _require_records(file)
    log = EventAccumulator(str(file), size_guidance={"scalars": 0})
    try:
        log.Reload()
        return [
            (tag, event.step, event.value)
            for tag in log.Tags()["scalars"]
            for event in log.Scalars(tag)
        ]
    # protobuf's and TensorFlow's errors have no narrower common base.
    except Exception as error:
        raise InputError(f"{file} must be a TensorBoard event file; it is damaged.") from error


def _require_records(file: Path) -> None:
    """Refuse a file that does not consist of records; a torn last one is allowed."""
    with open_regular(file, MOST_TABLE) as data:
        size, at = file.stat().st_size, 0
        while at + 12 <= size:
            data.seek(at)
            (length,) = struct.unpack("<Q", data.read(8))
            if length > size:
                raise InputError(
                    f"{file} must be a TensorBoard event file; got a record of {length} bytes at "
                    f"{at} in a file of {size}."
                )
            at += 16 + length


def mlflow(folder: Path, found: Sequence[Path]) -> Sheet:
    """The runs of a local MLflow store: parameters, and the last value of each metric.

    Args:
        folder: The store.
        found: Its folders of metrics.
    """
    rows = []
    for metrics in found:
        row: dict[str, Any] = {"run": metrics.parent.name}
        params = metrics.parent / "params"
        if params.is_dir():
            for file in files_below(params, lambda _: True):
                row[file.name] = read_text(file, MOST_SMALL).strip()
        for file in files_below(metrics, lambda _: True):
            lines = read_text(file, MOST_TABLE).strip().splitlines()
            parts = lines[-1].split() if lines else []
            if len(parts) >= 2:
                row[str(file.relative_to(metrics))] = parts[1]
        rows.append(row)
    if not rows:
        raise InputError(f"{folder} must be an MLflow store; got no runs with metrics.")
    return from_rows(rows, "MLflow runs")
