"""Common programs; each is a function that returns an expression."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from allometry._core.errors import InputError, require
from allometry.construct.programs.expressions import SequenceOperator, indices, tokens
from allometry.construct.programs.loops import loop
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    elementwise,
    everything,
    latest,
    numerical,
    select,
    selector_width,
)
from allometry.construct.sequence_functions import from_file

_PAST = select(indices, indices, "<=")


def length() -> SequenceOperator:
    """The length of the input, at every position."""
    return selector_width(everything())


def reverse() -> SequenceOperator:
    """The reversed input."""
    return aggregate(select(indices, length() - indices - 1), tokens)


def histogram() -> SequenceOperator:
    """The frequency of each position's token."""
    return selector_width(select(tokens, tokens))


def rank(keys: SequenceOperator) -> SequenceOperator:
    """The index of each position after a stable sort by `keys`."""
    smaller = selector_width(select(keys, keys, "<"))
    equal_before = selector_width(select(keys, keys) & select(indices, indices, "<"))
    return smaller + equal_before


def sort(keys: SequenceOperator = tokens) -> SequenceOperator:
    """The tokens in ascending order of `keys` (default: the tokens)."""
    return aggregate(select(rank(keys), indices), tokens)


def sort_unique(keys: SequenceOperator = tokens) -> SequenceOperator:
    """The tokens in ascending order of `keys`, which must be different at all positions."""
    smaller = selector_width(select(keys, keys, "<"))
    return aggregate(select(smaller, indices), tokens)


def sort_by_frequency() -> SequenceOperator:
    """The tokens, most frequent first; equally frequent ones in order of position."""
    return sort(-histogram())


def most_frequent() -> SequenceOperator:
    """The most frequent token, at every position; ties go to the first token."""
    order = rank(-histogram())
    return aggregate(select(order, 0), tokens)


def fraction_previous(test: Callable[[Any], bool]) -> SequenceOperator:
    """The share of tokens up to each position for which `test` is true."""
    return aggregate(_PAST, numerical(elementwise(test, tokens)))


def pair_balance(opening: Hashable, closing: Hashable) -> SequenceOperator:
    """Share of opening minus share of closing tokens, up to each position."""
    sign = elementwise(lambda t: (t == opening) - (t == closing), tokens, numeric=True)
    return aggregate(_PAST, sign)


def shuffle_dyck(pairs: Sequence[Sequence[Hashable]] = ("()",)) -> SequenceOperator:
    """Whether the input is balanced in each pair separately; at every position."""
    require(len(pairs) > 0, "shuffle_dyck.pairs", "name at least one pair", pairs)
    last = select(indices, length() - 1)
    balances = [pair_balance(opening, closing) for opening, closing in pairs]
    # Counts of the pairs that fail, instead of a disjunction: sums need no layers.
    negative = _count_true([balance < 0 for balance in balances])
    open_pairs = _count_true([balance != 0 for balance in balances])
    below = aggregate(everything(), negative) > 0
    unbalanced = aggregate(last, open_pairs, default=0) > 0
    return ~(below | unbalanced)


def _count_true(tests: Sequence[SequenceOperator]) -> SequenceOperator:
    first, *others = [numerical(test) for test in tests]
    for other in others:
        first = first + other
    return first


def shifted(k: int) -> SequenceOperator:
    """The token k positions before; None at the first k positions."""
    return aggregate(select(indices, indices - k), tokens)


def detects(pattern: Sequence[Hashable]) -> SequenceOperator:
    """Whether `pattern` ends at each position; None where it could not have begun."""
    require(len(pattern) > 0, "detects.pattern", "have at least one token", pattern)
    size = len(pattern)
    found: SequenceOperator = tokens == pattern[-1]
    if size == 1:
        return found
    earlier = [shifted(k) for k in range(1, size)]
    for token, expected in zip(earlier, pattern[-2::-1], strict=True):
        found = found & (token == expected)
    return combine(lambda f, t: None if t is None else f, found, earlier[-1])


def count_of(token: Hashable) -> SequenceOperator:
    """How often `token` occurs, at every position."""
    return selector_width(select(tokens, token))


def count_rare(most: int) -> SequenceOperator:
    """The number of positions whose token occurs at most `most` times, at every position."""
    return selector_width(select(histogram() <= most, True))


def parity(token: Hashable = "1") -> SequenceOperator:
    """Whether `token` occurs an odd number of times, as 0 or 1, at every position."""
    return elementwise(lambda c: int(c) % 2, count_of(token))


