"""Results of runs as plain values: any outcome or exception can be written to the journal."""

import json
import math
import numbers
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from torch import Tensor

from allometry._core.errors import AllometryError, DivergedError, InputError, StorageError
from allometry._core.estimate import Estimate
from allometry.study.request import Outcome
from allometry.train.loop import Progress

LONGEST = 2_000
"""Largest number of characters of an error; an exception may contain a whole file."""

MOST = 1_000_000
"""Largest number of elements of an array."""

DEEPEST = 16
"""Largest nesting depth of lists and mappings."""

LARGEST = 64 << 20
"""Largest size of a run's result in bytes: it becomes one line of the journal."""

RESERVED = ("key", "status", "error", "versions", "measures", "sample", "packing")
"""Columns that the study writes; a run can't set them."""


def done_event(outcome: Any) -> dict[str, Any]:
    """The event of a run that finished with `outcome`.

    Scalars and arrays of numpy and torch become plain numbers and lists.

    Args:
        outcome: An `Outcome`, if the run is valid.

    Raises:
        DivergedError: A number in it is not finite.
        InputError: Something in it can't be written to a journal.
    """
    if not isinstance(outcome, Outcome):
        raise InputError(f"a run must return an Outcome; got {_kind(outcome)}.")
    columns = plain(outcome.columns, "")
    _check_column("loss", columns.get("loss"))
    if not isinstance(outcome.sample, str):
        raise InputError(f"Outcome.sample must be a string; got {_kind(outcome.sample)}.")
    event = {
        "event": "done",
        "columns": columns,
        "curve": _curve(outcome.curve),
        "sample": plain(outcome.sample, "sample"),
        "measures": {_name(k): _measure(k, e) for k, e in outcome.measures.items()},
    }
    size = len(json.dumps(event, ensure_ascii=False, allow_nan=False).encode())
    if size > LARGEST:
        most = f"be at most {LARGEST >> 20} MB"
        raise InputError(f"a run's result must {most}; got {size / (1 << 20):.0f} MB.")
    return event


def failure_event(error: BaseException) -> dict[str, Any]:
    """The event of a run that raised `error`."""
    if isinstance(error, StorageError):
        # The next run would fail too: the study must stop.
        return {"event": "failed", "status": "storage", "error": reason(error)}
    status = "diverged" if isinstance(error, DivergedError) else "failed"
    return {"event": "failed", "status": status, "error": reason(error)}


def reason(error: BaseException) -> str:
    """The message of an exception, truncated; also for exceptions whose `__str__` fails."""
    name = type(error).__name__
    try:
        message = _text(str(error))
    except BaseException as second:  # anything that the exception's own code raises
        return f"{name}, whose message can't be read ({type(second).__name__})"
    if not message:
        return name
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}... ({len(message):,} characters in all)"
    return message if isinstance(error, AllometryError) else f"{name}: {message}"


def progress_event(key: str, at: Progress) -> dict[str, Any] | None:
    """The event of a run's progress; `None` if its numbers are not finite."""
    try:
        step, steps, loss = float(at.step), float(at.steps), float(at.loss)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if not (math.isfinite(step) and math.isfinite(loss) and 0 < steps < math.inf):
        return None
    return {"event": "progress", "key": key, "step": int(step), "steps": int(steps), "loss": loss}


def plain(value: Any, where: str, *, lenient: bool = False) -> Any:
    """`value` as JSON values: numbers, strings, lists and mappings.

    Args:
        value: From a run.
        where: Its name, for the error.
        lenient: Omit what can't be written, for the record of a failed run.

    Raises:
        DivergedError: A number is not finite.
        InputError: It is of another type.
    """
    return _plain(value, where, lenient, DEEPEST)


def _plain(value: Any, where: str, lenient: bool, depth: int) -> Any:
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, numbers.Real | Decimal):
        return _number(value, where, lenient)
    if isinstance(value, np.ndarray | Tensor):
        size = value.size if isinstance(value, np.ndarray) else value.numel()
        if size > MOST and not lenient:
            raise InputError(f"{where} must have at most {MOST:,} numbers; got {size:,}.")
        return None if size > MOST else _plain(value.tolist(), where, lenient, depth)
    if depth == 0 and not lenient:
        name = where.partition("[")[0]
        raise InputError(f"{name} must be nested at most {DEEPEST} deep; got more.")
    if isinstance(value, Mapping) and depth:
        items = {k if not where else f"{where}[{k!r}]": (k, v) for k, v in value.items()}
        return {
            _name(k): _plain(v, str(name), lenient, depth - 1) for name, (k, v) in items.items()
        }
    if isinstance(value, list | tuple) and depth:
        return [_plain(v, f"{where}[{i}]", lenient, depth - 1) for i, v in enumerate(value)]
    if lenient:
        return None
    types = "be made of numbers, strings, lists and mappings"
    raise InputError(f"{where} must {types} to be written to the journal; got {_kind(value)}.")


def _number(value: Any, where: str, lenient: bool) -> int | float | None:
    if isinstance(value, numbers.Integral) and -(2**63) <= int(value) < 2**63:
        return int(value)
    try:
        number = float(value)
    except (OverflowError, ValueError):
        number = math.inf
    if math.isfinite(number):
        return number
    if lenient:
        return None
    raise DivergedError(f"{where} of the result is {number}, which is not finite.")


def _text(text: str) -> str:
    """Without lone surrogates, which can't be encoded (file names may have them)."""
    return str(text).encode("utf-8", "replace").decode()


def _name(name: Any) -> str:
    if isinstance(name, str | int | float | np.generic):
        return _text(str(name))
    raise InputError(f"names in a result must be strings; got {_kind(name)}.")


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _curve(curve: Mapping[str, Any]) -> dict[str, list[float]]:
    lists = {_name(name): plain(values, f"curve {name}") for name, values in curve.items()}
    for name, values in lists.items():
        if not isinstance(values, list):
            raise InputError(f"curve {name} must be a list of numbers; got {_kind(values)}.")
        for value in values:
            _check_column(f"curve {name}", value, "numbers")
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the lists of a curve must be equally long; got {lengths}.")
    return lists


def _check_column(name: str, value: Any, what: str = "a number or None") -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number and not (value is None and what != "numbers"):
        raise InputError(f"{name} must be {what}; got {_kind(value)}.")


def _measure(name: str, estimate: Any) -> dict[str, Any]:
    if not isinstance(estimate, Estimate):
        raise InputError(f"the measure {name} must be an Estimate; got {_kind(estimate)}.")
    return plain(estimate.to_dict(), f"measure {name}")
