"""How large attention scores must be for softmax to replace hardmax in a construction."""

import math
from collections.abc import Callable

import numpy as np

from allometry.construct.dyck import DyckRecogniser
from allometry.construct.programs.compiled import Program

Trial = Callable[[float, int], bool]
"""Whether all inputs of a length give the right output with a factor on the scores."""


def least_scale(
    made: DyckRecogniser | Program,
    rng: np.random.Generator,
    *,
    inputs: int = 150,
    digits: float = 0.05,
) -> float:
    """The smallest factor on the scores with which softmax is always right, by bisection.

    Tested on random inputs of the largest length (for brackets half words, half near misses). It
    is the factor that these inputs need, not a bound for all inputs.

    Args:
        made: A Dyck recogniser or a program.
        rng: Generator of the inputs.
        inputs: Number of inputs for every factor.
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
    """The smallest length at which softmax with this factor is wrong on a tested input, or `None`.

    Args:
        made: A Dyck recogniser or a program.
        scale: The factor on the scores.
        rng: Generator of the inputs.
        inputs: Number of inputs for every length.
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

    def all_right(scale: float, length: int) -> bool:
        even = max(2, length - length % 2)
        language = made.language
        words = np.concatenate(
            [
                language.uniform(inputs // 2, even, rng),
                language.near_misses(inputs - inputs // 2, even, rng),
            ]
        )
        return made.softened(scale).compare(words, np.full(inputs, even))[1] == 0

    return all_right


def _program_trial(made: Program, rng: np.random.Generator, inputs: int) -> Trial:
    def all_right(scale: float, length: int) -> bool:
        draws = rng.integers(len(made.alphabet), size=(inputs, length)).tolist()
        with made.softened(scale):
            return made.compare([[made.alphabet[i] for i in row] for row in draws])[1] == 0

    return all_right
