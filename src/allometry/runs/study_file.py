"""The file `study.json` of a study folder. Its content is not trusted and is validated."""

from pathlib import Path
from typing import Any

import orjson

from allometry._core.errors import InputError, StorageError
from allometry._core.files import are_keys, atomic_write, path_exists, path_inside, read_json

_STRINGS = ("name", "target", "unit", "kind", "token", "fingerprint", "question")


def exists(folder: Path) -> bool:
    """Whether the folder has a `study.json`."""
    return path_exists(folder / "study.json")


def read(folder: Path) -> dict[str, Any]:
    """The folder's `study.json`.

    Raises:
        StorageError: It can't be read, or is not valid.
    """
    path = path_inside(folder, "study.json")
    content = read_json(path)
    if (why := _problem(content)) is not None:
        raise StorageError(f"Can't read {path}: {why}. Restore it, or use another folder.")
    return content


def write(folder: Path, about: dict[str, Any]) -> None:
    """Replace the folder's `study.json`; NaN and infinity become null."""
    if (why := _problem(about)) is not None:
        raise InputError(f"A study must describe itself in plain values; {why}.")
    with atomic_write(path_inside(folder, "study.json"), "wb") as file:
        file.write(orjson.dumps(about, option=orjson.OPT_INDENT_2))


def _problem(content: Any) -> str | None:
    """Why the content is not valid; `None` if it is."""
    if not isinstance(content, dict):
        return "it does not hold an object"
    target, runs = content.get("target", {}), content.get("runs", [])
    if not isinstance(target, dict):
        return "its target is not an object"
    if not isinstance(runs, list) or not are_keys(runs):
        return "its runs are not a list of keys"
    former = content.get("former", {})
    if not isinstance(former, dict) or not are_keys([*former, *former.values()]):
        return "its former keys are not a mapping of keys"
    if not isinstance(content.get("versions", {}), dict):
        return "its versions are not an object"
    return _target_problem(target)


def _target_problem(target: dict[str, Any]) -> str | None:
    """Why the description of the target is not valid; `None` if it is."""
    for name in _STRINGS:
        if not isinstance(target.get(name), str | None):
            return f"its target's {name} is not text"
    if not isinstance(target.get("D_unique"), int | float | None):
        return "its target's D_unique is not a number"
    for name in ("tokens", "characters"):
        each = target.get(name)
        if isinstance(each, dict) and not all(isinstance(n, int | float) for n in each.values()):
            return f"its target's {name} are not numbers"
    if target.get("kind") == "points" and not isinstance(target.get("density"), dict):
        return "its target has no density"
    if target.get("kind") == "images":
        shape = target.get("shape")
        levels = target.get("levels")
        if not isinstance(shape, list) or not all(map(_length, shape)):
            return "its target's shape is not a list of lengths"
        if not _length(levels) or levels == 1:
            return "its target's levels are not a whole number above 1"
    return None


def _length(value: object) -> bool:
    return isinstance(value, int) and 0 < value < 1 << 24
