"""How a run ended, in plain values: whatever it gave or raised, its line can be written."""

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
"""Characters of a reason at most; an exception may hold a whole file."""

MOST = 1_000_000
"""Numbers of one array at most."""

DEEPEST = 16
"""Lists and mappings inside one another at most."""

LARGEST = 64 << 20
"""Bytes of one run's result at most: it becomes one line of the journal."""

RESERVED = ("key", "status", "error", "versions", "measures", "sample", "packing")
"""Columns that the study writes itself; a run can't set them."""


def done(outcome: Any) -> dict[str, Any]:
    """The event of a run that finished with `outcome`.

    Scalars and arrays of numpy and torch become plain numbers and lists.

    Args:
        outcome: An `Outcome`, if the run keeps to what is asked of it.

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


def failed(error: BaseException) -> dict[str, Any]:
    """The event of a run that raised `error`."""
    if isinstance(error, StorageError):
        # Not this run's fault, and the next one would meet it too: the study must stop.
        return {"event": "failed", "status": "storage", "error": reason(error)}
    status = "diverged" if isinstance(error, DivergedError) else "failed"
    return {"event": "failed", "status": status, "error": reason(error)}


def reason(error: BaseException) -> str:
    """What an exception says, even one that fails at saying it, cut to a readable length."""
    name = type(error).__name__
    try:
        said = _text(str(error))
    except BaseException as second:  # whatever an exception's own code raises
        return f"{name}, whose message can't be read ({type(second).__name__})"
    if not said:
        return name
    if len(said) > LONGEST:
        said = f"{said[:LONGEST]}... ({len(said):,} characters in all)"
    return said if isinstance(error, AllometryError) else f"{name}: {said}"


def progress(key: str, at: Progress) -> dict[str, Any] | None:
    """The event of a run's progress; `None` where it is made of no proper numbers."""
    try:
        step, steps, loss = float(at.step), float(at.steps), float(at.loss)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if not (math.isfinite(step) and math.isfinite(loss) and 0 < steps < math.inf):
        return None
    return {"event": "progress", "key": key, "step": int(step), "steps": int(steps), "loss": loss}


def plain(value: Any, where: str, *, lenient: bool = False) -> Any:
    """`value` in what JSON has: numbers, words, lists and mappings.

    Args:
        value: Of a run.
        where: What it is called, for the error.
        lenient: Leave out what can't be written, for the record of a run that failed anyway.

    Raises:
        DivergedError: A number is not finite.
        InputError: It is something else.
    """
    return _plain(value, where, lenient, DEEPEST)


def _plain(value: Any, where: str, lenient: bool, deeper: int) -> Any:
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
        return None if size > MOST else _plain(value.tolist(), where, lenient, deeper)
    if deeper == 0 and not lenient:
        name = where.partition("[")[0]
        raise InputError(f"{name} must be nested at most {DEEPEST} deep; got more.")
    if isinstance(value, Mapping) and deeper:
        inside = {k if not where else f"{where}[{k!r}]": (k, v) for k, v in value.items()}
        return {
            _name(k): _plain(v, str(name), lenient, deeper - 1) for name, (k, v) in inside.items()
        }
    if isinstance(value, list | tuple) and deeper:
        return [_plain(v, f"{where}[{i}]", lenient, deeper - 1) for i, v in enumerate(value)]
    if lenient:
        return None
    made = "be made of numbers, strings, lists and mappings"
    raise InputError(f"{where} must {made} to be written to the journal; got {_kind(value)}.")


def _number(value: Any, where: str, lenient: bool) -> int | float | None:
    if isinstance(value, numbers.Integral) and -(2**63) <= int(value) < 2**63:
        return int(value)
    try:
        found = float(value)
    except (OverflowError, ValueError):
        found = math.inf
    if math.isfinite(found):
        return found
    if lenient:
        return None
    raise DivergedError(f"{where} of the result is {found}, which is not finite.")


def _text(words: str) -> str:
    """Without halves of characters, which no file can hold (names of files may have them)."""
    return str(words).encode("utf-8", "replace").decode()


def _name(name: Any) -> str:
    if isinstance(name, str | int | float | np.generic):
        return _text(str(name))
    raise InputError(f"names in a result must be strings; got {_kind(name)}.")


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _curve(curve: Mapping[str, Any]) -> dict[str, list[float]]:
    made = {_name(name): plain(values, f"curve {name}") for name, values in curve.items()}
    for name, values in made.items():
        if not isinstance(values, list):
            raise InputError(f"curve {name} must be a list of numbers; got {_kind(values)}.")
        for value in values:
            _check_column(f"curve {name}", value, "numbers")
    lengths = {name: len(values) for name, values in made.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the lists of a curve must be equally long; got {lengths}.")
    return made


def _check_column(name: str, value: Any, what: str = "a number or None") -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number and not (value is None and what != "numbers"):
        raise InputError(f"{name} must be {what}; got {_kind(value)}.")


def _measure(name: str, estimate: Any) -> dict[str, Any]:
    if not isinstance(estimate, Estimate):
        raise InputError(f"the measure {name} must be an Estimate; got {_kind(estimate)}.")
    return plain(estimate.to_dict(), f"measure {name}")
