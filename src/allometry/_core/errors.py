"""The errors of the package.

```
AllometryError
├── InputError (ValueError)             invalid input: name, constraint, value, fix
├── UnidentifiedError (ArithmeticError) not identified by the data; see `.estimate`
├── DivergedError (ArithmeticError)     a training loss is not finite
├── StorageError (OSError)              a file or folder can't be read or written
├── LockedError (RuntimeError)          another process uses this study's folder
├── WorkerError (RuntimeError)          worker processes don't start or can't be reached
└── MissingExtraError (ImportError)     an optional dependency is not installed
```
"""

import importlib
from types import ModuleType
from typing import Any


class AllometryError(Exception):
    """Base class of the errors that this package raises."""


class AllometryWarning(UserWarning):
    """A request was carried out differently than asked; the result is still valid."""


class InputError(AllometryError, ValueError):
    """Invalid input. The message has the form "name must constraint; got value. Fix."."""


class UnidentifiedError(AllometryError, ArithmeticError):
    """The data do not identify the requested quantity; `.estimate` has the uncertain value."""

    def __init__(self, message: str, estimate: Any = None) -> None:
        super().__init__(message)
        self.estimate = estimate


class DivergedError(AllometryError, ArithmeticError):
    """A training loss is not finite."""


class StorageError(AllometryError, OSError):
    """A file or folder can't be read or written."""


class LockedError(AllometryError, RuntimeError):
    """Another process uses the same study folder."""


class WorkerError(AllometryError, RuntimeError):
    """Worker processes don't start or can't be reached."""


class MissingExtraError(AllometryError, ImportError):
    """An optional dependency is not installed."""


def require(condition: bool, name: str, constraint: str, got: object, fix: str = "") -> None:
    """Raise `InputError("name must constraint; got value. Fix.")` unless `condition` is true.

    Args:
        condition: The condition.
        name: The constrained argument (`"ladder.rungs"`).
        constraint: Text after "must" (`"be at least 2"`).
        got: The invalid value; shown by `repr`, truncated to 80 characters.
        fix: What to do, as a full sentence.
    """
    if not condition:
        try:
            shown = repr(got)
        except ValueError:  # Python refuses to print very long integers
            shown = f"a number of {got.bit_length()} bits" if isinstance(got, int) else "a value"
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise InputError(f"{name} must {constraint}; got {shown}." + (f" {fix}" if fix else ""))


def require_seed(seed: int, name: str = "seed") -> None:
    """Refuse a seed that numpy's or torch's generators don't accept."""
    require(0 <= seed < 2**63, name, "be a whole number from 0 to 2^63 - 1", seed)


def require_extra(module: str, extra: str) -> ModuleType:
    """Import the optional `module`; if it is missing, raise an error that names its extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed. Install it with: pip install 'allometry[{extra}]'."
        ) from error
