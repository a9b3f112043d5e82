"""Numbers in cells of text: suffixes, thousands separators, and commas that are decimal points.

What a comma means is decided by the evidence of a whole file, and refused where there is none:
`3,142` alone may be 3142 or 3.142.
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
"""Characters of the longest number."""

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "%": 0.01}
_NUMBER = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([kKmMbBgGtT%]?)$")
_END = r"\s*[kKmMbBgGtT%]?$"
_GROUPED = re.compile(r"^[-+]?[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d*)?" + _END)
_TWO_GROUPS = re.compile(r"^[-+]?\d+,\d+,|^[-+]?\d+,\d{3}\.")
_DECIMAL = re.compile(r"^[-+]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d*(?:[eE][-+]?\d+)?" + _END)
_DOTTED = re.compile(r"^[-+]?[1-9]\d{0,2}(?:\.\d{3})+" + _END)


def number(text: Any, decimal: str = ".") -> float:
    """The number in a cell, with K, M, B, T suffixes and thousands separators; NaN if none.

    Args:
        text: The cell.
        decimal: What parts the fraction off: `"."`, or `","` with points between thousands.

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
    """The numbers of a column; NaN for a cell without one."""
    if decimal == "." and not any(map(_special, values)):
        try:
            made = np.array(values, dtype=float)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if made.ndim == 1:  # lists in cells would make it a matrix
                return made
    return np.array([number(value, decimal) for value in values], dtype=float)


def decimal_mark(
    columns: Mapping[str, Sequence[Any]], small: Collection[str] = ()
) -> tuple[str, list[str]]:
    """What parts the fraction off in these columns, and a sentence where commas were read.

    Evidence for a decimal comma: `3,14`, `0,142`, `1.234,5`, or points between all thousands
    (`1.300.000`). For a decimal point: `1,300,000`, `1,234.5`, or points in other columns.

    Args:
        columns: Cells of the numeric columns, by name.
        small: Columns of numbers that no thousands are to be expected in (losses).

    Raises:
        InputError: There is evidence for both, or for neither.
    """
    found = {name: _evidence(values) for name, values in columns.items()}
    comma = _first(found, "comma") or _first(found, "dots")
    point = _first(found, "point")
    if comma and point:
        raise InputError(
            f"The columns must use either decimal commas or decimal points; got {comma[1]!r} in "
            f"{comma[0]!r} and {point[1]!r} in {point[0]!r}. Write all numbers the same way."
        )
    if comma:
        for name, kinds in found.items():
            if "dotted" in kinds and "dots" not in kinds:
                raise _ambiguous(name, kinds["dotted"], ".")
        return ",", [f"Commas are read as decimal points: {comma[0]!r} has {comma[1]!r}."]
    points = {name for name, kinds in found.items() if {"point", "plain", "dotted"} & set(kinds)}
    for name, kinds in found.items():
        # Points elsewhere tell what commas are; points among them make either possible.
        told = "point" in kinds or (points and name not in points and name not in small)
        if "either" in kinds and not told:
            raise _ambiguous(name, kinds["either"], ",")
    read = point or _first(found, "either")
    said = "" if read is None else f"{read[0]!r} has {read[1]!r}"
    return ".", [f"Commas are read as thousands separators: {said}."] if said else []


def _evidence(values: Sequence[Any]) -> dict[str, str]:
    """For each kind of evidence the first cell that shows it."""
    found: dict[str, str] = {}
    for value in values:
        if isinstance(value, str) and ("," in value or "." in value):
            found.setdefault(_kind(value.strip()), shorten(value, 30))
    found.pop("", None)
    return found


def _first(found: Mapping[str, Mapping[str, str]], kind: str) -> tuple[str, str] | None:
    return next(((name, kinds[kind]) for name, kinds in found.items() if kind in kinds), None)


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
        f"The column {name!r} must say what its {'commas' if mark == ',' else 'points'} mean; got "
        f"{cell!r}, which may be {one} or {other}. Write decimal points and no thousands "
        "separators."
    )


def _special(value: Any) -> bool:
    """What numpy would take for another number, or for one that it is not."""
    return isinstance(value, bool) or (isinstance(value, str) and "," in value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan
