"""Profiled step times, kept in the user's cache for machine, software and shape.

Studies of one shape follow each other: only the first pays for profiling. An entry expires, since
machines and their load change, and it is dropped if it is damaged.
"""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from allometry._core.files import atomic_write
from allometry._core.spec import Spec
from allometry._core.user_cache import private_folder
from allometry._core.version import __version__
from allometry.study.request import TrainingRequest
from allometry.study.schedule.measured_costs import machine_name, read_cache

EXPIRES = 7 * 86400.0
"""Seconds after which a shape is profiled again."""

KEPT = 2000
"""Largest number of entries; the oldest are dropped."""

LONG = 1000
"""Number of steps from which on tracing is profiled too."""

FILE = "step_times.json"

COMPILED = {"eager", "compiled", "once", "cold"}
"""Values of an entry about compiled steps."""


def shape_key(spec: Spec, request: TrainingRequest) -> str:
    """Identifies runs that can be vectorised together."""

    def fixed(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: fixed(v) for k, v in value.items() if k not in request.free}

    return json.dumps(fixed(spec.to_dict()), sort_keys=True)


def entry_keys(shapes: Sequence[Sequence[Spec]], conditions: Mapping[str, Any]) -> list[str]:
    """The key of each shape: its runs without seed, length and rate, and the conditions.

    Args:
        shapes: Runs of each shape that are profiled together.
        conditions: Workers, threads, precision and device.
    """
    machine = machine_name(conditions["workers"], conditions["threads"])
    keys = []
    for specs in shapes:
        request = specs[0]()
        if isinstance(request, TrainingRequest):
            about = [shape_key(specs[0], request), len(specs), request.steps >= LONG]
        else:
            about = [specs[0].key]
        content = [machine, __version__, dict(conditions), about]
        keys.append(hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24])
    return keys


def load(keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The stored results of those of `keys` that have one."""
    stored, now = {}, time.time()
    with contextlib.suppress(OSError):
        stored = read_cache(private_folder() / FILE)
    found = {}
    for key in keys:
        entry = stored.get(key)
        if isinstance(entry, dict) and _valid(entry) and 0 <= now - entry["at"] < EXPIRES:
            found[key] = entry["found"]
    return found


def compile_seconds() -> float | None:
    """The median time to compile a shape, over those in the cache; `None` without any."""
    stored: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        stored = read_cache(private_folder() / FILE)
    entries = (e for e in stored.values() if isinstance(e, dict) and _valid(e))
    times = [e["found"]["cold"] for e in entries if set(e["found"]) == COMPILED]
    return median(times) if times else None


def store(results: Mapping[str, dict[str, Any]]) -> None:
    """Add results; an unwritable cache is ignored."""
    if not results:
        return
    with contextlib.suppress(OSError):
        path, now = private_folder() / FILE, time.time()
        entries = {k: e for k, e in read_cache(path).items() if isinstance(e, dict) and _valid(e)}
        entries |= {key: {"at": now, "found": found} for key, found in results.items()}
        newest = sorted(entries.items(), key=lambda item: item[1]["at"])[-KEPT:]
        with atomic_write(path) as file:
            json.dump(dict(newest), file)


def _valid(entry: dict[str, Any]) -> bool:
    """Whether an entry has the values that were written, all of them finite and positive."""
    found = entry.get("found")
    if not _number(entry.get("at")) or not isinstance(found, dict):
        return False
    if set(found) in ({"seconds"}, COMPILED):
        return all(map(_number, found.values())) and found.get("eager") != 0
    if set(found) != {"step", "packed", "measure", "finish", "traced"}:
        return False
    packed, finish = found["packed"], found["finish"]
    if not isinstance(packed, dict) or not all(str(k).isdigit() for k in packed):
        return False
    numbers = [found["step"], found["measure"], found["traced"], *packed.values()]
    return all(map(_number, numbers)) and (finish is None or _number(finish))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0
