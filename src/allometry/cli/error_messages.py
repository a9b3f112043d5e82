"""Rewrite the library's error messages for the command line: options, not function arguments."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from allometry._core.user_files import exists

_SUBJECT = re.compile(r"^([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?= must )")
_GIVEN = re.compile(r"\b([A-Za-z_]\w*)=(True|False|None|[\w.+-]*\w)")
_QUOTED = re.compile(r"('[^']*'|\"[^\"]*\"|`[^`]*`)")
_OTHERS = {
    "D": ("depth", "tokens"),
    "N": ("size",),
    "examples": ("tokens",),
    "expr": ("name",),
    "f": ("function",),
    "ladder": ("rungs",),
    "paths": ("job",),
    "points": ("tokens",),
    "processes": ("workers",),
    "program": ("name",),
    "unique": ("unique_tokens",),
    "loss": ("reach",),
}
"""Options of commands by the name of the library's argument, if they differ."""

_FILES = frozenset(
    [
        ".csv",
        ".db",
        ".gz",
        ".html",
        ".json",
        ".jsonl",
        ".lark",
        ".npy",
        ".npz",
        ".onnx",
        ".parquet",
        ".png",
        ".py",
        ".safetensors",
        ".svg",
        ".tsv",
        ".txt",
        ".yaml",
        ".yml",
    ]
)
"""Suffixes of files: `runs.csv must ...` names a file, not an argument."""

_WHOLE = {"ray.address": "--executor ray:ADDRESS", "solve.loss": "--reach"}


def plainly(message: str, command: Any) -> str:
    """Replace argument names in an error message by the options of the command.

    Args:
        message: The library's message: `universal.eps must be ...; got None. Pass delta=0.1.`
        command: The click command.

    Returns:
        `--eps must be ...; got nothing. Pass --delta 0.1.`
    """
    flags = {p.name: _shown(p) for p in getattr(command, "params", ())}
    message = _SUBJECT.sub(lambda match: _subject(match[1], flags), message)
    message = re.sub(r"; got None\b", "; got nothing", message)
    message = re.sub(r"\b(?:Posix|Windows)?Path\(('[^']*')\)", r"\1", message)
    return _outside_quotes(message, lambda part: _GIVEN.sub(lambda m: _given(m, flags), part))


def asked(group: Any, words: Sequence[str]) -> Any:
    """The command that the words of a command line name; the whole program if they name none."""
    for word in words:
        inner = getattr(group, "commands", {})
        if not inner:
            break
        group = inner.get(word, group)
    return group


def _shown(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.name.upper()
    return max(parameter.opts, key=len)


def _subject(name: str, flags: dict[str, str]) -> str:
    """The option behind `function.argument`, or the argument's name in words."""
    if name in _WHOLE:
        return _WHOLE[name]
    if Path(name).suffix in _FILES or exists(name):
        return name
    first, _, last = name.partition(".")[0], "", name.rpartition(".")[2]
    for part in (last, *_OTHERS.get(last, ()), first):
        if part in flags:
            return flags[part]
    return last.replace("_", " ") if "." in name else name


def _given(match: re.Match[str], flags: dict[str, str]) -> str:
    name, value = match[1], match[2]
    if name not in flags:
        return match[0]
    return flags[name] if value == "True" else f"{flags[name]} {value}"


def _outside_quotes(text: str, change: Callable[[str], str]) -> str:
    parts = _QUOTED.split(text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))
