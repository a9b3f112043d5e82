"""Runs of Hugging Face's Trainer: `trainer_state.json` of a run, its checkpoints, or many runs.

Parameters come from the weights' headers (`*.safetensors`) or from `config.json`; tokens from
`num_input_tokens_seen`, or from the Trainer's FLOPs, which are 6 x tokens x parameters without
embeddings.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry._core.user_files import MOST_TABLE, parse_json, read_text
from allometry.runs.importers.model_size import ModelSize, size_of_folder
from allometry.runs.importers.run_log import Logs, RunLog

_CHECKPOINT = re.compile(r"checkpoint-\d+")


def read_states(files: Sequence[Path], root: Path) -> Logs:
    """The runs of `trainer_state.json` files below `root`; checkpoints belong to one run.

    The state with the most steps holds the whole history of its run.
    """
    runs: dict[Path, list[Path]] = {}
    for file in files:
        folder = file.parent
        run = folder.parent if _CHECKPOINT.fullmatch(folder.name) else folder
        runs.setdefault(run, []).append(file)
    logs, notes = [], []
    for folder, states in runs.items():
        read = [(_state(file), file.parent) for file in states]
        state, at = max(read, key=lambda pair: number(pair[0].get("global_step") or 0))
        places = [at, folder, *(place for _, place in read)]
        size = next((s for place in places if (s := size_of_folder(place)) is not None), None)
        below = folder != root and folder.is_relative_to(root)
        name = str(folder.relative_to(root)) if below else folder.resolve().name
        logs.append(_run(state, name, size))
        if size is not None:
            notes.append(f"N counts the parameters in {size.source}, embeddings included.")
    if any(run.config.pop("derived", False) for run in logs):
        notes.append(
            "D follows from the Trainer's FLOPs, 6 x tokens x parameters without embeddings."
        )
    roles = {"N": "parameters"} if any("parameters" in run.config for run in logs) else {}
    if any("tokens" in point for run in logs for point in run.points):
        roles["D"] = "tokens"
    if all(not run.points for run in logs):
        raise InputError(f"{root} must hold evaluations; got a log_history without losses.")
    return Logs(logs, "HF Trainer", roles, list(dict.fromkeys(notes)))


def _state(path: Path) -> dict[str, Any]:
    state = parse_json(read_text(path, MOST_TABLE), str(path))
    log = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(log, list):
        raise InputError(f"{path} must be a trainer_state.json; got no log_history.")
    return state


def _run(state: dict[str, Any], name: str, size: ModelSize | None) -> RunLog:
    most = max(number(state.get("global_step") or 1), 1.0)
    flos = number(state.get("total_flos") or math.nan)
    seen = number(state.get("num_input_tokens_seen") or math.nan)
    config: dict[str, Any] = {"train_batch_size": state.get("train_batch_size")}
    if size is not None:
        config["parameters"] = size.total
    points = []
    for row in state["log_history"]:
        if not isinstance(row, dict):
            continue
        point = {str(k): v for k, v in row.items() if not k.startswith("total_flos")}
        if not number(point.get("num_input_tokens_seen")) > 0:
            point.pop("num_input_tokens_seen", None)
        share = number(row.get("step")) / most
        if flos > 0 and math.isfinite(share):
            point["total_flos"] = flos * share
            if size is not None and size.rest > 0:
                point["tokens"] = flos * share / (6.0 * size.rest)
        if seen > 0 and math.isfinite(share):
            point.setdefault("num_input_tokens_seen", seen * share)
        if "num_input_tokens_seen" in point:
            point["tokens"] = point["num_input_tokens_seen"]
        elif "tokens" in point:
            config["derived"] = True
        # The last row of a training has its mean loss, which is no point of the curve.
        point.pop("train_loss", None)
        if any("loss" in key for key in point):
            points.append(point)
    planned = number(state.get("max_steps") or math.nan)
    return RunLog(name, points, config, "finished" if points else "", planned)
