"""Functions that create expressions of the language."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from allometry._core.errors import require
from allometry.construct.programs.expressions import (
    Aggregate,
    Combine,
    Elementwise,
    Latest,
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
    """Select the positions for which `predicate(key, query)` is true.

    Args:
        keys: Values at the selected positions (a plain value is the same everywhere).
        queries: Values at the selecting position.
        predicate: "==", "!=", "<", "<=", ">", ">=" as in key < query; or a function.
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
    """The selector of all positions."""
    return _ALL


def latest(selector: Selector) -> Selector:
    """The last of the positions that `selector` selects, for `aggregate`.

    In a causal program this is the most recent one: the last write to a cell, the last opening
    bracket of a depth.
    """
    require(isinstance(selector, Selector), "latest", "be given a selector", selector)
    return Latest(selector)


def earliest(selector: Selector) -> Selector:
    """The first of the positions that `selector` selects, for `aggregate`."""
    require(isinstance(selector, Selector), "earliest", "be given a selector", selector)
    return Latest(selector, first=True)


def aggregate(
    selector: Selector, values: SequenceOperator, default: Value = ...
) -> SequenceOperator:
    """The mean of the selected numbers, or the common value of other selected values.

    Args:
        selector: The selected positions.
        values: Averaged if they are numeric (`values.numeric`). Otherwise all selected values must
            be equal; if they are not, the program raises an error.
        default: Value if nothing is selected. Default: 0 for numbers and `None` otherwise.
    """
    require(isinstance(selector, Selector), "aggregate.selector", "be a selector", selector)
    is_operator = isinstance(values, SequenceOperator)
    require(is_operator, "aggregate.values", "be a sequence operator", values)
    default = (0 if values.numeric else None) if default is ... else default
    if values.numeric:
        number(default, "aggregate.default of numbers")
    return Aggregate(selector, values, default)


def selector_width(selector: Selector) -> SequenceOperator:
    """The number of positions that each position selects."""
    require(isinstance(selector, Selector), "selector_width", "be given a selector", selector)
    require(not isinstance(selector, Latest), "selector_width", "count all positions", "latest")
    return Width(selector)


def elementwise(
    f: Callable[[Any], Any], inner: SequenceOperator, *, numeric: bool = False
) -> SequenceOperator:
    """`f` applied at every position.

    Args:
        f: A function of a value.
        inner: The sequence.
        numeric: Whether `aggregate` averages the results.
    """
    return Elementwise(f, inner, getattr(f, "__name__", "f"), numeric)


def combine(
    f: Callable[[Any, Any], Any], first: SequenceOperator, second: SequenceOperator
) -> SequenceOperator:
    """`f` applied to two sequences at every position."""
    return Combine(f, first, second, getattr(f, "__name__", "f"))


def numerical(inner: SequenceOperator) -> SequenceOperator:
    """Mark numbers (or booleans, as 0 and 1) as numeric, so that `aggregate` averages them."""
    return Elementwise(_as_number, inner, "numerical", numeric=True)


def parts(expr: SequenceOperator) -> list[SequenceOperator]:
    """All subexpressions of `expr`, including itself, each once."""
    visited: dict[int, SequenceOperator] = {}

    def visit(node: SequenceOperator | Selector) -> None:
        if id(node) in visited:
            return
        if isinstance(node, SequenceOperator):
            visited[id(node)] = node
        for inner in vars(node).values():
            for part in inner if isinstance(inner, tuple) else (inner,):
                part = part[1] if isinstance(part, tuple) else part
                if isinstance(part, SequenceOperator | Selector):
                    visit(part)

    visit(expr)
    return list(visited.values())


def _as_number(value: Any) -> Fraction | int:
    return int(value) if isinstance(value, bool) else value