def parity_by_steps(token: Hashable = "1") -> SequenceOperator:
    """Whether `token` occurs an odd number of times so far, by a loop: a position a repetition.

    A position is ready when the one before it is; it then adds what that one has counted.
    """

    def step(s: Mapping[str, SequenceOperator]) -> dict[str, SequenceOperator]:
        before = select(indices, indices - 1)
        ready = ~s["ready"] & aggregate(before, s["ready"], default=False)
        count = aggregate(before, s["bit"], default=0)
        bits = combine(lambda x, y: (x, y), s["bit"], count)
        return {
            "bit": combine(lambda r, xy: (xy[0] + xy[1]) % 2 if r else xy[0], ready, bits),
            "ready": s["ready"] | ready,
        }

    one = elementwise(lambda t: int(t == token), tokens)
    return loop({"bit": one, "ready": indices == 0}, step)


def majority(token: Hashable = "1") -> SequenceOperator:
    """Whether more than half of the tokens are `token`, at every position."""
    share = aggregate(everything(), numerical(elementwise(lambda t: t == token, tokens)))
    return elementwise(lambda x: x > Fraction(1, 2), share)


def caesar(alphabet: Sequence[Hashable], shift: int) -> SequenceOperator:
    """Every token shifted by `shift` in the alphabet."""
    place = {t: i for i, t in enumerate(alphabet)}
    return elementwise(lambda t: alphabet[(place[t] + shift) % len(alphabet)], tokens)


def induction() -> SequenceOperator:
    """The token after the latest earlier occurrence of the same token; None at the first one.

    Occurrences are numbered; a position selects the successor of the same token's previous
    occurrence.
    """
    count = selector_width(select(tokens, tokens) & select(indices, indices, "<="))
    previous = combine(lambda t, c: (t, c - 1), tokens, count)
    occurrence = combine(lambda t, c: (t, c), tokens, count)
    predecessor = aggregate(select(indices, indices - 1), occurrence)
    return aggregate(select(predecessor, previous), tokens)


def addition(base: int = 10) -> SequenceOperator:
    """The sum of two numbers written `a+b`, with as many digits as the input has tokens.

    Digits are the strings "0", "1", ...; the sum is padded with zeros on the left. A digit
    receives a carry if the first digit sum to its right that is not `base` - 1 is larger.
    """
    require(2 <= base <= 10, "addition.base", "lie between 2 and 10", base)
    size = length()
    is_plus = elementwise(lambda t: t == "+", tokens)
    plus = aggregate(latest(select(is_plus, True)), indices, default=0)
    before = elementwise(lambda d: d < 0, indices - plus)
    digit = elementwise(lambda t: int(t) if t != "+" else 0, tokens)
    from_right = size - 1 - indices
    # The digit of the first number at the same distance from the plus as this one from the end.
    partner = plus - from_right - 1
    first = aggregate(select(indices, partner), digit, default=0)
    second = combine(lambda d, b: 0 if b else d, digit, before)
    total = combine(lambda x, y: x + y, first, second)
    passes = total == base - 1
    later = selector_width(
        select(elementwise(lambda p: not p, passes), True) & select(indices, indices, ">")
    )
    key = combine(lambda p, c: -2 if p else c, passes, later)
    carry = aggregate(
        select(key, later - 1), elementwise(lambda t: int(t >= base), total), default=0
    )
    return combine(lambda s, c: str((s + c) % base), total, carry)


NAMED: dict[str, Callable[[], SequenceOperator]] = {
    "length": length,
    "reverse": reverse,
    "histogram": histogram,
    "sort": sort,
    "sort_by_frequency": sort_by_frequency,
    "most_frequent": most_frequent,
    "induction": induction,
    "shuffle_dyck_1": lambda: shuffle_dyck(["()"]),
    "shuffle_dyck_2": lambda: shuffle_dyck(["()", "{}"]),
    "pair_balance": lambda: pair_balance("(", ")"),
    "addition": addition,
    "parity": parity,
    "parity_by_steps": parity_by_steps,
    "majority": majority,
}
"""Programs without arguments, for the command line."""


def named(name: str) -> SequenceOperator:
    """The program of a name: one of `NAMED`, or `FILE.py:function` that returns one."""
    function = from_file(name)
    if function is None:
        require(
            name in NAMED, "program", f"be FILE.py:function or one of {', '.join(NAMED)}", name
        )
        return NAMED[name]()
    expr = function()
    if not isinstance(expr, SequenceOperator):
        raise InputError(f"{name} must return a program; got {type(expr).__name__}.")
    return expr
