"""Exercises of the lesson on what transformers can express."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "The proof's grid has cells of side $\\delta = 1/16$, with $d = 1$ and $n = 2$. How many "
        "sequences of different columns are there, if order does not count?",
        lambda: math.comb(16, 2),
        "A column is one of 16 values; choose two different ones.",
        """
from allometry import construct, targets

made = construct.universal(targets.functions.attention, d=1, n=2, delta=1 / 16)
answer = made.certificate.contextual.sequences
""",
        tolerance=0.0,
    ),
    Exercise(
        "What is the separation rank of $(a_1 b_1 + a_2 b_2 + a_3 b_3 + a_4 b_4)^3$ between the "
        "$a$ and the $b$?",
        lambda: math.comb(4 + 3 - 1, 3),
        "Count the monomials of degree 3 in four variables.",
        """
from allometry import measure
from allometry.targets import high_rank_functions

f = high_rank_functions.inner_power(4, 3)
answer = measure.separation_rank(f, f.partition, f.inputs).value
""",
        tolerance=0.0,
    ),
    Exercise(
        "A layer of degree $d$ costs $(d + 2) N$ parameters. Which whole degree gives the most "
        "log rank per parameter?",
        lambda: max(range(2, 30), key=lambda d: math.log(d) / (d + 2)),
        "Maximise $\\ln d / (d + 2)$ over whole numbers.",
        """
from allometry.models.polynomial_degree import best_degree

answer = best_degree(2, whole=True)
""",
        tolerance=0.0,
    ),
)
