"""The words of the language: functions that make expressions."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from allometry._core.errors import require
from allometry.construct.programs.expressions import (
    Aggregate,
    Combine,
    Elementwise,
    Select,
    Selector,
    SequenceOperator,
    Value,
    Width,
    indices,
    number,
)

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def select(
    keys: SequenceOperator | Value,
    queries: SequenceOperator | Value,
    predicate: str | Callable[[Any, Any], bool] = "==",
) -> Selector:
    """Which positions each position looks at: those where `predicate(key, query)` holds.

    Args:
        keys: What is compared at the positions looked at (a plain value: the same everywhere).
        queries: What is compared at the position that looks.
        predicate: "==", "!=", "<", "<=", ">", ">=" read as key, sign, query; or a function.
    """
    known = callable(predicate) or predicate in COMPARISONS
    require(
        known, "select.predicate", f"be a function or one of {' '.join(COMPARISONS)}", predicate
    )
    f = predicate if callable(predicate) else COMPARISONS[predicate]
    name = predicate if isinstance(predicate, str) else "predicate"
    return Select(_operator(keys), _operator(queries), f, name)


def _operator(thing: Any) -> SequenceOperator:
    if isinstance(thing, SequenceOperator):
        return thing
    return Elementwise(lambda _: thing, indices, f"always {thing!r}")


_ALL = Select(_operator(True), _operator(True), operator.eq, "==")


def everything() -> Selector:
    """Selects all positions everywhere."""
    return _ALL


def aggregate(
    selector: Selector, values: SequenceOperator, default: Value = ...
) -> SequenceOperator:
    """What each position selects: the mean of numbers, or the one value of anything else.

    Args:
        selector: Who looks at whom.
        values: Averaged if they are numbers (`values.numeric`). Otherwise all that are selected
            must be equal: where they are not, the program has no answer and says so.
        default: Where nothing is selected; 0 for numbers and `None` otherwise, unless told.
    """
    require(isinstance(selector, Selector), "aggregate.selector", "be a selector", selector)
    fine = isinstance(values, SequenceOperator)
    require(fine, "aggregate.values", "be a sequence operator", values)
    default = (0 if values.numeric else None) if default is ... else default
    if values.numeric:
        number(default, "aggregate.default of numbers")
    return Aggregate(selector, values, default)


def selector_width(selector: Selector) -> SequenceOperator:
    """How many positions each position selects."""
    require(isinstance(selector, Selector), "selector_width", "be given a selector", selector)
    return Width(selector)


def elementwise(
    f: Callable[[Any], Any], inner: SequenceOperator, *, numeric: bool = False
) -> SequenceOperator:
    """`f` at every position.

    Args:
        f: A function of a value.
        inner: The sequence.
        numeric: Whether results are numbers to be averaged by `aggregate`.
    """
    return Elementwise(f, inner, getattr(f, "__name__", "f"), numeric)


def combine(
    f: Callable[[Any, Any], Any], first: SequenceOperator, second: SequenceOperator
) -> SequenceOperator:
    """`f` of two sequences at every position."""
    return Combine(f, first, second, getattr(f, "__name__", "f"))


def numerical(inner: SequenceOperator) -> SequenceOperator:
    """The same values, which are numbers (or booleans, as 0 and 1), to be averaged."""
    return Elementwise(_as_number, inner, "numerical", numeric=True)


def parts(expr: SequenceOperator) -> list[SequenceOperator]:
    """Every expression within `expr`, itself included, each once."""
    found: dict[int, SequenceOperator] = {}

    def visit(thing: SequenceOperator | Selector) -> None:
        if id(thing) in found:
            return
        if isinstance(thing, SequenceOperator):
            found[id(thing)] = thing
        for inner in vars(thing).values():
            for part in inner if isinstance(inner, tuple) else (inner,):
                part = part[1] if isinstance(part, tuple) else part
                if isinstance(part, SequenceOperator | Selector):
                    visit(part)

    visit(expr)
    return list(found.values())


def _as_number(value: Any) -> Fraction | int:
    return int(value) if isinstance(value, bool) else value
