"""Keras: `History.history` written as JSON, lists of values by metric, one value per epoch."""

from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry.runs.importers.run_log import Logs, RunLog

MOST_EPOCHS = 10_000_000
"""Largest number of epochs."""


def is_history(data: Any) -> bool:
    """Whether JSON is a history: an object of lists of numbers, one of them a loss."""
    if isinstance(data, dict) and isinstance(data.get("history"), dict):
        data = data["history"]
    return isinstance(data, dict) and any(
        "loss" in str(name) and isinstance(values, list) for name, values in data.items()
    )


def read_history(data: dict[str, Any], path: Path) -> RunLog:
    """The training that a history describes; other scalars are its settings."""
    settings = {k: v for k, v in data.items() if isinstance(v, str | int | float)}
    if isinstance(data.get("params"), dict):
        inner = data["params"].items()
        settings |= {k: v for k, v in inner if isinstance(v, str | int | float)}
    history = data["history"] if isinstance(data.get("history"), dict) else data
    columns = {str(k): v for k, v in history.items() if isinstance(v, list)}
    count = max(map(len, columns.values()), default=0)
    if not 0 < count <= MOST_EPOCHS:
        raise InputError(f"{path} must hold a history of epochs; got {count}.")
    epochs = history["epoch"] if isinstance(history.get("epoch"), list) else range(1, count + 1)
    points: list[dict[str, Any]] = []
    for i in range(count):
        point = {name: values[i] for name, values in columns.items() if i < len(values)}
        if "epoch" not in columns:
            point["epoch"] = epochs[i]
        points.append(point)
    return RunLog(path.stem, points, settings)


def read_histories(found: dict[Path, dict[str, Any]]) -> Logs:
    """One run for each history."""
    return Logs([read_history(data, path) for path, data in found.items()], "Keras History")
