"""Exercises of the lesson on autoregression."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "How many bits does the LZ78 predictor of bits spend on 15 zeros in a row?",
        # The phrases are 0, 00, ..., 00000; the weights on the way of phrase k telescope to
        # 1 / (k + 1).
        lambda: math.log2(math.factorial(6)),
        "The phrases are 0, 00, 000, 0000, 00000, and the k-th has probability 1 / (k + 1).",
        """
import numpy as np
from allometry.models import LZ78

log_p = LZ78(vocabulary=2).update(np.zeros(15, dtype=int))
answer = -log_p.sum().item() / np.log(2)
""",
        tolerance=1e-3,
    ),
    Exercise(
        "A process is $x_t = e_t + 2.5\\,e_{t-1}$ with white noise $e$ of variance 1. What is the "
        "smallest mean-square error of a prediction of $x_t$ from the infinite past of $x$?",
        # The zero at -2.5 is reflected into the unit circle, and the gain becomes 2.5.
        lambda: 2.5**2,
        "It is not 1: the filter is not minimum phase, so the past of x does not give e. Use "
        "`szego` on the spectrum.",
        """
import numpy as np
from allometry.models.linear_process import szego

omega = 2 * np.pi * np.arange(4096) / 4096
answer = szego(np.abs(1 + 2.5 * np.exp(-1j * omega)) ** 2)
""",
        tolerance=1e-3,
    ),
    Exercise(
        "A process has the autocovariances $r_0 = 1$, $r_1 = 0.8$, $r_2 = 0.5$. Which $r_3$ makes "
        "its entropy rate as large as possible?",
        lambda: _third_lag(0.8, 0.5),
        "Fit the AR(2) with these lags and continue its autocovariance.",
        """
import numpy as np
from allometry.models.linear_process import maximum_entropy

answer = maximum_entropy(np.array([1.0, 0.8, 0.5]), 3)[3]
""",
        tolerance=1e-3,
    ),
)


def _third_lag(a: float, b: float) -> float:
    # The determinant of the Toeplitz matrix of r_0..r_3 is largest there: it is a parabola in r_3,
    # so its maximum is where the cofactors of r_3 cancel, by Cramer's rule for AR(2).
    first, second = a * (1 - b) / (1 - a * a), (b - a * a) / (1 - a * a)
    return first * b + second * a
