"""Lines that scripts print: nanoGPT, modded-nanogpt, torchtitan, Megatron and llm-foundry."""

import re
from pathlib import Path
from typing import Any

from allometry._core.delimited import table_text
from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry.runs.importers.run_log import RunLog

_NUMBER = r"([-+0-9.,eE]+|nan|inf)"
_POINTS = {
    "nanoGPT": re.compile(rf"step (\d+): train loss {_NUMBER}, val loss {_NUMBER}"),
    "modded-nanogpt": re.compile(rf"s?tep:(\d+)/(\d+) val_loss:{_NUMBER}"),
    "torchtitan": re.compile(rf"step: +(\d+) .{{0,40}}?loss: +{_NUMBER}"),
    "Megatron": re.compile(rf"iteration +(\d+)/ *(\d+) \|.{{0,400}}?lm loss: {_NUMBER}"),
}
_SETTINGS = {
    "parameters": re.compile(
        r"number of parameters: ([\d.,]+[MBK]?)|size: ([\d,]+) total param|"
        r"(?:^|\s)n_(?:total_)?params: ([\d,]+)"
    ),
    "tokens_per_step": re.compile(r"tokens per iteration will be: ([\d,]+)"),
    "global_batch_size": re.compile(r"global(?:_train)?[_ ]batch[_ ]size[ .:=]+(\d+)"),
    "seq_length": re.compile(r"seq(?:uence|_)?[_ ]?len(?:gth)?[ .:=]+(\d+)"),
}
_HEADER = re.compile(r"\[batch=(\d+)/(\d+)\]:")
"""Composer's header of the values of one batch; the values follow on lines of their own."""
_VALUE = re.compile(rf"^\s+(Train|Eval) ([\w/. -]{{1,200}}): {_NUMBER}\s*$")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read_text_log(path: Path) -> RunLog | None:
    """The training that a log describes; `None` if no line is known."""
    points: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    total = float("nan")
    for raw in table_text(path).splitlines():
        line = _COLOURS.sub("", raw[:2000])
        for name, pattern in _SETTINGS.items():
            if name not in config and (match := pattern.search(line)):
                config[name] = number(next(part for part in match.groups() if part))
        if header := _HEADER.search(line):
            points.append({"step": number(header[1])})
            total = number(header[2])
            continue
        if (value := _VALUE.match(line)) and points:
            points[-1][_composer_name(value[1], value[2])] = number(value[3])
            continue
        for kind, pattern in _POINTS.items():
            match = pattern.search(line)
            if match is None:
                continue
            point: dict[str, Any] = {"step": number(match[1])}
            if kind == "nanoGPT":
                point |= {"train_loss": number(match[2]), "val_loss": number(match[3])}
            elif kind == "torchtitan":
                point["loss"] = number(match[2])
            else:
                total = number(match[2])
                key = "val_loss" if kind == "modded-nanogpt" else "lm loss"
                point[key] = number(match[3].rstrip("."))
            points.append(point)
            break
    return RunLog(path.stem, points, config, "", total) if points else None


def _composer_name(part: str, name: str) -> str:
    """The name of a value that Composer printed, with the data set in it."""
    name = name.removeprefix("metrics/")
    return name if part.lower() in name.lower() or "/" in name else f"{part.lower()}/{name}"


def require_text_log(path: Path) -> RunLog:
    """As `read_text_log`; a file without known lines is refused."""
    run = read_text_log(path)
    if run is None:
        raise InputError(
            f"{path} must hold lines of nanoGPT, modded-nanogpt, torchtitan, Megatron or "
            "llm-foundry; got none."
        )
    return run
