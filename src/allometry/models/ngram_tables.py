"""Tables of n-grams: sorted codes, looked up by bisection, without a Python loop over tokens.

The index of an n-gram is its rank in the sorted table of its length. Its code is the index of its
(n-1)-gram prefix times V plus its last symbol: exact for any n and V, where base-V codes would
overflow. The prefix ends one token earlier, so a whole text is looked up level by level.
"""

from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from allometry._core.errors import require

ABSENT = -1
"""Index of an n-gram that does not occur."""
BEGINNING = -2
"""Index of an n-gram that would begin before the text."""


@final
class Level(NamedTuple):
    """The n-grams of one length n."""

    codes: Int[ndarray, " grams"]
    """Sorted; `codes // V` is the index of the (n-1)-gram prefix, `codes % V` the last symbol."""
    counts: Int[ndarray, " grams"]
    """How often each occurs."""
    distinct: Int[ndarray, " grams"]
    """Number of distinct symbols before it (the beginning of the text counts as one)."""


def checked(ids: object, V: int, name: str) -> Int[ndarray, "*shape"]:
    """`ids` as int64, checked against the vocabulary."""
    array = np.asarray(ids, dtype=np.int64)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    wrong = low if low < 0 else high
    require(low >= 0 and high < V, f"{name} ids", f"lie between 0 and {V - 1}", wrong)
    return array


def count(
    ids: Int[ndarray, " tokens"], order: int, V: int, boundary: int | None = None
) -> list[Level]:
    """The levels 1..order of a text.

    With a `boundary`, n-grams do not extend beyond a sentence: the boundary may only be their
    first or last symbol. Nothing comes before an n-gram that begins with it, so its `distinct` is
    its count.
    """
    levels: list[Level] = []
    number = np.zeros(len(ids) + 1, dtype=np.int64)  # index of the (n-1)-gram before each token
    inside = np.ones(len(ids), dtype=bool)  # whether the n-gram that ends here is in one sentence
    longer: ndarray | None = None
    for n in range(1, order + 1):
        # Tokens n-1.. end an n-gram; the gram before token t ends at t-1.
        inside = inside[-(len(ids) - n + 1) :]
        if boundary is not None and n > 2:
            inside = inside & (ids[1 : len(ids) - n + 2] != boundary)
        place = np.flatnonzero(inside)
        codes, first, index, counts = np.unique(
            number[place] * V + ids[n - 1 :][place],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        number = np.full(len(inside), ABSENT)
        number[place] = index
        if longer is not None:
            # The last n-1 symbols of the n-gram that ends at token t are the (n-1)-gram there.
            distinct = np.bincount(longer[1:][place[first]], minlength=len(levels[-1].codes))
            if longer[0] != ABSENT:
                distinct[longer[0]] += 1
            if boundary is not None and n > 2:
                opening = longer[(ids[: len(longer)] == boundary) & (longer != ABSENT)]
                distinct[opening] = levels[-1].counts[opening]
            levels[-1] = levels[-1]._replace(distinct=distinct)
        levels.append(Level(codes, counts, counts))
        longer = number
    return levels


def find(codes: Int[ndarray, " grams"], wanted: Int[ndarray, "*shape"]) -> Int[ndarray, "*shape"]:
    """The index of each requested code in the sorted table, or `ABSENT`."""
    if len(codes) == 0:
        return np.full(wanted.shape, ABSENT)
    place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[place] == wanted, place, ABSENT)


def after(codes: ndarray, before: ndarray, symbol: ndarray, V: int) -> ndarray:
    """The n-grams of prefix `before` and last symbol `symbol`; `ABSENT` if the prefix is."""
    return np.where(before < 0, before, find(codes, before * V + symbol))


def suffixes(codes: list[ndarray], V: int) -> list[ndarray]:
    """For every n-gram of every level, the index of the n-gram without its oldest symbol."""
    out = [np.zeros(len(codes[0]), dtype=np.int64)]
    for n in range(1, len(codes)):
        before, symbol = codes[n] // V, codes[n] % V
        out.append(find(codes[n - 1], out[-1][before] * V + symbol))
    return out
