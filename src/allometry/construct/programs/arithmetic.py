"""Arithmetic by generation: sums, differences and products, with and without a scratchpad.

Each function compiles its program for a largest number of digits and returns a `Generator`.
"""

from collections.abc import Sequence
from typing import Any

from allometry._core.errors import require
from allometry.construct.programs.expressions import SequenceOperator, indices, tokens
from allometry.construct.programs.generation import Generator, generator
from allometry.construct.programs.generators import DIGITS, END, at, digit_of, position_of
from allometry.construct.programs.integers import (
    choose,
    digits,
    floor_divide,
    number,
    product,
    remainder,
    thresholds,
)
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    earliest,
    elementwise,
    latest,
    select,
)


def operand(
    end: SequenceOperator, places: int, after: SequenceOperator | None = None
) -> list[SequenceOperator]:
    """Digits of the number that ends before a position, the lowest first; 0 where it has none.

    Args:
        end: The position after the number.
        places: Number of digits.
        after: The position before the number; `None` if it is the first one.
    """
    inside = None if after is None else elementwise(lambda p: p >= 0, after)
    found = []
    for k in range(places):
        chosen = select(indices, end - 1 - k)
        if inside is not None:
            # A position knows whether the separator is before it.
            chosen = chosen & select(inside, True)
        found.append(aggregate(chosen, digit_of(), 0).named(f"digit {k}"))
    return found


def shown(
    places: Sequence[SequenceOperator], value: SequenceOperator, step: SequenceOperator
) -> SequenceOperator:
    """The digit to write at `step`, without leading zeros; 10 when all are written.

    Args:
        places: Digits, the lowest first.
        value: The number, at least 0.
        step: Number of digits written so far.
    """
    last = thresholds(value, [10**k for k in range(1, len(places))])
    return choose(last - step, places, otherwise=10)


def adder(places: int = 3) -> Generator:
    r"""The sum of two numbers, most significant digit first: `95+27\n` gives `122$`.

    Args:
        places: Largest number of digits of each number.
    """
    require(places >= 1, "adder.places", "be at least 1", places)
    plus, newline = position_of("+").named("plus"), position_of("\n").named("newline")
    first = operand(plus, places)
    second = operand(newline, places, after=plus)
    columns = [a + b for a, b in zip(first, second, strict=True)]
    step = indices - newline
    written = shown(digits(columns, places + 1), number(columns), step)
    text = elementwise(lambda d: [*DIGITS, END][int(d)], written)
    words = [str(i) for i in _spread(10**places)]
    prompts = [f"{a}+{b}\n" for a in words for b in words]
    return generator(
        text, alphabet=[*DIGITS, "+", "\n", END], n=3 * places + 4, end=END, prompts=prompts
    )


def calculator(places: int = 3) -> Generator:
    r"""`+`, `-` and `*` of two numbers: `12-30\\n` gives `-18$`, most significant digit first.

    All three results are computed at once; the operator and the sign choose the one to write.

    Args:
        places: Largest number of digits of each number.
    """
    require(places >= 1, "calculator.places", "be at least 1", places)
    operator = elementwise(lambda t: t in "+-*", tokens)
    sign_at = aggregate(earliest(select(operator, True)), indices, -1).named("operator")
    which = aggregate(earliest(select(operator, True)), tokens, "+").named("operation")
    newline = position_of("\n").named("newline")
    first, second = operand(sign_at, places), operand(newline, places, after=sign_at)
    sums = [a + b for a, b in zip(first, second, strict=True)]
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    opposite = [b - a for a, b in zip(first, second, strict=True)]
    columns: list[Any] = [None] * (2 * places)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            term = product(a, b).named(f"digit {i} times digit {j}")
            columns[i + j] = term if columns[i + j] is None else columns[i + j] + term
    columns = [c for c in columns if c is not None]
    negative = elementwise(lambda c: c == 0, thresholds(number(gaps), [0])).named("negative")
    step = indices - newline

    def case(operation: str, less: bool) -> int:
        return {"+": 0, "*": 1}.get(operation, 3 if less else 2)

    chosen = combine(case, which, negative)
    results = [
        (digits(sums, places + 1), number(sums), step),
        (digits(columns, 2 * places), number(columns), step),
        (digits(gaps, places), number(gaps), step),
        (digits(opposite, places), number(opposite), step - 1),
    ]
    codes = [shown(*result) for result in results]
    # A negative number starts with its sign; `shown` writes nothing at step -1.
    codes[3] = combine(lambda c, t: 11 if t == 0 else int(c), codes[3], step)
    written = choose(chosen, codes, otherwise=10)
    text = elementwise(lambda d: [*DIGITS, END, "-"][int(d)], written)
    words = [str(i) for i in _spread(10**places)]
    prompts = [f"{a}{o}{b}\n" for a in words for b in words for o in "+-*"]
    alphabet = [*DIGITS, "+", "-", "*", "\n", END]
    return generator(text, alphabet=alphabet, n=4 * places + 4, end=END, prompts=prompts)


