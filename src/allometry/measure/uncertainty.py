r"""Standard errors and intervals of metrics.

Letters: $n$ observations, $a$ their values, $g$ influences (the change an observation makes to the
measure, times $n$, to first order).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.estimate import proportion as proportion

Values = Float[Tensor, " _"] | Float[ndarray, " _"]


def mean(values: Values, method: str = "independent values") -> Estimate:
    """Mean of independent values with Student's interval."""
    from scipy import stats  # imported here because it is slow

    a = np.asarray(values, dtype=np.float64)
    n, value = len(a), float(a.mean())
    if n < 2:
        return Estimate(value, n=n, method="one value: no standard error")
    se = float(a.std(ddof=1)) / math.sqrt(n)
    half = float(stats.t.ppf(0.975, n - 1)) * se
    return Estimate(value, se=se, lo=value - half, hi=value + half, n=n, method=method)


def difference(a: Values, b: Values, method: str = "two independent means") -> Estimate:
    """Mean of `a` minus mean of `b` with Welch's interval."""
    from scipy import stats  # imported here because it is slow

    first, second = mean(a), mean(b)
    va, vb = (first.se or 0.0) ** 2, (second.se or 0.0) ** 2
    se, value = math.sqrt(va + vb), first.value - second.value
    if se == 0:
        return Estimate(value, se=0.0, n=len(a) + len(b), method=method)
    freedom = (va + vb) ** 2 / (va**2 / max(1, len(a) - 1) + vb**2 / max(1, len(b) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * se
    return Estimate(
        value, se=se, lo=value - half, hi=value + half, n=len(a) + len(b), method=method
    )


def influence(value: float, *parts: Values, method: str = "delta method") -> Estimate:
    r"""A smooth function of independent sets: $\mathrm{se}^2 = \sum_s \mathrm{var}(g_s)/n_s$."""
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    variance = sum(float(a.var(ddof=1)) / len(a) for a in arrays)
    n = sum(len(a) for a in arrays)
    return Estimate(value, se=math.sqrt(variance), n=n, method=method)


def jackknife(
    value: float, *without: Values, correct: bool = True, method: str = "jackknife"
) -> Estimate:
    r"""Jackknife estimate from the leave-one-out values.

    With $\hat\theta_{(i)}$ the value without observation i of a set of n, the bias is
    $(n-1)(\bar\theta_{(\cdot)} - \hat\theta)$ and the squared standard error
    $\frac{n-1}{n}\sum_i (\hat\theta_{(i)} - \bar\theta_{(\cdot)})^2$; over several sets both add.

    References: `efron1993` chapter 11.
    """
    arrays = [np.asarray(part, dtype=np.float64) for part in without]
    bias = sum((len(a) - 1) * (float(a.mean()) - value) for a in arrays)
    variance = sum((len(a) - 1) * float(a.var()) for a in arrays)
    n = sum(len(a) for a in arrays)
    return Estimate(value - bias if correct else value, se=math.sqrt(variance), n=n, method=method)


def bootstrap(
    statistic: Callable[[list[ndarray]], float],
    sets: list[ndarray],
    *,
    repeats: int = 500,
    seed: int = 0,
    method: str = "bootstrap",
) -> Estimate:
    """A statistic of several independent sets with the percentile interval.

    References: `efron1993` chapter 13.
    """
    rng = np.random.default_rng(seed)
    value = statistic(sets)
    drawn = np.array(
        [statistic([s[rng.integers(len(s), size=len(s))] for s in sets]) for _ in range(repeats)]
    )
    lo, hi = np.quantile(drawn, [0.025, 0.975])
    n = sum(len(s) for s in sets)
    return Estimate(
        value,
        se=float(drawn.std(ddof=1)),
        lo=float(min(lo, value)),
        hi=float(max(hi, value)),
        n=n,
        method=f"{method}, {repeats} resamples",
    )


def transformed(
    estimate: Estimate,
    function: Callable[[float], float],
    slope: float,
    *,
    floor: float = -math.inf,
    ceiling: float = math.inf,
) -> Estimate:
    """An estimate transformed by an increasing function, clipped to `floor` and `ceiling`."""

    def transform(x: float) -> float:
        return min(max(function(x), floor), ceiling)

    return Estimate(
        transform(estimate.value),
        se=None if estimate.se is None else estimate.se * abs(slope),
        lo=None if estimate.lo is None else transform(estimate.lo),
        hi=None if estimate.hi is None else transform(estimate.hi),
        n=estimate.n,
        exact=estimate.exact,
        method=estimate.method,
    )


def p_value(exceeding: int, repeats: int, method: str = "permutation") -> Estimate:
    r"""$(1 + \#\{T_b \ge T\})/(1 + B)$, with the Monte Carlo interval of its B draws.

    References: `phipson2010`.
    """
    from scipy import stats  # imported here because it is slow

    value = (1 + exceeding) / (1 + repeats)
    lo = (
        0.0 if exceeding == 0 else float(stats.beta.ppf(0.025, exceeding, repeats - exceeding + 1))
    )
    top = exceeding == repeats
    hi = 1.0 if top else float(stats.beta.ppf(0.975, exceeding + 1, repeats - exceeding))
    se = math.sqrt(value * (1 - value) / repeats)
    return Estimate(
        value,
        se=se,
        lo=min(lo, value),
        hi=max(hi, value),
        n=repeats,
        method=f"{method}, {repeats} draws; the interval is their Monte Carlo error",
    )


def randomised_p_value(
    observed: float,
    drawn: Float[ndarray, " B"],
    rng: np.random.Generator,
    *,
    method: str = "permutation",
    tie: float | None = None,
) -> Estimate:
    r"""The p-value of a statistic that is large under the alternative, with ties split at random.

    A statistic of discrete data often equals its permuted values. Counting all of those as
    exceeding makes the test conservative, counting none anti-conservative. A random share of them
    counts, which makes the level exact if draws and observation are exchangeable.

    Args:
        observed: The statistic.
        drawn: Its values under the null hypothesis.
        rng: Random generator for the share of ties.
        method: Origin of `drawn`.
        tie: The share of ties that count as exceeding. Default: random.

    References: `phipson2010`; `lehmann2005` section 15.2 for the split.
    """
    share = float(rng.random()) if tie is None else tie
    # Equal statistics may differ in the last digits, because the order of summation differs.
    within = 1e-10 * max(abs(observed), float(np.abs(drawn).max()))
    above = int((drawn > observed + within).sum())
    ties = int((np.abs(drawn - observed) <= within).sum())
    return p_value(above + int(rng.binomial(ties, share)), len(drawn), method)


def median(values: Sequence[float], method: str = "order statistics") -> Estimate:
    r"""The median with a distribution-free 95 % interval.

    It ranges from the k-th smallest to the k-th largest value, k the largest with
    $2\,P(\mathrm{Bin}(n, \frac12) < k) \le 0.05$: at least 95 % for every continuous distribution.
    With fewer than six values no such interval exists, and the ends are infinite.

    Example:
        >>> print(median([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]))
        3.5 (1 to 6)
    """
    from scipy import stats  # imported here because it is slow

    x = np.sort(np.asarray(values, float))
    require(len(x) >= 1, "median.values", "have at least one", len(x))
    k = int(stats.binom.ppf(0.025, len(x), 0.5))
    lo, hi = (float(x[k - 1]), float(x[-k])) if k else (-math.inf, math.inf)
    middle = float(x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2
    return Estimate(middle, lo=lo, hi=hi, n=len(x), method=method)
