"""Exact arithmetic of integers: quotients, remainders, products, and digits with carries."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from allometry._core.errors import require
from allometry.construct.programs.expressions import (
    Combine,
    Elementwise,
    Linear,
    SequenceOperator,
    Steps,
)


def floor_divide(x: SequenceOperator, divisor: int) -> SequenceOperator:
    """`x // divisor` for integers x, by two neurons for each step of the quotient.

    Unlike `x // divisor`, it takes sums of any number of values: their range is enough.
    """
    whole = isinstance(divisor, int) and divisor >= 1
    require(whole, "floor_divide.divisor", "be a positive integer", divisor)
    return Steps(
        x,
        lambda v: v // divisor,
        lambda low, high: range((low // divisor + 1) * divisor, high + 1, divisor),
        f"quotient by {divisor}",
    )


def thresholds(x: SequenceOperator, points: Sequence[int]) -> SequenceOperator:
    """How many of the integers `points` are at most x, by two neurons for each."""
    levels = sorted(set(points))
    require(len(levels) > 0, "thresholds.points", "have at least one point", points)
    return Steps(
        x,
        lambda v: bisect_right(levels, v),
        lambda low, high: [p for p in levels if low < p <= high],
        "number of thresholds passed",
    )


def remainder(x: SequenceOperator, divisor: int) -> SequenceOperator:
    """`x % divisor` for integers x, as x - divisor (x // divisor)."""
    return _difference(x, floor_divide(x, divisor), divisor)


def digits(
    columns: Sequence[SequenceOperator], count: int | None = None, base: int = 10
) -> list[SequenceOperator]:
    r"""Digits of $\sum_m c_m b^m$, the lowest first, for integer columns $c_m$ of any size.

    The carry into place m is $\lfloor \sum_{k<m} c_k b^k / b^m \rfloor$. All carries are read from
    sums in one layer: no carry waits for another. Digit m is then $c_m$ plus the carry minus b
    times the next carry, which needs no neurons. Columns may be negative; digits of a negative
    number are those of its complement.

    Args:
        columns: $c_0, c_1, \ldots$
        count: Number of digits. Default: one for each column.
        base: b.

    Example:
        >>> from allometry.construct import program
        >>> from allometry.construct.programs import digits, elementwise, tokens
        >>> column = elementwise(int, tokens, numeric=True)
        >>> tens = digits([column * 7, column], 2)[1]
        >>> program(tens, alphabet="0123456789", n=2)("49")  # 4 * 17 = 68, 9 * 17 = 153
        [6, 5]
    """
    require(len(columns) > 0, "digits.columns", "have at least one column", columns)
    require(base >= 2, "digits.base", "be at least 2", base)
    count = len(columns) if count is None else count
    require(count >= 1, "digits.count", "be at least 1", count)
    found = []
    total: SequenceOperator = columns[0]
    carry: SequenceOperator | None = None
    for place in range(count):
        if 0 < place < len(columns):
            total = total + columns[place] * base**place
        column = columns[place] if place < len(columns) else None
        above = floor_divide(total, base ** (place + 1))
        terms = [part for part in (column, carry) if part is not None]
        found.append(_difference(_plus(terms), above, base))
        carry = above
    return found


def number(places: Sequence[SequenceOperator], base: int = 10) -> SequenceOperator:
    """The number with the given digits, the lowest first."""
    require(len(places) > 0, "number.places", "have at least one digit", places)
    terms = tuple((Fraction(base**m), x) for m, x in enumerate(places))
    return Linear(terms, Fraction(0))


def product(x: SequenceOperator, y: SequenceOperator) -> SequenceOperator:
    r"""`x * y` for integers, as $\lfloor (x+y)^2/4 \rfloor - \lfloor (x-y)^2/4 \rfloor$.

    The squares of a sum and a difference take far fewer neurons than a table of pairs.
    """
    above = Elementwise(_quarter_square, x + y, "quarter square", numeric=True)
    below = Elementwise(_quarter_square, x - y, "quarter square", numeric=True)

    def known(values: Callable[[SequenceOperator], Any]) -> list[Any]:
        return list({a * b for a in values(x) for b in values(y)})

    return Linear(((Fraction(1), above), (Fraction(-1), below)), Fraction(0), known)


def choose(
    which: SequenceOperator, options: Sequence[SequenceOperator], otherwise: int = 0
) -> SequenceOperator:
    """`options[which]`, or `otherwise` if there is no such option; numbers only.

    One table for each option, in one layer. At most one of them differs from 0.
    """
    require(len(options) > 0, "choose.options", "have at least one option", options)

    def chosen(k: int, value: Any, w: Any) -> Any:
        return value - otherwise if w == k else 0

    terms = tuple(
        (
            Fraction(1),
            Elementwise(
                _same, Combine(partial(chosen, k), x, which, f"option {k}"), "option", True
            ),
        )
        for k, x in enumerate(options)
    )

    def known(values: Callable[[SequenceOperator], Any]) -> list[Any]:
        return list({otherwise, *(v for x in options for v in values(x))})

    return Linear(terms, Fraction(otherwise), known)


def _same(x: Any) -> Any:
    return x


def _quarter_square(x: Any) -> int:
    return int(x) ** 2 // 4


def _plus(terms: Sequence[SequenceOperator]) -> SequenceOperator:
    return Linear(tuple((Fraction(1), term) for term in terms), Fraction(0))


def _difference(x: SequenceOperator, above: SequenceOperator, base: int) -> SequenceOperator:
    """`x` - `base` * `above`, which is known to lie in 0 ... base - 1."""
    terms = ((Fraction(1), x), (Fraction(-base), above))
    return Linear(terms, Fraction(0), lambda values: list(range(base)))
