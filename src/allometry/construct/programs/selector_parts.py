"""Selectors as conjunctions of selects."""

from collections.abc import Callable
from typing import Any

from allometry._core.errors import InputError
from allometry.construct.programs.expressions import (
    Both,
    Combine,
    Either,
    Elementwise,
    Latest,
    Neither,
    Select,
    Selector,
    SequenceOperator,
)


def holds(select: Select, key: Any, query: Any) -> bool:
    """Whether the predicate is true; its errors name the line of the select."""
    try:
        return bool(select.predicate(key, query))
    except Exception as error:
        raise InputError(
            f"select ({select.origin}) must compare all possible keys and queries; it fails on "
            f"{key!r} and {query!r}: {error}."
        ) from error


def conjuncts(selector: Selector) -> list[Select]:
    """The selector as a conjunction of selects; other parts become one select on tuples."""
    match selector:
        case Select():
            return [selector]
        case Both():
            return [*conjuncts(selector.first), *conjuncts(selector.second)]
        case Latest():
            raise InputError(
                f"latest ({selector.origin}) must be the whole selector of an aggregate; got it "
                "joined with another one. Join the selectors inside latest(...)."
            )
        case Neither():
            inner = selector.inner
            if isinstance(inner, Neither):
                return conjuncts(inner.inner)
            if isinstance(inner, Either):
                return [*conjuncts(Neither(inner.first)), *conjuncts(Neither(inner.second))]
    return [_joint(selector)]


_JOINT: dict[int, tuple[Selector, Select]] = {}


def _joint(selector: Selector) -> Select:
    """One select whose keys and queries are tuples of the parts' keys and queries."""
    if id(selector) in _JOINT:
        return _JOINT[id(selector)][1]
    leaves: list[Select] = []

    def collect(s: Selector) -> Callable[[tuple[Any, ...], tuple[Any, ...]], bool]:
        match s:
            case Select():
                place = len(leaves)
                leaves.append(s)
                return lambda k, q: holds(s, k[place], q[place])
            case Both():
                a, b = collect(s.first), collect(s.second)
                return lambda k, q: a(k, q) and b(k, q)
            case Either():
                a, b = collect(s.first), collect(s.second)
                return lambda k, q: a(k, q) or b(k, q)
            case Neither():
                a = collect(s.inner)
                return lambda k, q: not a(k, q)
        raise AssertionError(s)

    test = collect(selector)

    def tupled(parts: list[SequenceOperator]) -> SequenceOperator:
        sequence: SequenceOperator = Elementwise(lambda x: (x,), parts[0], "pair")
        for part in parts[1:]:
            sequence = Combine(lambda t, x: (*t, x), sequence, part, "pair")
        return sequence

    keys, queries = tupled([s.keys for s in leaves]), tupled([s.queries for s in leaves])
    joint = Select(keys, queries, test, "joint")
    joint.origin = selector.origin
    _JOINT[id(selector)] = (selector, joint)
    return joint
