"""The library's errors in the words of the command line: options, not arguments of functions."""

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
"""What a function calls otherwise than its command does."""

_FILES = frozenset(
    [
        *(".csv", ".db", ".gz", ".html", ".json", ".jsonl", ".lark", ".npy", ".npz", ".onnx"),
        *(".parquet", ".png", ".py", ".safetensors", ".svg", ".tsv", ".txt", ".yaml", ".yml"),
    ]
)
"""How files are called, that errors also speak of."""

_WHOLE = {"ray.address": "--executor ray:ADDRESS", "solve.loss": "--reach"}


def plainly(message: str, command: Any) -> str:
    """An error's sentence as one who typed a command would say it.

    Args:
        message: As the library says it: `universal.eps must be ...; got None. Pass delta=0.1.`
        command: What was typed, with its parameters.

    Returns:
        `--eps must be ...; got nothing. Pass --delta 0.1.`
    """
    flags = {p.name: _shown(p) for p in getattr(command, "params", ())}
    message = _SUBJECT.sub(lambda found: _subject(found[1], flags), message)
    message = re.sub(r"; got None\b", "; got nothing", message)
    message = re.sub(r"\b(?:Posix|Windows)?Path\(('[^']*')\)", r"\1", message)
    return _outside_quotes(message, lambda part: _GIVEN.sub(lambda f: _given(f, flags), part))


def asked(group: Any, words: Sequence[str]) -> Any:
    """The command that a line of words means; the whole program where they mean none."""
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


def _given(found: re.Match[str], flags: dict[str, str]) -> str:
    name, value = found[1], found[2]
    if name not in flags:
        return found[0]
    return flags[name] if value == "True" else f"{flags[name]} {value}"


def _outside_quotes(text: str, change: Callable[[str], str]) -> str:
    parts = _QUOTED.split(text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))
