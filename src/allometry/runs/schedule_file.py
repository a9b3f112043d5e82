"""The file `schedule.json` of a study folder: which runs are trained together, and how."""

import itertools
import math
from pathlib import Path
from typing import Any

from allometry._core.errors import StorageError
from allometry._core.files import is_key, path_exists, path_inside, read_json

MOST_THREADS = 1 << 12
"""Of a process; a schedule that asks for more is none of ours."""

HOW = frozenset({"size", "compiled", "traced", "threads"})
"""The fields of `allometry.study.tasks.ExecutionOptions`, which a test compares with these."""


def read_schedule(folder: Path) -> dict[str, dict[str, Any]]:
    """The folder's bundles by name, each with its keys, how and work; empty where there are none.

    How a sum is rounded depends on what is packed and on how many threads, so what was once
    decided stays: a resumed run ends in the same digits as an undisturbed one.
    """
    path = path_inside(folder, "schedule.json")
    if not path_exists(path):
        return {}
    said = read_json(path)
    if not isinstance(said, dict) or not all(itertools.starmap(_sound, said.items())):
        raise StorageError(
            f"Can't read {path}: it is not a schedule. Delete it; what is left to do is then "
            "scheduled anew."
        )
    return said


def _sound(name: object, about: object) -> bool:
    """Whether this is a bundle as `Schedule.save` writes it, its names all keys."""
    if not is_key(name) or not isinstance(about, dict):
        return False
    keys, work, how = (about.get(part) for part in ("keys", "work", "how"))
    if not isinstance(keys, list) or not isinstance(work, dict) or not isinstance(how, dict):
        return False
    if not all(map(is_key, keys)) or not set(keys) <= set(work):
        return False
    if not all(type(w) in (int, float) and 0 <= w < math.inf for w in work.values()):
        return False
    if not set(how) <= HOW:
        return False
    size, threads = how.get("size", 1), how.get("threads")
    if type(size) is not int or not 1 <= size <= len(keys):
        return False
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        return False
    return all(type(how.get(name, False)) is bool for name in ("compiled", "traced"))
