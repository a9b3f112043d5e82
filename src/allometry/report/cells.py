"""Tables as plain cells, for the page and the terminal alike."""

import math
from dataclasses import dataclass
from typing import final

from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt


@final
@dataclass(frozen=True)
class Head:
    """A column head.

    Args:
        text: The column's name.
        unit: Shown below the name.
        kind: CSS classes: `num` (right-aligned), `tight` (no line breaks).
        sorted: Initial sort order as in `aria-sort`; a table that has one can be sorted.
        minor: Left out on a terminal.
    """

    text: str
    unit: str = ""
    kind: str = ""
    sorted: str = "none"
    minor: bool = False


@final
@dataclass(frozen=True)
class Cell:
    """A cell: its text, a muted addition, its sort key, and its CSS classes."""

    text: str
    more: str = ""
    order: float | str | None = None
    kind: str = ""


@final
@dataclass(frozen=True)
class Table:
    """A caption, heads and rows of cells."""

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def sortable(self) -> bool:
        """Whether readers can sort it on the page."""
        return any(head.sorted != "none" for head in self.heads)


def number(x: float | None, write: fmt.Writer) -> Cell:
    """A number that sorts by its value; an em dash if there is none."""
    if x is None or not math.isfinite(x):
        return Cell("—", order="", kind="num")
    return Cell(write(x), order=float(x), kind="num")


def estimate(x: Estimate | None, write: fmt.Writer) -> Cell:
    """A value with its interval."""
    if x is None:
        return Cell("—", order="", kind="num")
    if not math.isfinite(x.value):
        return Cell(fmt.BEYOND, order="", kind="num")
    return Cell(write(x.value), more=f"({fmt.span(x, write)})", order=float(x.value), kind="num")


def whole(x: float) -> str:
    """An integer with thousands separators: 12,345."""
    return f"{x:,.0f}"


def shorten(text: str, most: int) -> str:
    """The text cut to `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