def long_addition(places: int = 10) -> Generator:
    """A sum by a scratchpad: `95+27=` gives `221>122$`, first from the lowest digit.

    The carry is read from what is written: there is one if the digit before is smaller than the
    sum of the two digits above it. Three layers serve numbers of any length.

    Args:
        places: Largest number of digits of each number.
    """
    require(places >= 1, "long_addition.places", "be at least 1", places)
    plus, equals = position_of("+").named("plus"), position_of("=").named("equals")
    after = select(elementwise(lambda p: p >= 0, plus), True)

    def column(step: SequenceOperator) -> SequenceOperator:
        first = at(plus - 1 - step, digit_of(), 0)
        second = aggregate(select(indices, equals - 1 - step) & after, digit_of(), 0)
        return first + second

    step = indices - equals
    carry = elementwise(lambda d: int(d > 0), column(step - 1) - digit_of(), numeric=True)
    carry = combine(lambda c, t: int(c) if t > 0 else 0, carry, step)
    digit = elementwise(lambda s: int(s) % 10, column(step) + as_number(carry), numeric=True)
    longer = elementwise(lambda d: max(int(d), 0), 2 * plus - equals + 1, numeric=True)
    width = equals - plus - 1 + longer + 1
    phase = elementwise(lambda u: (u > 0) - (u < 0), step - width)
    answer = reversed_digits(equals, ">")
    codes = combine(
        lambda p, both: int(both[0]) if p < 0 else 11 if p == 0 else both[1],
        phase,
        combine(lambda d, a: (d, a), digit, answer),
    )
    text = elementwise(lambda d: [*DIGITS, END, ">"][int(d)], codes)
    words = [str(i) for i in _spread(10**places, 30)]
    prompts = [f"{a}+{b}=" for a in words for b in words]
    alphabet = [*DIGITS, "+", "=", ">", END]
    return generator(text, alphabet=alphabet, n=4 * places + 6, end=END, prompts=prompts)


def as_number(x: SequenceOperator) -> SequenceOperator:
    """Mark a sequence of integers as numeric."""
    return elementwise(int, x, numeric=True)


def reversed_digits(start: SequenceOperator, marker: str) -> SequenceOperator:
    """Digits between two tokens, last first, without leading zeros; 10 when all are written.

    Args:
        start: The position of the token before the digits.
        marker: The token after the digits; the answer follows it.
    """
    nonzero = elementwise(lambda t: t in DIGITS[1:], tokens)
    scratch = elementwise(lambda p: p >= 0, start)
    top = aggregate(latest(select(nonzero, True) & select(scratch, True)), indices, -1)
    # At least one digit is written, for the sum 0.
    raised = elementwise(lambda d: max(int(d), 1), top - start, numeric=True)
    held = aggregate(earliest(select(tokens, marker)), raised, 0).named("highest digit")
    marked = position_of(marker).named("marker")
    place = held - (indices - marked)
    digit = at(place + start, digit_of(), 0)
    return combine(lambda d, p: int(d) if p >= 1 else 10, digit, place)


def long_multiplication(places: int = 3) -> Generator:
    """A product by a scratchpad of running sums, then the answer.

    For each digit of the second number a row adds the first number times that digit to the row
    before. A row has a digit and a carry for each of `2 * places` columns, lowest first.
    With places = 2, `12*34=` gives `80400000` and `80014000`, then `>408$`.

    Args:
        places: Largest number of digits of each number.
    """
    require(places >= 1, "long_multiplication.places", "be at least 1", places)
    columns, size = 2 * places, 4 * places
    times, equals = position_of("*").named("times"), position_of("=").named("equals")
    after = select(elementwise(lambda p: p >= 0, times), True)
    step = (indices - equals).named("step")

    def of_step(f: Any) -> SequenceOperator:
        return elementwise(lambda t: f(int(t)), step, numeric=True)

    shift = of_step(lambda t: t // 2 % columns - t // size if t % size // 2 >= t // size else 99)
    first = at(times - 1 - shift, digit_of(), 0).named("digit of the first number")
    row = of_step(lambda t: t // size)
    second = aggregate(select(indices, equals - 1 - row) & after, digit_of(), 0)
    # Before a row's first column and in the first row there is nothing to read.
    carried = of_step(lambda t: 2 * (t // 2) if t // 2 % columns else -99)
    above = of_step(lambda t: 2 * (t // 2) + 1 - size if t >= size else -99)
    carry = at(equals + carried, digit_of(), 0).named("carry")
    sum_so_far = at(equals + above, digit_of(), 0).named("digit of the row above")
    total = product(first, second) + carry + sum_so_far
    pair = choose(of_step(lambda t: t % 2), [remainder(total, 10), floor_divide(total, 10)])
    length = size * places
    # The position after e by t holds what step t - 1 wrote.
    is_digit = of_step(lambda t: int(length - size <= t - 1 < length and t % 2 == 1))
    nonzero = combine(lambda d, t: t in DIGITS[1:] and d == 1, is_digit, tokens)
    top = aggregate(latest(select(nonzero, True)), step, length - size + 1)
    place = top - 2 * (step - length - 1)
    digit = at(place + equals, digit_of(), 0)
    answer = combine(lambda d, p: int(d) if p > length - size else 10, digit, place)
    phase = of_step(lambda t: (t > length) - (t < length))
    codes = combine(
        lambda p, both: int(both[0]) if p < 0 else 11 if p == 0 else both[1],
        phase,
        combine(lambda d, a: (d, a), pair, answer),
    )
    text = elementwise(lambda d: [*DIGITS, END, ">"][int(d)], codes)
    words = [str(i) for i in _spread(10**places, 30)]
    prompts = [f"{a}*{b}=" for a in words for b in words]
    alphabet = [*DIGITS, "*", "=", ">", END]
    n = 2 * places + 2 + length + 1 + columns + 1
    return generator(text, alphabet=alphabet, n=n, end=END, prompts=prompts)


def _spread(count: int, most: int = 100) -> list[int]:
    """At most `most` numbers below `count`, the smallest and largest ones among them."""
    step = max(1, count // most)
    near = [x for k in range(len(str(count))) for x in (10**k - 1, 10**k)]
    return sorted({*range(0, count, step), *(x for x in near if x < count), count - 1})
