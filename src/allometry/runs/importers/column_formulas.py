"""Arithmetic on columns for `--n-from` and `--d-from`: `12*depth*width^2`; no Python code is run.

Numbers, column names (in backquotes if they have blanks or signs), + - * / ^ and brackets.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError
from allometry._core.number_parsing import numbers
from allometry._core.user_files import shorten

LONGEST = 500
"""Largest length of an expression in characters."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[KMBT](?!\w))?)"
    r"|`(?P<quoted>[^`]+)`|(?P<name>[A-Za-z_][\w./]*)|(?P<sign>\*\*|[-+*/^()]))"
)
_SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "^": 4}


def evaluate(text: str, cells: Mapping[str, Sequence[Any]], option: str) -> Float[ndarray, " n"]:
    """The value of an expression in each row.

    Args:
        text: The expression.
        cells: Columns by name; the last part of a nested name will do if it is unique.
        option: Name of the option, for error messages.

    Raises:
        InputError: It is not an expression, or names no column.
    """
    if len(text) > LONGEST:
        raise InputError(f"{option} must have at most {LONGEST} characters; got {len(text)}.")
    values: list[ndarray] = []
    signs: list[str] = []
    operand = True  # whether a number or a name may come next
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(text, option, shorten(text[at:], 20))
        at = match.end()
        sign = match["sign"]
        if sign is None and operand:
            values.append(_value(match, cells, option))
            operand = False
        elif sign in ("(", "-", "+") and operand:
            if sign != "+":
                signs.append("neg" if sign == "-" else sign)
        elif sign == ")" and not operand:
            while signs and signs[-1] != "(":
                _apply(signs.pop(), values)
            if not signs:
                raise _wrong(text, option, ")")
            signs.pop()
        elif sign not in (None, "(", ")") and not operand:
            sign = "^" if sign == "**" else sign
            while signs and signs[-1] != "(" and _binds(signs[-1], sign):
                _apply(signs.pop(), values)
            signs.append(sign)
            operand = True
        else:
            raise _wrong(text, option, shorten(match[0].strip(), 20))
    if operand or "(" in signs:
        raise _wrong(text, option, "its end")
    while signs:
        _apply(signs.pop(), values)
    return values[0]


def _value(match: re.Match[str], cells: Mapping[str, Sequence[Any]], option: str) -> ndarray:
    rows = len(next(iter(cells.values()), ()))
    if match["number"] is not None:
        text = match["number"]
        scale = _SCALE.get(text[-1], 1.0)
        return np.full(rows, float(text.rstrip("KMBT")) * scale)
    name = match["quoted"] or match["name"]
    if name not in cells:
        ends = [column for column in cells if re.split(r"[./]", column)[-1] == name]
        if len(ends) != 1:
            raise InputError(
                f"{option} must name columns; got {shorten(name, 60)!r}. There are "
                f"{', '.join(map(str, list(cells)[:30]))}."
            )
        name = ends[0]
    return numbers(cells[name])


def _binds(before: str, sign: str) -> bool:
    """Whether the operator on the stack is applied before `sign`; powers associate rightwards."""
    if sign == "^":
        return False
    return _PRECEDENCE[before] >= _PRECEDENCE[sign]


def _apply(sign: str, values: list[ndarray]) -> None:
    right = values.pop()
    with np.errstate(all="ignore"):
        if sign == "neg":
            values.append(-right)
            return
        left = values.pop()
        if sign == "+":
            values.append(left + right)
        elif sign == "-":
            values.append(left - right)
        elif sign == "*":
            values.append(left * right)
        elif sign == "/":
            values.append(left / right)
        else:
            values.append(np.float_power(left, right))


def _wrong(text: str, option: str, where: str) -> InputError:
    return InputError(
        f"{option} must be an expression such as 12*depth*width^2; got {shorten(text, 60)!r}, "
        f"wrong at {where!r}."
    )
