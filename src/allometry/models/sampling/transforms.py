"""Sampling from uniform numbers: inverse transform, Box-Muller, Gumbel-max, rejection.

Shapes: n draws, k outcomes, d dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate

HALVINGS = 200


def inverse_transform(
    cdf: Callable[[Float[ndarray, " n"]], Float[ndarray, " n"]],
    u: Float[ndarray, " n"],
    low: float = -1.0,
    high: float = 1.0,
) -> Float[ndarray, " n"]:
    r"""$F^{-1}(u) = \min \{c : F(c) \ge u\}$ for a CDF given as a function, jumps included.

    The bracket [low, high] is doubled until it contains every solution, then bisected until its
    ends are neighbouring floats: exact wherever F is.

    Args:
        cdf: F, on arrays.
        u: In (0, 1).
        low: Lower end of the initial bracket.
        high: Upper end of the initial bracket.
    """
    u = np.asarray(u, dtype=np.float64)
    require(bool(((u > 0) & (u < 1)).all()), "inverse_transform.u", "lie in (0, 1)", u)
    require(high > low, "inverse_transform.high", f"be above low ({low})", high)
    a, b = np.full(u.shape, float(low)), np.full(u.shape, float(high))
    for _ in range(1100):
        short, long = cdf(b) < u, cdf(a) >= u
        if not (short.any() or long.any()):
            break
        width = b - a
        a, b = np.where(long, a - width, a), np.where(short, b + width, b)
    else:
        raise InputError("inverse_transform.cdf must rise from 0 to 1; it does not reach u.")
    for _ in range(HALVINGS):
        middle = a + (b - a) / 2
        if bool(((middle <= a) | (middle >= b)).all()):
            break
        enough = cdf(middle) >= u
        a, b = np.where(enough, a, middle), np.where(enough, middle, b)
    return b


def inverse_transform_table(
    p: Float[ndarray, " k"], u: Float[ndarray, " n"]
) -> Int[ndarray, " n"]:
    """The same for a table of probabilities: the first outcome whose cumulative sum reaches u."""
    p = np.asarray(p, dtype=np.float64)
    fine = bool((p >= 0).all()) and abs(float(p.sum()) - 1) < 1e-9
    require(fine, "inverse_transform_table.p", "be probabilities that sum to 1", p)
    running = p.cumsum()
    # The last sum may be below 1 by rounding; the last possible outcome gets the rest.
    running[np.flatnonzero(p)[-1] :] = 1.0
    return np.searchsorted(running, np.asarray(u), side="left").astype(np.int64)


def box_muller(
    u: Float[ndarray, " n"], v: Float[ndarray, " n"]
) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    r"""Two independent standard normals from two uniforms in (0, 1].

    $\sqrt{-2 \log u}\,(\cos 2\pi v, \sin 2\pi v)$.

    References: `box1958`.
    """
    r, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * np.asarray(v)
    return r * np.cos(angle), r * np.sin(angle)


def gumbel_max(logits: Float[ndarray, "*b k"], rng: np.random.Generator) -> Int[ndarray, "*b"]:
    r"""$\arg\max_i (\ell_i + g_i)$ with $g_i = -\log(-\log u_i)$: a draw from softmax(logits).

    References: `maddison2014`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    return (logits + rng.gumbel(size=logits.shape)).argmax(-1)


@final
@dataclass(frozen=True)
class Rejected:
    """Draws by rejection sampling, and the acceptance rate.

    Args:
        draws: The accepted points.
        acceptance: Fraction of accepted proposals; its expectation is 1/M for normalised
            densities.
    """

    draws: ndarray
    acceptance: Estimate


def rejection(
    log_density: Callable[[ndarray], ndarray],
    propose: Callable[[int, np.random.Generator], ndarray],
    log_proposal: Callable[[ndarray], ndarray],
    log_bound: float,
    n: int,
    rng: np.random.Generator,
) -> Rejected:
    r"""`n` exact draws: x from q is accepted with probability $p(x) / (M q(x))$.

    Args:
        log_density: $\log p$, normalised or not.
        propose: `(m, rng)` to m draws from q.
        log_proposal: $\log q$.
        log_bound: $\log M$ with $p \le M q$ everywhere.
        n: Number of draws.
        rng: Random generator.

    Raises:
        InputError: A proposal has $p > M q$, so the bound does not hold.
    """
    require(n >= 1, "rejection.n", "be at least 1", n)
    taken, tried, found = [], 0, 0
    while found < n:
        x = propose(max(1000, 2 * (n - found)), rng)
        ratio = log_density(x) - log_proposal(x) - log_bound
        if bool((ratio > 1e-9).any()):
            raise InputError(
                f"rejection.log_bound must be at least {log_bound + ratio.max():.6g}; "
                f"got {log_bound:.6g}."
            )
        kept = x[np.log(rng.uniform(size=len(x))) < ratio]
        taken.append(kept)
        tried, found = tried + len(x), found + len(kept)
    share = found / tried
    se = (share * (1 - share) / tried) ** 0.5
    return Rejected(np.concatenate(taken)[:n], Estimate(share, se, n=tried, method="binomial"))
