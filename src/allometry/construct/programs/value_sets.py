"""Possible values of each expression: finite sets for which exact weights are built."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, final

from allometry._core.errors import InputError
from allometry.construct.programs.expressions import (
    Aggregate,
    Combine,
    Elementwise,
    Indices,
    Latest,
    Linear,
    Loop,
    Selector,
    SequenceOperator,
    State,
    Steps,
    Tokens,
    Width,
)
from allometry.construct.programs.selector_parts import conjuncts, holds

FUSED = 256
"""Largest table that is built at once; larger ones are built in parts if that is smaller."""
LARGEST = 20_000
"""Largest number of values of an expression, and of entries of a table."""

View = tuple[tuple[SequenceOperator, ...], Callable[[tuple[Any, ...]], Any]]
"""An expression as a function of its atoms."""


@final
class Domains:
    """The possible values of every expression, given the alphabet and the largest input length.

    An expression is a function of *atoms*: tokens, indices, values fetched by attention, sums of
    numbers, and parts that are tabulated separately. The sets may be too large, never too small.

    Args:
        alphabet: The tokens.
        n: Largest input length.
        causal: Whether positions select only themselves and earlier ones.
    """

    def __init__(self, alphabet: tuple[Any, ...], n: int, causal: bool = False) -> None:
        self.alphabet, self.n, self.causal = alphabet, n, causal
        self._values: dict[int, Sequence[Any]] = {}
        self._views: dict[int, View] = {}
        self._keep: list[Any] = []  # ids are unique only while the objects exist

    def assume(self, node: SequenceOperator, values: Sequence[Any]) -> None:
        """Set the possible values of a state."""
        self._keep.append(node)
        self._values[id(node)] = _ordered(values)

    def view(self, node: SequenceOperator) -> View:
        """The atoms of an expression, and the function of their values."""
        if id(node) not in self._views:
            self._keep.append(node)
            self._views[id(node)] = self._view(node)
        return self._views[id(node)]

    def _view(self, node: SequenceOperator) -> View:
        if isinstance(node, Elementwise):
            atoms, inner = self.view(node.inner)
            return atoms, lambda v: _apply(node, node.f, inner(v))
        if isinstance(node, Steps):
            atoms, inner = self.view(node.inner)
            if len(atoms) == 1 and isinstance(atoms[0], Tokens | Indices | State):
                return atoms, lambda v: node.f(int(_number(inner(v), node)))
        if isinstance(node, Combine):
            return self._combined(node)
        if isinstance(node, Linear):
            views = [self.view(term) for _, term in node.terms]
            first = views[0][0]
            base = len(first) == 1 and isinstance(first[0], Tokens | Indices | State)
            if base and all(len(a) == 1 and a[0] is first[0] for a, _ in views):
                return first, self._summed(node, first, views)
            atoms = tuple({id(a): a for found, _ in views for a in found}.values())
            # A width is not linear in what its head fetches: a sum of widths needs a table, and a
            # function of the sum another one. A function of the widths needs one.
            if any(isinstance(a, Width) for a in atoms) and self._count(atoms) <= FUSED:
                return atoms, self._summed(node, atoms, views)
        return (node,), lambda v: v[0]

    def _summed(
        self, node: Linear, atoms: tuple[SequenceOperator, ...], views: list[View]
    ) -> Callable[[tuple[Any, ...]], Any]:
        """A linear combination as a function of atoms."""
        place = {id(a): i for i, a in enumerate(atoms)}
        parts = [
            (c, f, [place[id(a)] for a in found])
            for (c, _), (found, f) in zip(node.terms, views, strict=True)
        ]

        def total(v: tuple[Any, ...]) -> Any:
            return node.constant + sum(
                c * _number(f(tuple(v[i] for i in at)), node) for c, f, at in parts
            )

        return total

    def _count(self, atoms: Sequence[SequenceOperator]) -> int:
        return math.prod(len(self.values(a)) for a in atoms)

    def _combined(self, node: Combine) -> View:
        parts: list[View] = [self.view(node.first), self.view(node.second)]
        children = [node.first, node.second]

        def joined() -> list[SequenceOperator]:
            return list({id(a): a for atoms, _ in parts for a in atoms}.values())

        size = self._count
        while size(joined()) > FUSED:
            # Tabulate the part whose number of values shrinks most separately.
            gains = [
                0 if is_atom(atoms, child) else size(atoms) / len(self.values(child))
                for (atoms, _), child in zip(parts, children, strict=True)
            ]
            worst = gains.index(max(gains))
            if gains[worst] <= 1:
                break
            parts[worst] = ((children[worst],), lambda v: v[0])
        atoms = joined()
        if size(atoms) > LARGEST:
            raise InputError(
                f"{node.name} ({node.origin}) must be tabulated, which takes {size(atoms):,} "
                f"entries; at most {LARGEST:,} can be. Split it or shorten the input."
            )
        places = [[next(i for i, b in enumerate(atoms) if b is a) for a in p[0]] for p in parts]

        def value(v: tuple[Any, ...]) -> Any:
            x, y = (f(tuple(v[i] for i in at)) for (_, f), at in zip(parts, places, strict=True))
            return _apply(node, node.f, x, y)

        return tuple(atoms), value

    def values(self, node: SequenceOperator) -> Sequence[Any]:
        """All possible values of `node`; numbers in ascending order.

        Sums of integers with more than `LARGEST` values are a `range`; all others are lists.
        """
        if id(node) not in self._values:
            self._keep.append(node)
            found = self._find(node)
            self._values[id(node)] = found if isinstance(found, range) else _ordered(found)
            if not isinstance(found, range):
                self.listed(node)
        return self._values[id(node)]

    def listed(self, node: SequenceOperator) -> Sequence[Any]:
        """The values of `node`, refused if they are too many to be enumerated."""
        values = self.values(node)
        if len(values) > LARGEST:
            raise InputError(
                f"an expression ({node.origin}) must take at most {LARGEST:,} values; got "
                f"{len(values):,}. Use a shorter input or a smaller alphabet, or floor_divide a "
                "sum before it is used."
            )
        return values

    def _find(self, node: SequenceOperator) -> Sequence[Any]:
        match node:
            case Tokens():
                return list(self.alphabet)
            case Indices():
                return list(range(self.n))
            case Width():
                return list(range(self.n + 1))
            case Loop() | State():
                what = (
                    "a loop must be the whole program"
                    if isinstance(node, Loop)
                    else (f"the state {node.name!r} must be used inside its loop only")
                )
                raise InputError(f"{what} ({node.origin}). Compute what follows in its result.")
            case Aggregate():
                if self.single(node):
                    return [*self.values(node.values), node.default]
                return self._means(node)
        atoms, f = self.view(node)
        if isinstance(node, Linear) and is_atom(atoms, node):
            return self._sums(node) if node.known is None else node.known(self.values)
        if isinstance(node, Steps) and is_atom(atoms, node):
            return self._steps(node)
        return [f(v) for v in product(*(self.listed(a) for a in atoms))]

    def _steps(self, node: Steps) -> Sequence[Any]:
        values = self.values(node.inner)
        if isinstance(values, range):
            low, high = values[0], values[-1]
            return [node.f(x) for x in (low, *node.points(low, high))]
        numbers = [_number(v, node.inner) for v in values]
        if any(x.denominator != 1 for x in numbers):
            raise InputError(
                f"{node.name} ({node.origin}) must be given integers; got "
                f"{next(x for x in numbers if x.denominator != 1)}."
            )
        return [node.f(int(x)) for x in numbers]

    def single(self, node: Aggregate) -> bool:
        """Whether the aggregate has one value instead of a mean."""
        return not node.numeric or self.proven_single(node.selector)

    def proven_single(self, selector: Selector) -> bool:
        """Whether no position can select two: some key is distinct at every position."""
        if isinstance(selector, Latest):
            return True
        for part in conjuncts(selector):
            atoms, f = self.view(part.keys)
            if len(atoms) != 1 or not isinstance(atoms[0], Indices):
                continue
            keys = [f((i,)) for i in range(self.n)]
            if len(set(keys)) < self.n:
                continue
            queries = self.values(part.queries)
            if all(sum(holds(part, k, q) for k in keys) <= 1 for q in queries):
                return True
        return False

    def _means(self, node: Aggregate) -> list[Fraction]:
        numbers = [_number(v, node.values) for v in self.values(node.values)]
        scale = math.lcm(*(x.denominator for x in numbers))
        steps = {int(x * scale) for x in numbers}
        means = {_number(node.default, node)}
        sums = {0}
        for count in range(1, self.n + 1):
            sums = {a + b for a in sums for b in steps}
            means |= {Fraction(s, scale * count) for s in sums}
            if len(means) > LARGEST:
                raise InputError(
                    f"a mean ({node.origin}) must take at most {LARGEST:,} values; got more at "
                    f"length {count}. Average fewer different numbers."
                )
        return list(means)

    def _sums(self, node: Linear) -> Sequence[Any]:
        ranges = [self.values(t) for _, t in node.terms]
        if any(isinstance(values, range) for values in ranges):
            return self._interval(node)
        terms = [
            [c * _number(v, t) for v in values]
            for (c, t), values in zip(node.terms, ranges, strict=True)
        ]
        scale = math.lcm(node.constant.denominator, *(x.denominator for t in terms for x in t))
        sums = {int(node.constant * scale)}
        for term in terms:
            steps = {int(x * scale) for x in term}
            if len(sums) * len(steps) > 50 * LARGEST:
                return self._interval(node)
            sums = {a + b for a in sums for b in steps}
        if len(sums) > LARGEST:
            return self._interval(node)
        return [Fraction(s, scale) for s in sums]

    def _interval(self, node: Linear) -> range:
        """Bounds of a sum of integers with too many values for a list."""
        low = high = node.constant
        whole = node.constant.denominator == 1
        for factor, term in node.terms:
            values = self.values(term)
            ends = [factor * _number(values[0], term), factor * _number(values[-1], term)]
            low, high = low + min(ends), high + max(ends)
            numbers = values[:1] if isinstance(values, range) else values
            whole &= all((factor * _number(v, term)).denominator == 1 for v in numbers)
        if not whole:
            raise InputError(
                f"a sum ({node.origin}) must take at most {LARGEST:,} values unless all are "
                "integers; got too many."
            )
        return range(int(low), int(high) + 1)


def is_atom(atoms: tuple[SequenceOperator, ...], node: SequenceOperator) -> bool:
    """Whether `node` is its own only atom (by identity: `==` creates a new expression)."""
    return len(atoms) == 1 and atoms[0] is node


def _ordered(values: Sequence[Any]) -> list[Any]:
    unique = list(dict.fromkeys(values))
    for value in unique:
        if isinstance(value, int | float | Fraction) and not _finite(value):
            raise InputError(
                f"The values of a program must be numbers below 1e308; got {str(value)[:40]}."
            )
    if all(isinstance(v, int | float | Fraction) for v in unique):
        # Floats sort fast; numbers too close for them are refused when they must be distinguished.
        return sorted(unique, key=float)
    return unique


def _finite(value: int | float | Fraction) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _number(value: Any, node: SequenceOperator) -> Fraction:
    if not isinstance(value, int | float | Fraction) or not _finite(value):
        raise InputError(
            f"an expression ({node.origin}) must be made of numbers to be added or averaged; got "
            f"{value!r}."
        )
    return Fraction(value)


def _apply(node: Elementwise | Combine, f: Callable[..., Any], *values: Any) -> Any:
    try:
        result = f(*values)
        hash(result)
    except Exception as error:
        arguments = ", ".join(map(repr, values))
        fix = " None is what an aggregate that selects nothing gives: set its default."
        raise InputError(
            f"{node.name} ({node.origin}) must have a value for all possible inputs; it fails on "
            f"{arguments}: {error}.{fix if None in values else ''}"
        ) from error
    return result
