"""Exercises of the lesson on growth."""

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "In a flat animal the vessels fill two dimensions, and large vessels conserve their "
        "cross-section. Which exponent has an infinite network of such vessels?",
        lambda: 2 / 3,
        "Lengths shrink by $n^{-1/2}$ at a fork, so $\\gamma\\beta^2 = n^{-3/2}$.",
        """
from allometry.laws import branching

answer = branching.local_exponent(branching.BranchingNetwork(200, dimension=2))
""",
        tolerance=1e-3,
    ),
    Exercise(
        "A city grows tenfold, and its total wages scale as in the table of Bettencourt et al. "
        "By which factor do wages per person grow?",
        lambda: 10**0.12,
        "Total wages have the exponent 1.12; divide by the population.",
        """
from allometry.laws import published

(wages,) = [row for row in published.cities() if row.quantity == "total wages"]
answer = 10 ** (wages.exponent.value - 1)
""",
        tolerance=1e-3,
    ),
    Exercise(
        "By the law of Hoffmann et al. in this lesson, what is the compute-optimal number of "
        "parameters for $10^{21}$ FLOP, with $C = 6ND$?",
        # d/dN of A N^-alpha + B (6 N / C)^beta vanishes.
        lambda: (0.34 * 406.4 / (0.28 * 410.7) * (1e21 / 6) ** 0.28) ** (1 / (0.34 + 0.28)),
        "Put D = C / 6N into the law and set its derivative in N to zero.",
        """
import numpy as np

N = np.geomspace(1e8, 1e11, 100_000)
loss = 1.69 + 406.4 / N**0.34 + 410.7 / (1e21 / 6 / N) ** 0.28
answer = N[loss.argmin()]
""",
        tolerance=2e-3,
    ),
)
