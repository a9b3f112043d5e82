"""Expressions of the language: sequence operators and selectors with Python's operators."""

import math
import operator
import sys
from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError, require

Value = Any
"""Any hashable value: numbers, strings, booleans, None, tuples."""

_INSIDE = (str(Path(__file__).parent), "jaxtyping", "beartype")
"""Parts of file names of frames that are not the user's: this package and type checkers."""


def _origin() -> str:
    """The user's line that created an expression."""
    frame = sys._getframe(2)
    while frame is not None and any(part in frame.f_code.co_filename for part in _INSIDE):
        frame = frame.f_back
    if frame is None:
        return "the program"
    return f"line {frame.f_lineno} of {Path(frame.f_code.co_filename).name}"


class SequenceOperator(ABC):  # noqa: B024 - subclasses differ in attributes, not in methods
    """A sequence with a value at every position of the input. Abstract; subclasses are final.

    Sums, differences and multiples of numbers are numbers and cost nothing in the network.
    Comparisons (`==`, `<`, ...), `&`, `|`, `~`, `//` and `%` apply to any values elementwise.

    Attributes:
        numeric: Whether `aggregate` averages the values (otherwise they must be equal).
        origin: Line that created it, for messages.
        label: Name for listings, set by `named`.
    """

    numeric: bool = False
    origin: str = ""
    label: str = ""

    @final
    def named(self, label: str) -> "SequenceOperator":
        """This expression with a name for listings."""
        self.label = label
        return self

    @final
    def _with(self, other: Any, f: Callable[[Any, Any], Any], name: str) -> "SequenceOperator":
        if isinstance(other, SequenceOperator):
            return Combine(f, self, other, name)
        return Elementwise(lambda x: f(x, other), self, f"{name} {other!r}")

    @final
    def _sum(self, other: Any, factor: int, other_factor: int) -> "SequenceOperator":
        if isinstance(other, SequenceOperator):
            terms = ((Fraction(factor), self), (Fraction(other_factor), other))
            return Linear(terms, Fraction(0))
        return Linear(((Fraction(factor), self),), number(other, "a term") * other_factor)

    @final
    def __add__(self, other: Any) -> "SequenceOperator":
        return self._sum(other, 1, 1)

    @final
    def __radd__(self, other: Any) -> "SequenceOperator":
        return self._sum(other, 1, 1)

    @final
    def __sub__(self, other: Any) -> "SequenceOperator":
        return self._sum(other, 1, -1)

    @final
    def __rsub__(self, other: Any) -> "SequenceOperator":
        return self._sum(other, -1, 1)

    @final
    def __neg__(self) -> "SequenceOperator":
        return Linear(((Fraction(-1), self),), Fraction(0))

    @final
    def __mul__(self, factor: Any) -> "SequenceOperator":
        if isinstance(factor, SequenceOperator):
            return Combine(operator.mul, self, factor, "*")
        return Linear(((number(factor, "a factor"), self),), Fraction(0))

    __rmul__ = __mul__

    @final
    def __floordiv__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.floordiv, "//")

    @final
    def __mod__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.mod, "%")

    @final
    def __eq__(self, other: object) -> "SequenceOperator":  # type: ignore[override]
        return self._with(other, operator.eq, "==")

    @final
    def __ne__(self, other: object) -> "SequenceOperator":  # type: ignore[override]
        return self._with(other, operator.ne, "!=")

    @final
    def __lt__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.lt, "<")

    @final
    def __le__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.le, "<=")

    @final
    def __gt__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.gt, ">")

    @final
    def __ge__(self, other: Any) -> "SequenceOperator":
        return self._with(other, operator.ge, ">=")

    @final
    def __and__(self, other: Any) -> "SequenceOperator":
        return self._with(other, _both, "&")

    @final
    def __or__(self, other: Any) -> "SequenceOperator":
        return self._with(other, _either, "|")

    @final
    def __invert__(self) -> "SequenceOperator":
        return Elementwise(operator.not_, self, "~")

    @final
    def __bool__(self) -> bool:
        raise InputError(
            f"a sequence operator must not be used as a condition ({self.origin}): it has a value "
            "at every position. Use &, | and ~ for and, or and not."
        )

    @final
    def __hash__(self) -> int:
        return id(self)

    @final
    def __iter__(self) -> Iterator[Any]:
        raise InputError(f"a sequence operator must not be looped over ({self.origin}).")


def _both(a: Any, b: Any) -> bool:
    return bool(a) and bool(b)


def _either(a: Any, b: Any) -> bool:
    return bool(a) or bool(b)


def number(value: Any, name: str) -> Fraction:
    """`value` as an exact number; `name` starts the error message."""
    finite = isinstance(value, int | Fraction | float) and math.isfinite(value)
    require(finite, name, "be a finite number or a sequence operator", value)
    return Fraction(value)


@final
class Tokens(SequenceOperator):
    """The input itself."""

    def __init__(self) -> None:
        self.origin = "tokens"


@final
class Indices(SequenceOperator):
    """The positions 0, 1, 2, ..."""

    def __init__(self) -> None:
        self.origin = "indices"
        self.numeric = True


tokens = Tokens()
"""The input."""

indices = Indices()
"""The positions, from 0."""


