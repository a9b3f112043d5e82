"""How likely is what has not been seen yet.

Letters: k kinds.
"""

import math

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate


def good_turing(counts: Int[ndarray, " k"]) -> Estimate:
    r"""Mass of all kinds not seen: $n_1 / n$, the share of observations seen just once.

    The standard error is that of `robbins1968` and kin: $\sqrt{n_1 + 2 n_2} / n$ bounds the mean
    square error.

    Args:
        counts: How often each kind was seen; zeros are ignored.

    References: `good1953`; `robbins1968`.
    """
    counts = np.asarray(counts)
    require(bool((counts >= 0).all()), "good_turing.counts", "be at least 0", counts)
    n = int(counts.sum())
    require(n >= 1, "good_turing.counts", "hold at least one observation", n)
    ones, twos = int((counts == 1).sum()), int((counts == 2).sum())
    se = math.sqrt(ones + 2 * twos) / n
    return Estimate(ones / n, se, n=n, method="kinds seen once and twice")


def laplace(counts: Int[ndarray, " k"], kinds: int, constant: float = 1.0) -> ndarray:
    r"""Probability of each of `kinds` kinds: $(c_i + a) / (n + a k)$.

    Args:
        counts: How often each was seen; those beyond the end have been seen 0 times.
        kinds: k, all that there are.
        constant: a.

    References: `laplace1814`.
    """
    counts = np.asarray(counts, dtype=np.float64)
    require(kinds >= len(counts), "laplace.kinds", f"be at least {len(counts)}", kinds)
    require(constant > 0, "laplace.constant", "be positive", constant)
    whole = np.pad(counts, (0, kinds - len(counts)))
    return (whole + constant) / (whole.sum() + constant * kinds)
