"""Exercises of the lesson on quantisation."""

import math

from allometry.course.exercise import Exercise


def _two_levels_of_an_exponential() -> float:
    # Cells [0, t] and [t, inf): means 1 - t / (e^t - 1) and t + 1; t is their midpoint.
    low, high = 0.1, 5.0
    for _ in range(80):
        t = (low + high) / 2
        middle = (1 - t / math.expm1(t) + t + 1) / 2
        low, high = (t, high) if middle > t else (low, t)
    return low


EXERCISES = (
    Exercise(
        "What is the smallest mean squared error of a quantiser with 3 levels for a uniform "
        "variable on $[0, 1]$?",
        lambda: 1 / (12 * 3**2),
        "The best cells have equal lengths.",
        """
import numpy as np
from allometry.models import quantisation

answer = quantisation.lloyd_max(np.ones_like, 3, 0, 1).distortion
""",
        tolerance=2e-3,
    ),
    Exercise(
        "Where is the edge between the two cells of the best quantiser with 2 levels for the "
        "exponential distribution with mean 1?",
        _two_levels_of_an_exponential,
        "Both conditions together: the edge is halfway between the means of its two cells.",
        """
import numpy as np
from allometry.models import quantisation

answer = quantisation.lloyd_max(lambda x: np.exp(-x), 2, 0, 40).edges[0]
""",
        tolerance=1e-3,
    ),
    Exercise(
        "How many bits per sample are necessary for a normal variable of variance 4 at a mean "
        "squared error of 0.1?",
        lambda: 0.5 * math.log2(4 / 0.1),
        "Solve D(R) = 0.1 for R.",
        """
from scipy import optimize, stats
from allometry.models import quantisation

entropy = stats.norm(scale=2).entropy()
answer = optimize.brentq(lambda R: quantisation.shannon_bound(entropy, R) - 0.1, 0, 10)
""",
        tolerance=1e-3,
    ),
)