@final
class Elementwise(SequenceOperator):
    """A function of one sequence, applied elementwise.

    Args:
        f: The function.
        inner: Its argument.
        name: Name for messages.
        numeric: Whether `aggregate` averages the results.
    """

    def __init__(
        self, f: Callable[[Any], Any], inner: SequenceOperator, name: str, numeric: bool = False
    ) -> None:
        self.f, self.inner, self.name, self.numeric = f, inner, name, numeric
        self.origin = _origin()


@final
class Combine(SequenceOperator):
    """A function of two sequences, applied elementwise."""

    def __init__(
        self,
        f: Callable[[Any, Any], Any],
        first: SequenceOperator,
        second: SequenceOperator,
        name: str,
    ) -> None:
        self.f, self.first, self.second, self.name = f, first, second, name
        self.origin = _origin()


@final
class Linear(SequenceOperator):
    """A linear combination of numeric sequences.

    Args:
        terms: Factors and sequences.
        constant: Added to their sum.
        known: From the possible values of each term to those of the sum, where a proof gives fewer
            than all combinations (a digit, a product).
    """

    def __init__(
        self,
        terms: tuple[tuple[Fraction, SequenceOperator], ...],
        constant: Fraction,
        known: Callable[[Callable[[SequenceOperator], Any]], Any] | None = None,
    ) -> None:
        self.terms, self.constant, self.numeric, self.known = terms, constant, True, known
        self.origin = _origin()


@final
class Steps(SequenceOperator):
    """A step function of an integer sequence, known by where its steps are.

    Args:
        inner: The sequence.
        f: From an integer to an integer; constant between steps.
        points: From a range (low, high) to the integers in it whose value differs from that of
            the integer before.
        name: Name for listings.
    """

    def __init__(
        self,
        inner: SequenceOperator,
        f: Callable[[int], int],
        points: Callable[[int, int], Sequence[int]],
        name: str,
    ) -> None:
        self.inner, self.f, self.points, self.name, self.numeric = inner, f, points, name, True
        self.origin = _origin()


@final
class Aggregate(SequenceOperator):
    """At every position, the mean or the common value of the selected positions."""

    def __init__(self, selector: "Selector", values: SequenceOperator, default: Value) -> None:
        self.selector, self.values, self.default = selector, values, default
        self.numeric = values.numeric
        self.origin = _origin()


@final
class Width(SequenceOperator):
    """At every position, the number of selected positions."""

    def __init__(self, selector: "Selector") -> None:
        self.selector, self.numeric = selector, True
        self.origin = _origin()


@final
class State(SequenceOperator):
    """What a loop keeps from one repetition to the next.

    Args:
        name: Its name.
        start: Its value before the first repetition.
    """

    def __init__(self, name: str, start: SequenceOperator) -> None:
        self.name, self.label, self.numeric = name, name, start.numeric
        self.origin = start.origin


@final
class Loop(SequenceOperator):
    """A state that is changed several times, by the same layers each time; see `loop`.

    Args:
        states: The states.
        starts: Their values before the first repetition.
        steps: Their values after a repetition, by the states before it.
        result: The value after the last repetition, a function of one state.
        times: Number of repetitions; `None`: the largest input length.
    """

    def __init__(
        self,
        states: tuple[State, ...],
        starts: tuple[SequenceOperator, ...],
        steps: tuple[SequenceOperator, ...],
        result: SequenceOperator,
        times: int | None,
    ) -> None:
        self.states, self.starts, self.steps = states, starts, steps
        self.result, self.times, self.numeric = result, times, result.numeric
        self.origin = _origin()


class Selector(ABC):  # noqa: B024 - as above
    """The set of positions that each position selects. Combine with `&`, `|` and `~`."""

    origin: str = ""

    @final
    def __and__(self, other: "Selector") -> "Selector":
        return Both(self, _selector(other))

    @final
    def __or__(self, other: "Selector") -> "Selector":
        return Either(self, _selector(other))

    @final
    def __invert__(self) -> "Selector":
        return Neither(self)


def _selector(thing: Any) -> Selector:
    require(isinstance(thing, Selector), "& and |", "join selectors with selectors", thing)
    return thing


@final
class Select(Selector):
    """Position i selects position j if `predicate(keys[j], queries[i])` is true."""

    def __init__(
        self,
        keys: SequenceOperator,
        queries: SequenceOperator,
        predicate: Callable[[Any, Any], bool],
        name: str,
    ) -> None:
        self.keys, self.queries, self.predicate, self.name = keys, queries, predicate, name
        self.origin = _origin()


@final
class Both(Selector):
    """Positions that both selectors select."""

    def __init__(self, first: Selector, second: Selector) -> None:
        self.first, self.second, self.origin = first, second, _origin()


@final
class Either(Selector):
    """Positions that at least one of the selectors selects."""

    def __init__(self, first: Selector, second: Selector) -> None:
        self.first, self.second, self.origin = first, second, _origin()


@final
class Neither(Selector):
    """Positions that the selector does not select."""

    def __init__(self, inner: Selector) -> None:
        self.inner, self.origin = inner, _origin()


@final
class Latest(Selector):
    """The last (or first) of the positions that a selector selects; only inside `aggregate`."""

    def __init__(self, inner: Selector, first: bool = False) -> None:
        self.inner, self.first, self.origin = inner, first, _origin()
