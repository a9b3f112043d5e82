"""Parsers of options that take quantities: `--size 7B`, `--compute 1ZFLOP`."""

import typer

from allometry._core.errors import InputError
from allometry._core.quantities import quantity

LARGEST_SEED = 2**32 - 1
"""Largest seed that every random generator in use accepts."""

LARGEST_COUNT = 10**9
"""Largest whole number of any option. Most commands have lower limits of their own."""


def size(text: str | float) -> float:
    """Parse a number of parameters."""
    return _parsed(text, "size")


def data(text: str | float) -> float:
    """Parse a number of tokens."""
    return _parsed(text, "data")


def steps(text: str | float) -> float:
    """Parse a number of steps."""
    if not isinstance(text, str):  # a default
        return text
    try:
        return quantity(text, "data")
    except InputError:
        raise typer.BadParameter(
            f"it must be a positive number, such as 20000 or 20k; got {text[:40]!r}."
        ) from None


def compute(text: str | float) -> float:
    """Parse a number of FLOPs."""
    return _parsed(text, "compute")


def _parsed(text: str | float, kind: str) -> float:
    if not isinstance(text, str):  # a default
        return text
    try:
        return quantity(text, kind)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
