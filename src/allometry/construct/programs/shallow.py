"""Programs of the library in fewer layers, for a given alphabet and largest length.

A program that sorts by ranks is a chain of heads: one finds the rank, the next one selects by it.
With a known alphabet, counts of each token take its place. With a known length, one head for
each position fetches its token, and a table selects among them. Both take more heads or neurons.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any

from allometry._core.errors import require
from allometry.construct.programs.expressions import Linear, SequenceOperator, indices, tokens
from allometry.construct.programs.library import count_of, histogram
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


def sort(alphabet: Sequence[Any]) -> SequenceOperator:
    """The tokens in ascending order, in one layer.

    The token at position i is the one whose place in the alphabet is the number of tokens v of
    the alphabet with at most i positions that are not larger than v.

    Args:
        alphabet: All tokens, in ascending order unless they are numbers.

    Example:
        >>> from allometry.construct import program
        >>> from allometry.construct.programs import shallow
        >>> made = program(shallow.sort("abc"), alphabet="abc", n=6)
        >>> "".join(made("bacab")), made.model.depth
        ('aabbc', 1)
    """
    alphabet, places = _places(alphabet, "sort")
    below = [
        numerical(combine(lambda c, i: c <= i, _at_most(place, places), indices))
        for place in range(len(alphabet) - 1)
    ]
    return elementwise(lambda r: alphabet[int(r)], _sum(below))


def count_rare(most: int, alphabet: Sequence[Hashable]) -> SequenceOperator:
    """The number of positions whose token occurs at most `most` times, in one layer.

    Args:
        most: Largest number of occurrences.
        alphabet: All tokens.
    """
    _places(alphabet, "count_rare")
    counts = [
        elementwise(lambda c: c if c <= most else 0, count_of(token), numeric=True)
        for token in alphabet
    ]
    return _sum(counts)


def reverse(alphabet: Sequence[Hashable], n: int) -> SequenceOperator:
    """The reversed input, in one layer.

    Args:
        alphabet: All tokens.
        n: Largest input length.
    """
    alphabet, places = _places(alphabet, "reverse")
    source = aggregate(latest(everything()), numerical(indices)) - indices
    return _where([source - k for k in range(n)], alphabet, places)


def sort_by_frequency(alphabet: Sequence[Hashable], n: int) -> SequenceOperator:
    """The tokens, most frequent first, in two layers; equally frequent ones as in the input.

    The first layer finds the rank of each position, by the counts of all tokens. The second one
    fetches the ranks and tokens of all positions.

    Args:
        alphabet: All tokens.
        n: Largest input length.
    """
    alphabet, places = _places(alphabet, "sort_by_frequency")
    own = histogram()

    def ahead(before: int, counts: tuple[int, int]) -> int:
        # Two frequencies sum to n at most: other cases are extended to give the smallest table.
        count, frequency = counts
        if count > frequency:
            return min(count, n - frequency)
        return min(before, frequency) if count == frequency else 0

    terms = []
    for token in alphabet:
        before = selector_width(select(tokens, token) & select(indices, indices, "<"))
        counts = combine(lambda c, h: (c, h), count_of(token), own)
        terms.append(numerical(combine(ahead, before, counts)))
    # A rank: the compiler can't see that the sum is below n.
    rank = _sum(terms, range(n))
    return _where([_at(k, rank) - indices for k in range(n)], alphabet, places)


def _where(
    offsets: Sequence[SequenceOperator], alphabet: Sequence[Any], places: dict[Any, int]
) -> SequenceOperator:
    """The token at the position whose offset is 0, in the layer that fetches them.

    Offsets are integers. With the place p in the alphabet of v tokens, offset and place are one
    number, v * offset + p: it lies in 0 ... v - 1 where the offset is 0.
    """
    size = len(alphabet)

    def place(x: Any) -> int:
        return int(x) if 0 <= x < size else 0

    token = elementwise(lambda t: places[t], tokens)
    terms = [
        elementwise(place, size * offset + _at(k, token), numeric=True)
        for k, offset in enumerate(offsets)
    ]
    # At most one term differs from 0.
    return elementwise(lambda r: alphabet[int(r)], _sum(terms, range(size)))


def _sum(terms: Sequence[SequenceOperator], known: range | None = None) -> SequenceOperator:
    """The sum of all terms at once: a table for each term, in one layer.

    Args:
        terms: Numbers.
        known: The values of the sum, if a proof gives fewer than its terms do.
    """
    ones = tuple((Fraction(1), term) for term in terms)
    return Linear(ones, Fraction(0), None if known is None else lambda values: list(known))


def _places(alphabet: Sequence[Any], name: str) -> tuple[list[Any], dict[Any, int]]:
    """The alphabet, numbers in ascending order, and the place of each token."""
    fine = len(set(alphabet)) == len(alphabet) >= 2
    require(fine, f"{name}.alphabet", "have at least two different tokens", alphabet)
    numbers = all(isinstance(token, int | float | Fraction) for token in alphabet)
    ordered = sorted(alphabet) if numbers else list(alphabet)
    return ordered, {token: i for i, token in enumerate(ordered)}


def _at_most(place: int, places: dict[Hashable, int]) -> SequenceOperator:
    return selector_width(select(elementwise(lambda t: places[t] <= place, tokens), True))


def _at(k: int, values: SequenceOperator, default: int = 0) -> SequenceOperator:
    """The number at position k, at every position."""
    return aggregate(select(indices, k), numerical(values), default)
