"""How hard softmax must be before a construction works, and where it stops working."""

import math
from collections.abc import Callable

import numpy as np

from allometry.construct.dyck import DyckRecogniser
from allometry.construct.programs.compiled import Program

Trial = Callable[[float, int], bool]
"""Whether all strings tried at a length come out right with a factor on the scores."""


def least_scale(
    made: DyckRecogniser | Program,
    rng: np.random.Generator,
    *,
    inputs: int = 150,
    digits: float = 0.05,
) -> float:
    """The least factor on the scores with which softmax gives every answer right, by bisection.

    Tried on inputs of the longest length, those of brackets half words and half near misses; so
    it is what the worst of them needs, not a bound for all there are.

    Args:
        made: A recogniser of brackets or a program.
        rng: Source of the inputs.
        inputs: How many are tried at every factor.
        digits: Relative width at which the search stops.
    """
    trial = _trial(made, rng, inputs)
    low, high = 1e-3, 2.0**40
    if trial(low, made.n):
        return low
    while high / low > 1 + digits:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if trial(middle, made.n) else (middle, high)
    return high


def breaking_length(
    made: DyckRecogniser | Program,
    scale: float,
    rng: np.random.Generator,
    *,
    inputs: int = 100,
) -> int | None:
    """The least length at which softmax with this factor errs on an input tried; `None` if none.

    Args:
        made: A recogniser of brackets or a program.
        scale: The factor on the scores.
        rng: Source of the inputs.
        inputs: How many are tried at every length.
    """
    trial = _trial(made, rng, inputs)
    lengths = {2 * round(2 ** (i / 4)) for i in range(1, 4 * int(math.log2(made.n) + 1) + 1)}
    for length in [*sorted(n for n in lengths if n < made.n), made.n]:
        if not trial(scale, length):
            return length
    return None


def _trial(made: DyckRecogniser | Program, rng: np.random.Generator, inputs: int) -> Trial:
    if isinstance(made, Program):
        return _program_trial(made, rng, inputs)

    def fine(scale: float, length: int) -> bool:
        even = max(2, length - length % 2)
        language = made.language
        words = np.concatenate(
            [
                language.uniform(inputs // 2, even, rng),
                language.near_misses(inputs - inputs // 2, even, rng),
            ]
        )
        return made.softened(scale).compare(words, np.full(inputs, even))[1] == 0

    return fine


def _program_trial(made: Program, rng: np.random.Generator, inputs: int) -> Trial:
    def fine(scale: float, length: int) -> bool:
        draws = rng.integers(len(made.alphabet), size=(inputs, length)).tolist()
        with made.softened(scale):
            return made.compare([[made.alphabet[i] for i in row] for row in draws])[1] == 0

    return fine
