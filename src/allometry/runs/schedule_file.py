"""The file `schedule.json` of a study folder: which runs are trained in one batch, and how."""

import itertools
import math
from pathlib import Path
from typing import Any

from allometry._core.errors import StorageError
from allometry._core.files import is_key, path_exists, path_inside, read_json

MOST_THREADS = 1 << 12
"""Largest number of threads of a process; a schedule with more is not valid."""

HOW = frozenset({"size", "compiled", "traced", "threads"})
"""The fields of `allometry.study.tasks.ExecutionOptions`; a test compares them."""


def read_schedule(folder: Path) -> dict[str, dict[str, Any]]:
    """The folder's bundles by name, each with its keys, how and work; empty without a schedule.

    Rounding depends on the batch and on the number of threads, so a schedule is not changed: a
    resumed run gives the same digits as an uninterrupted one.
    """
    path = path_inside(folder, "schedule.json")
    if not path_exists(path):
        return {}
    schedule = read_json(path)
    if not isinstance(schedule, dict) or not all(itertools.starmap(_is_bundle, schedule.items())):
        raise StorageError(
            f"Can't read {path}: it is not a schedule. Delete it; the remaining runs are then "
            "scheduled again."
        )
    return schedule


def _is_bundle(name: object, about: object) -> bool:
    """Whether this is a bundle as written by `Schedule.save`."""
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
