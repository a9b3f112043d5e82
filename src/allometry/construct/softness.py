"""How hard softmax must be before a construction works, and where it stops working."""

import math
from collections.abc import Callable

import numpy as np

from allometry.construct.dyck import DyckRecogniser


def least_scale(
    made: DyckRecogniser, rng: np.random.Generator, *, batches: int = 6, digits: float = 0.05
) -> float:
    """The least factor on the scores with which softmax gives every verdict right, by bisection.

    Tried on words, near misses and noise up to the longest length, most of them long; so it is
    what the worst of them needs, not a bound for all strings.

    Args:
        made: The recogniser.
        rng: Source of the strings.
        batches: Batches of strings tried at every factor.
        digits: Relative width at which the search stops.
    """
    trials = _trials(made, made.n, rng, batches)

    def fine(scale: float) -> bool:
        soft = made.softened(scale)
        return all(soft.compare(words, lengths)[1] == 0 for words, lengths in trials)

    return _bisect(fine, 1.0, 2.0**40, digits)


def breaking_length(
    made: DyckRecogniser, scale: float, rng: np.random.Generator, *, batches: int = 4
) -> int | None:
    """The least length at which softmax with this factor errs on a string tried; `None` if none.

    Args:
        made: The recogniser.
        scale: The factor on the scores.
        rng: Source of the strings.
        batches: Batches of strings tried at every length.
    """
    soft = made.softened(scale)

    def wrong(length: int) -> bool:
        trials = _trials(made, length, rng, batches)
        return any(soft.compare(words, lengths)[1] > 0 for words, lengths in trials)

    lengths = sorted({2 * round(2 ** (i / 4)) for i in range(1, 4 * int(math.log2(made.n)) + 1)})
    for length in [*(n for n in lengths if n < made.n), made.n]:
        if wrong(length):
            return length
    return None


def _trials(
    made: DyckRecogniser, length: int, rng: np.random.Generator, batches: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    even = max(2, length - length % 2)
    return [
        (
            np.concatenate(
                [made.language.uniform(12, even, rng), made.language.near_misses(12, even, rng)]
            ),
            np.full(24, even),
        )
        for _ in range(batches)
    ]


def _bisect(fine: Callable[[float], bool], low: float, high: float, digits: float) -> float:
    if fine(low):
        return low
    while high / low > 1 + digits:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fine(middle) else (middle, high)
    return high
