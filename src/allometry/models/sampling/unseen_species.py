"""Probability of unseen species.

Shapes: k kinds.
"""

import math

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate


def good_turing(counts: Int[ndarray, " k"]) -> Estimate:
    r"""Total probability of unseen species: $n_1 / n$, the fraction of singletons.

    The standard error $\sqrt{n_1 + 2 n_2} / n$ bounds the root mean square error (`robbins1968`).

    Args:
        counts: Number of observations of each species; zeros are ignored.

    References: `good1953`; `robbins1968`.
    """
    counts = np.asarray(counts)
    require(bool((counts >= 0).all()), "good_turing.counts", "be at least 0", counts)
    n = int(counts.sum())
    require(n >= 1, "good_turing.counts", "contain at least one observation", n)
    ones, twos = int((counts == 1).sum()), int((counts == 2).sum())
    se = math.sqrt(ones + 2 * twos) / n
    return Estimate(ones / n, se, n=n, method="kinds seen once and twice")


def laplace(counts: Int[ndarray, " k"], kinds: int, constant: float = 1.0) -> ndarray:
    r"""Probability of each of `kinds` species: $(c_i + a) / (n + a k)$.

    Args:
        counts: Number of observations of each; missing ones count as 0.
        kinds: k, the number of species.
        constant: a.

    References: `laplace1814`.
    """
    counts = np.asarray(counts, dtype=np.float64)
    require(kinds >= len(counts), "laplace.kinds", f"be at least {len(counts)}", kinds)
    require(constant > 0, "laplace.constant", "be positive", constant)
    whole = np.pad(counts, (0, kinds - len(counts)))
    return (whole + constant) / (whole.sum() + constant * kinds)
