"""Options that take amounts as they are printed: `--size 7B`, `--compute 1ZFLOP`."""

import typer

from allometry._core.errors import InputError
from allometry._core.quantities import quantity


def size(text: str | float) -> float:
    """Parameters."""
    return _parsed(text, "size")


def data(text: str | float) -> float:
    """Tokens."""
    return _parsed(text, "data")


def compute(text: str | float) -> float:
    """FLOPs."""
    return _parsed(text, "compute")


def _parsed(text: str | float, kind: str) -> float:
    if not isinstance(text, str):  # a default
        return text
    try:
        return quantity(text, kind)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
