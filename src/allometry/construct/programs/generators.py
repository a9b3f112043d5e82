"""Programs that generate text: counting, closing brackets, a stack machine.

Each function compiles its program for a largest length and returns a `Generator`.
"""

import itertools
from typing import Any

import numpy as np

from allometry._core.errors import require
from allometry.construct.programs.expressions import SequenceOperator, indices, tokens
from allometry.construct.programs.generation import Generator, generator
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    earliest,
    elementwise,
    latest,
    select,
    selector_width,
)

END = "$"
"""Token after which generation stops."""
DIGITS = "0123456789"


def position_of(token: Any, default: int = -1) -> SequenceOperator:
    """The position of the first `token` so far."""
    return aggregate(earliest(select(tokens, token)), indices, default)


def at(place: SequenceOperator, values: SequenceOperator, default: Any = None) -> SequenceOperator:
    """`values` at the position `place`."""
    return aggregate(select(indices, place), values, default)


def digit_of(text: SequenceOperator = tokens) -> SequenceOperator:
    """The digit as a number; other tokens are 0."""
    return elementwise(lambda t: int(t) if str(t) in DIGITS else 0, text, numeric=True)


def counter(width: int = 3, count: int = 4) -> Generator:
    """Counts up: after `007 ` come `008 009 010 ...`, numbers of `width` digits.

    A digit is the one above it, plus a carry if that is at or after the last digit that is not 9.

    Args:
        width: Digits of a number.
        count: How many numbers fit after the first.
    """
    require(width >= 1, "counter.width", "be at least 1", width)
    n = (width + 1) * (count + 1)
    column = elementwise(lambda i: (i + 1) % (width + 1), indices)
    last = aggregate(latest(select(_is_digit_below_nine(), True)), indices, -1).named("last not 9")
    # Every position knows the last digit below 9 so far; the space after a number passes it on.
    carried = aggregate(latest(select(tokens, " ")), last, -1)
    above = at(indices - width, digit_of(), 0).named("digit above")
    # All digits of the number before are 9 if the last one below 9 is before its first digit.
    raised = elementwise(lambda d: d >= 0, indices - width - carried)
    digit = combine(lambda x, up: (x + up) % 10, above, raised)
    text = combine(lambda c, d: " " if c == width else DIGITS[int(d)], column, digit)
    prompts = [f"{i:0{width}d} " for i in range(min(10**width, 1000))]
    return generator(text, alphabet=DIGITS + " ", n=n, prompts=prompts)


def _is_digit_below_nine() -> SequenceOperator:
    return elementwise(lambda t: t in "012345678", tokens)


def increment(bits: int = 4, base: int = 2) -> Generator:
    r"""The number after a newline plus one, most significant digit first: `1011\n` gives `1100$`.

    Digits after the last one that is not the highest become 0; leading zeros are dropped.

    Args:
        bits: Largest number of digits.
        base: 2 for binary numbers, up to 10.
    """
    require(bits >= 1, "increment.bits", "be at least 1", bits)
    require(2 <= base <= 10, "increment.base", "lie between 2 and 10", base)
    letters = DIGITS[:base]
    newline = position_of("\n", 0).named("newline")
    low = elementwise(lambda t: t in letters[:-1], tokens)
    changed = aggregate(latest(select(low, True)), indices, -1)
    high = elementwise(lambda t: t in letters[1:], tokens)
    first = aggregate(earliest(select(high, True)), indices, bits)
    ahead = elementwise(lambda d: min(int(d), 0), first - changed, numeric=True)
    # Generated digits would change these, so they are read where the prompt ends.
    ends = select(tokens, "\n")
    raised = aggregate(earliest(ends), changed, -1).named("digit to raise")
    begins = aggregate(earliest(ends), changed + ahead, -1).named("first digit")
    place = begins + indices - newline
    own = at(place, digit_of(), 0).named("digit")
    side = elementwise(lambda d: (d > 0) - (d < 0), place - raised)
    done = elementwise(lambda d: d >= 0, place - newline)

    def written(digit: Any, where: int) -> int:
        return int(digit) if where < 0 else int(digit) + 1 if where == 0 else 0

    text = combine(
        lambda x, over: END if over else letters[x % base],
        combine(written, own, side),
        done,
    )
    words = (w for k in range(1, bits + 1) for w in itertools.product(letters, repeat=k))
    prompts = [[*w, "\n"] for w in itertools.islice(words, 4096)]
    letters_out = [*letters, "\n", END]
    return generator(text, alphabet=letters_out, n=2 * bits + 3, end=END, prompts=prompts)


