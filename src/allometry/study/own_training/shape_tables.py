"""The shapes of a command's runs: rows of a table, or a rule.

A rule is a list of assignments, each from numbers or from an expression of those before:
`width=64,128,256; depth=width/64; N=12*depth*width^2; steps=2000`. Several lists of numbers make
all combinations.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError, require
from allometry._core.number_parsing import number

MOST = 10_000
"""Largest number of shapes."""

Shape = dict[str, Any]


def shapes_of(text: str) -> list[Shape]:
    """The shapes that a table file or a rule gives, in its order."""
    if "=" in text and not Path(text).exists():
        return from_rule(text)
    return from_table(Path(text))


def from_table(path: Path) -> list[Shape]:
    """One shape per row of a CSV, TSV or JSON-lines file."""
    from allometry._core.delimited import Sheet
    from allometry.runs.importers import formats

    fix = "Give a CSV file with a column per placeholder, or a rule such as 'width=64,128,256'."
    require(path.is_file(), "shapes", "be a table or a rule", str(path), fix)
    sheet = formats.read(path)
    if not isinstance(sheet, Sheet):
        raise InputError(f"shapes must be a table; got {path}, which is a log.")
    names = list(sheet.cells)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*sheet.cells.values(), strict=True)]
    require(0 < len(rows) <= MOST, "shapes", f"have 1 to {MOST:,} rows", len(rows))
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def from_rule(text: str) -> list[Shape]:
    """All combinations of the rule's lists, with its expressions evaluated."""
    shapes: list[Shape] = [{}]
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        fix = "Write 'width=64,128,256; depth=width/64'."
        require(bool(sign and name.isidentifier() and value), "shapes", "be a rule", part, fix)
        listed = [piece.strip() for piece in value.split(",")]
        if all(math.isfinite(number(piece)) for piece in listed):
            choices: Sequence[Any] = [plain(piece) for piece in listed]
            pairs = itertools.product(shapes, choices)
            shapes = [shape | {name: choice} for shape, choice in pairs]
        else:
            shapes = [shape | {name: _evaluated(value, shape)} for shape in shapes]
        require(len(shapes) <= MOST, "shapes", f"give at most {MOST:,} shapes", len(shapes))
    return shapes


def _evaluated(text: str, shape: Mapping[str, Any]) -> float | int:
    from allometry.runs.importers import column_formulas

    text = text.replace("/", " / ")  # a slash may be part of a column's name, not here
    value = float(column_formulas.evaluate(text, {k: [v] for k, v in shape.items()}, "shapes")[0])
    require(math.isfinite(value), "shapes", "give finite numbers", f"{text} = {value}")
    return plain(value)


def plain(value: Any) -> Any:
    """A cell as an integer, a number or text; whole numbers lose their `.0`."""
    found = number(value)
    if not math.isfinite(found):
        return str(value).strip()
    return int(found) if found == int(found) and abs(found) < 2**53 else found
