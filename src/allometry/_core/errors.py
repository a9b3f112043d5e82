"""The errors of the package.

```
AllometryError
├── InputError (ValueError)            a user's mistake: name, constraint, value, fix
├── UnidentifiedError (ArithmeticError) the data can't tell; the doubtful value is on `.estimate`
├── DivergedError (ArithmeticError)    a training left the finite numbers
├── StorageError (OSError)             a file or folder could not be read or written
├── LockedError (RuntimeError)         another process is at work in this study's folder
├── WorkerError (RuntimeError)         nobody can be found to carry runs out
└── MissingExtraError (ImportError)    an optional dependency is absent; names the extra
```
"""

import importlib
from types import ModuleType
from typing import Any


class AllometryError(Exception):
    """Anything this package raises on purpose."""


class AllometryWarning(UserWarning):
    """Something that went otherwise than asked for, and still well."""


class InputError(AllometryError, ValueError):
    """A user's mistake, told as _name must constraint; got value_ and the fix."""


class UnidentifiedError(AllometryError, ArithmeticError):
    """The data do not determine the quantity asked for; `.estimate` holds it all the same."""

    def __init__(self, message: str, estimate: Any = None) -> None:
        super().__init__(message)
        self.estimate = estimate


class DivergedError(AllometryError, ArithmeticError):
    """A training produced a loss that is not finite."""


class StorageError(AllometryError, OSError):
    """A file or folder could not be read or written."""


class LockedError(AllometryError, RuntimeError):
    """Another live process works in the same study folder."""


class WorkerError(AllometryError, RuntimeError):
    """The processes that should carry runs out don't start, or can't be reached."""


class MissingExtraError(AllometryError, ImportError):
    """An optional dependency is not installed."""


def require(holds: bool, name: str, constraint: str, got: object, fix: str = "") -> None:
    """Raise `InputError("name must constraint; got value. Fix.")` unless `holds`.

    Args:
        holds: The condition.
        name: What is constrained, as the caller wrote it (`"ladder.rungs"`).
        constraint: Read after "must" (`"be at least 2"`).
        got: The offending value; shown by `repr`, cut at 80 characters.
        fix: What to do about it, a full sentence.
    """
    if not holds:
        try:
            shown = repr(got)
        except ValueError:  # an integer of more digits than Python writes
            shown = f"a number of {got.bit_length()} bits" if isinstance(got, int) else "a value"
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise InputError(f"{name} must {constraint}; got {shown}." + (f" {fix}" if fix else ""))


def require_seed(seed: int, name: str = "seed") -> None:
    """Refuse a seed that numpy's or torch's generators don't take."""
    require(0 <= seed < 2**63, name, "be a whole number from 0 to 2^63 - 1", seed)


def require_extra(module: str, extra: str) -> ModuleType:
    """The optional `module`, or an error that names the extra which installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed. Install it with: pip install 'allometry[{extra}]'."
        ) from error