def closing(n: int = 40, letters: str = "ab1,: ") -> Generator:
    """Completes text with its missing closing brackets, as of JSON: `{"a": [1` gives `]}$`.

    Brackets inside strings do not count; an open string is closed first. The bracket to close is
    the latest opening one at the present depth.

    Args:
        n: Largest number of tokens.
        letters: Characters besides brackets and quotes.
    """
    pairs = {"{": "}", "[": "]"}
    quotes = selector_width(select(tokens, '"')).named("quotes so far")
    inside = elementwise(lambda c: c % 2 == 1, quotes).named("inside a string")

    def sign(token: str, quoted: bool) -> int:
        return 0 if quoted else (token in pairs) - (token in pairs.values())

    change = combine(sign, tokens, inside)
    depth = selector_width(select(change, 1)) - selector_width(select(change, -1))
    at_depth = select(depth, depth) & select(change, 1)
    opened = aggregate(latest(at_depth), tokens, "").named("bracket to close")

    def closed(bracket: str, quoted: bool) -> str:
        return '"' if quoted else pairs.get(bracket, END)

    text = combine(closed, opened, inside)
    rng = np.random.default_rng(0)
    prompts = [_open_text(rng, n // 2, letters) for _ in range(300)]
    alphabet = [*letters, '"', "{", "}", "[", "]", END]
    return generator(text, alphabet=alphabet, n=n, end=END, prompts=prompts)


def _open_text(rng: np.random.Generator, length: int, letters: str) -> str:
    """Text whose brackets match as far as they are closed, possibly inside a string."""
    text, stack, quoted = "", [], False
    for _ in range(int(rng.integers(1, length + 1))):
        kind = rng.integers(5)
        if kind == 0:
            quoted, text = not quoted, text + '"'
        elif kind == 1 and not quoted and stack:
            text += stack.pop()
        elif kind <= 3:
            bracket = "{["[int(rng.integers(2))]
            text += bracket
            stack += [] if quoted else [{"{": "}", "[": "]"}[bracket]]
        else:
            text += letters[int(rng.integers(len(letters)))]
    return text


def stack_machine(length: int = 8, modulus: int = 10) -> Generator:
    """Runs a stack program and writes the top of the stack after each instruction.

    Digits are pushed; `+`, `-` and `*` replace the top two numbers by their result modulo
    `modulus`. `34+2*=` gives `34724$`. The number at height h is the latest one written at h.

    Args:
        length: Largest number of instructions.
        modulus: At most 10.
    """
    require(length >= 1, "stack_machine.length", "be at least 1", length)
    require(2 <= modulus <= 10, "stack_machine.modulus", "lie between 2 and 10", modulus)
    numbers = DIGITS[:modulus]
    equals = position_of("=").named("equals")
    pushes = elementwise(lambda t: t in numbers, tokens)
    operates = elementwise(lambda t: t in "+-*", tokens)
    height = selector_width(select(pushes, True)) - selector_width(select(operates, True))
    # The number at position e + 1 + k is the top after instruction k.
    done = at(indices - equals - 1, height, 0).named("height of this number")
    written = elementwise(lambda d: d >= 1, indices - equals)
    place = indices - equals
    instruction = at(place, tokens, "=").named("instruction")
    before = at(place - 1, height, 0).named("height before")
    result = elementwise(int, elementwise(lambda t: t if t in numbers else "0", tokens))
    stack = [
        aggregate(latest(select(done, before - k) & select(written, True)), result, 0)
        for k in range(2)
    ]

    def run(operation: str, values: tuple[int, int]) -> str:
        top, below = values
        if operation in numbers:
            return operation
        results = {"+": below + top, "-": below - top, "*": below * top}
        return numbers[results[operation] % modulus] if operation in results else END

    pair = combine(lambda a, b: (a, b), *stack)
    text = combine(run, instruction, pair)
    prompts = [_stack_program(np.random.default_rng(i), length, numbers) for i in range(300)]
    alphabet = [*numbers, *"+-*=", END]
    return generator(text, alphabet=alphabet, n=2 * length + 2, end=END, prompts=prompts)


def _stack_program(rng: np.random.Generator, length: int, numbers: str) -> str:
    text, height = "", 0
    for _ in range(int(rng.integers(1, length + 1))):
        if height >= 2 and rng.random() < 0.5:
            text, height = text + "+-*"[int(rng.integers(3))], height - 1
        else:
            text, height = text + numbers[int(rng.integers(len(numbers)))], height + 1
    return text + "="
