"""Parse numbers in text cells: suffixes, thousands separators and decimal commas.

The meaning of a comma is inferred from the whole file. Ambiguous files are refused: `3,142` alone
may be 3142 or 3.142.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError
from allometry._core.user_files import shorten

LONGEST = 400
"""Largest length of a number in characters."""

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "%": 0.01}
_NUMBER = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([kKmMbBgGtT%]?)$")
_END = r"\s*[kKmMbBgGtT%]?$"
_GROUPED = re.compile(r"^[-+]?[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d*)?" + _END)
_TWO_GROUPS = re.compile(r"^[-+]?\d+,\d+,|^[-+]?\d+,\d{3}\.")
_DECIMAL = re.compile(r"^[-+]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d*(?:[eE][-+]?\d+)?" + _END)
_DOTTED = re.compile(r"^[-+]?[1-9]\d{0,2}(?:\.\d{3})+" + _END)

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-100, 1e100
"""Sizes, computes and losses outside this range are refused: their squares and powers overflow."""


def number(text: Any, decimal: str = ".") -> float:
    """Parse a cell with K, M, B, T suffixes and thousands separators; NaN if it is not a number.

    Args:
        text: The cell.
        decimal: The decimal mark: `"."`, or `","` with points as thousands separators.

    Example:
        >>> number("1.3B"), number("2,048"), number("70 m"), number("3,14")
        (1300000000.0, 2048.0, 70000000.0, nan)
        >>> number("3,14", ","), number("1.300.000", ",")
        (3.14, 1300000.0)
    """
    if text is None or isinstance(text, bool):
        return math.nan
    if isinstance(text, int | float):
        return _float(text)
    cleaned = str(text).strip()
    if len(cleaned) > LONGEST:
        return math.nan
    if decimal == ",":
        if "," in cleaned and not _DECIMAL.match(cleaned):
            return math.nan
        if "," in cleaned or _DOTTED.match(cleaned):
            cleaned = cleaned.replace(".", "")
        cleaned = cleaned.replace(",", ".")
    elif "," in cleaned:
        if not _GROUPED.match(cleaned):
            return math.nan
        cleaned = cleaned.replace(",", "")
    match = _NUMBER.match(cleaned.replace("_", ""))
    if match:
        return float(match.group(1)) * _SUFFIX[match.group(2).lower()]
    return _float(cleaned)


def numbers(values: Sequence[Any], decimal: str = ".") -> ndarray:
    """Parse a column; NaN for a cell that is not a number."""
    if decimal == "." and not any(map(_is_special, values)):
        try:
            column = np.array(values, dtype=float)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if column.ndim == 1:  # cells that are lists would give a matrix
                return column
    return np.array([number(value, decimal) for value in values], dtype=float)


def decimal_mark(
    columns: Mapping[str, Sequence[Any]], small: Collection[str] = ()
) -> tuple[str, list[str]]:
    """The decimal mark of these columns, and a note if commas were interpreted.

    Evidence for a decimal comma: `3,14`, `0,142`, `1.234,5`, or points as thousands separators
    (`1.300.000`). For a decimal point: `1,300,000`, `1,234.5`, or points in other columns.

    Args:
        columns: Cells of the numeric columns, by name.
        small: Columns of small numbers, which have no thousands separators (losses).

    Raises:
        InputError: There is evidence for both, or for neither.
    """
    evidence = {name: _evidence(values) for name, values in columns.items()}
    comma = _first(evidence, "comma") or _first(evidence, "dots")
    point = _first(evidence, "point")
    if comma and point:
        raise InputError(
            f"The columns must use either decimal commas or decimal points; got {comma[1]!r} in "
            f"{comma[0]!r} and {point[1]!r} in {point[0]!r}. Write all numbers the same way."
        )
    if comma:
        for name, kinds in evidence.items():
            if "dotted" in kinds and "dots" not in kinds:
                raise _ambiguous(name, kinds["dotted"], ".")
        return ",", [f"Commas are read as decimal points: {comma[0]!r} has {comma[1]!r}."]
    points = {n for n, kinds in evidence.items() if {"point", "plain", "dotted"} & set(kinds)}
    for name, kinds in evidence.items():
        # Decimal points in other columns settle the commas of this one; points in this column
        # leave both readings possible.
        settled = "point" in kinds or (points and name not in points and name not in small)
        if "either" in kinds and not settled:
            raise _ambiguous(name, kinds["either"], ",")
    example = point or _first(evidence, "either")
    if example is None:
        return ".", []
    return ".", [f"Commas are read as thousands separators: {example[0]!r} has {example[1]!r}."]


def _evidence(values: Sequence[Any]) -> dict[str, str]:
    """The first cell of each kind of evidence."""
    first: dict[str, str] = {}
    for value in values:
        if isinstance(value, str) and ("," in value or "." in value):
            first.setdefault(_kind(value.strip()), shorten(value, 30))
    first.pop("", None)
    return first


def _first(evidence: Mapping[str, Mapping[str, str]], kind: str) -> tuple[str, str] | None:
    return next(((name, kinds[kind]) for name, kinds in evidence.items() if kind in kinds), None)


def _kind(cell: str) -> str:
    if len(cell) > LONGEST:
        return ""
    if "," in cell:
        if _GROUPED.match(cell):
            return "point" if _TWO_GROUPS.match(cell) else "either"
        return "comma" if _DECIMAL.match(cell) and any(map(str.isdigit, cell)) else ""
    if "." in cell:
        if _DOTTED.match(cell):
            return "dots" if cell.count(".") > 1 else "dotted"
        return "plain" if _NUMBER.match(cell) else ""
    return ""


def _ambiguous(name: str, cell: str, mark: str) -> InputError:
    one, other = cell.replace(mark, ""), cell.replace(mark, ".")
    return InputError(
        f"The column {name!r} must say what its {'commas' if mark == ',' else 'points'} mean; "
        f"got {cell!r}, which may be {one} or {other}. Write decimal points and no thousands "
        "separators."
    )


def _is_special(value: Any) -> bool:
    """Whether numpy would convert the value differently than `number`."""
    return isinstance(value, bool) or (isinstance(value, str) and "," in value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan
