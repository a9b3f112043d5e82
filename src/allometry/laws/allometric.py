r"""Allometric statistics: $y = k x^a$ by four line fits of the logs, with tests of the exponent.

Letters: n points, g groups.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry._core.errors import require
from allometry._core.estimate import Estimate

Method = Literal["ols", "sma", "deming", "theil-sen"]


@final
@dataclass(frozen=True)
class Allometry:
    """A line fitted to logs: `exponent` a and `coefficient` k with their intervals.

    `r2` is the squared correlation of the logs and `p` the p-value of no correlation.
    """

    exponent: Estimate
    coefficient: Estimate
    r2: float
    p: float
    n: int
    method: str

    def __call__(self, x: Any) -> ndarray:
        """K x^a."""
        return np.asarray(self.coefficient.value * np.asarray(x, float) ** self.exponent.value)

    def words(self, isometry: float = 1.0) -> str:
        """A sentence on how y grows with x."""
        lo, hi = self.exponent.interval
        if lo <= isometry <= hi:
            linear, other = "consistent with linear", "consistent with the expected exponent"
        elif self.exponent.value > isometry:
            linear, other = "superlinear: y grows faster than x", "steeper than expected"
        else:
            linear, other = "sublinear: y grows slower than x", "shallower than expected"
        kind = linear if isometry == 1 else other
        return f"exponent {self.exponent.value:.3f} ({lo:.3f} to {hi:.3f}): {kind}"


def t_quantile(dof: float, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t."""
    return float(special.stdtrit(dof, 0.5 + level / 2))


def allometry(x: Any, y: Any, *, method: Method = "ols", ratio: float = 1.0) -> Allometry:
    r"""Fit $y = k x^a$ to positive pairs.

    - `ols`: least squares of log y on log x; intervals by Student's t on n - 2.
    - `sma`: standardised (reduced) major axis, slope $s_y/s_x$; interval
      $a(\sqrt{B + 1} \pm \sqrt{B})$ with $B = (1 - r^2) F_{1,n-2} / (n - 2)$.
    - `deming`: errors in both with variance ratio `ratio` (y's over x's); jackknife interval.
    - `theil-sen`: median of the slopes between pairs; interval by Kendall's statistic.

    Args:
        x: Positive sizes.
        y: Positive values.
        method: Kind of line fit.
        ratio: Variance ratio for `deming`.

    References:
        `warton2006` Tables 3 and 4; `sen1968`.
    """
    u, v = _logs(x, y)
    n = len(u)
    su, sv = float(u.std(ddof=1)), float(v.std(ddof=1))
    r = float(np.corrcoef(u, v)[0, 1]) if sv > 0 else 0.0
    # The t statistic of the correlation; exact lines have p = 0.
    t = abs(r) * math.sqrt((n - 2) / max(1 - r * r, 1e-300))
    p = 2 * float(special.stdtr(n - 2, -t))
    q = t_quantile(n - 2)
    if method == "ols":
        a = r * sv / su
        se = math.sqrt(max(1 - r * r, 0.0) / (n - 2)) * sv / su
        exponent = Estimate(a, se=se, lo=a - q * se, hi=a + q * se, n=n, method="OLS, t on n - 2")
    elif method == "sma":
        a = math.copysign(sv / su, r)
        B = (1 - r * r) * q * q / (n - 2)
        ends = sorted(a * (math.sqrt(B + 1) + s * math.sqrt(B)) for s in (-1, 1))
        exponent = Estimate(a, lo=ends[0], hi=ends[1], n=n, method="standardised major axis")
    elif method == "deming":
        a = _deming(u, v, ratio)
        left = np.array([_deming(np.delete(u, i), np.delete(v, i), ratio) for i in range(n)])
        se = math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
        exponent = Estimate(
            a, se=se, lo=a - q * se, hi=a + q * se, n=n, method="Deming, jackknife"
        )
    else:
        require(
            method == "theil-sen", "allometry.method", "be ols, sma, deming or theil-sen", method
        )
        exponent = _theil_sen(u, v)
    level = (
        float(np.median(v - exponent.value * u))
        if method == "theil-sen"
        else float(v.mean() - exponent.value * u.mean())
    )
    coefficient = _coefficient(u, v, exponent, level, q)
    return Allometry(exponent, coefficient, r * r, p, n, method)


def _coefficient(
    u: Float[ndarray, " n"], v: Float[ndarray, " n"], a: Estimate, level: float, q: float
) -> Estimate:
    """The coefficient with its interval: that of the intercept at log x = 0."""
    n = len(u)
    rest = v - a.value * u - level
    s2 = float((rest**2).sum()) / (n - 2)
    half = q * math.sqrt(s2 * (1 / n + u.mean() ** 2 / ((u - u.mean()) ** 2).sum()))
    lo, hi = (math.exp(min(level + s * half, 700.0)) for s in (-1, 1))
    return Estimate(math.exp(level), lo=lo, hi=hi, n=n, method=a.method)


def _logs(x: Any, y: Any) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    u, v = np.asarray(x, float).reshape(-1), np.asarray(y, float).reshape(-1)
    require(len(u) == len(v), "allometry.y", f"have {len(u)} values like x", len(v))
    require(len(u) >= 3, "allometry.x", "have at least 3 values", len(u))
    require(bool((u > 0).all()), "allometry.x", "be positive", float(u.min()))
    require(bool((v > 0).all()), "allometry.y", "be positive", float(v.min()))
    require(float(np.ptp(u)) > 0, "allometry.x", "take several values", float(u[0]))
    return np.log(u), np.log(v)


def _deming(u: Float[ndarray, " n"], v: Float[ndarray, " n"], ratio: float) -> float:
    c = np.cov(u, v)
    d = c[1, 1] - ratio * c[0, 0]
    return float((d + math.sqrt(d * d + 4 * ratio * c[0, 1] ** 2)) / (2 * c[0, 1]))


def _theil_sen(u: Float[ndarray, " n"], v: Float[ndarray, " n"]) -> Estimate:
    i, j = np.triu_indices(len(u), 1)
    apart = u[i] != u[j]
    slopes = np.sort((v[j] - v[i])[apart] / (u[j] - u[i])[apart])
    n = len(u)
    spread = 1.959963984540054 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(round((len(slopes) - spread) / 2) - 1, 0)
    high = min(round((len(slopes) + spread) / 2), len(slopes) - 1)
    return Estimate(
        float(np.median(slopes)),
        lo=float(slopes[low]),
        hi=float(slopes[high]),
        n=n,
        method="Theil-Sen",
    )


def isometry(x: Any, y: Any, *, exponent: float = 1.0, method: Method = "ols") -> float:
    """The p-value of the hypothesis that the true exponent is `exponent`.

    For `sma` the test is for zero correlation between the residual and the fitted axis; for the
    others it is Student's t of the slope.
    """
    u, v = _logs(x, y)
    n = len(u)
    if method == "sma":
        r = float(np.corrcoef(v - exponent * u, v + exponent * u)[0, 1])
        t = abs(r) * math.sqrt((n - 2) / max(1 - r * r, 1e-300))
        return 2 * float(special.stdtr(n - 2, -t))
    line = allometry(x, y, method=method)
    se = line.exponent.se
    if se is None:
        lo, hi = line.exponent.interval
        se = (hi - lo) / (2 * 1.959963984540054)
    away = abs(line.exponent.value - exponent)
    # Points on a line without scatter: rounding of the slope is the only difference left.
    se = max(se, 4 * np.finfo(float).eps * abs(line.exponent.value), 1e-300)
    return 2 * float(special.stdtr(n - 2, -away / se))


def common_exponent(groups: Mapping[str, tuple[Any, Any]]) -> tuple[Estimate, float]:
    """One exponent for several groups (each with its own k), and the p-value of equal exponents.

    Analysis of covariance: the F test of parallel lines on logs.
    """
    require(len(groups) >= 2, "common_exponent.groups", "hold at least 2 groups", len(groups))
    logs = [_logs(x, y) for x, y in groups.values()]
    sxx = sum(float(((u - u.mean()) ** 2).sum()) for u, _ in logs)
    sxy = sum(float(((u - u.mean()) * (v - v.mean())).sum()) for u, v in logs)
    a = sxy / sxx
    n, g = sum(len(u) for u, _ in logs), len(logs)
    separate = pooled = 0.0
    for u, v in logs:
        du, dv = u - u.mean(), v - v.mean()
        own = float(du @ dv) / float(du @ du)
        separate += float(((dv - own * du) ** 2).sum())
        pooled += float(((dv - a * du) ** 2).sum())
    dof = n - 2 * g
    require(dof > 0, "common_exponent.groups", "have more than 2 points each on average", n)
    F = ((pooled - separate) / (g - 1)) / max(separate / dof, 1e-300)
    p = float(special.fdtrc(g - 1, dof, F))
    se = math.sqrt(pooled / (n - g - 1) / sxx)
    q = t_quantile(n - g - 1)
    return Estimate(a, se=se, lo=a - q * se, hi=a + q * se, n=n, method="common slope"), p


@final
@dataclass(frozen=True)
class Comparison:
    """Two exponents: their ratio, and whether they agree within their errors."""

    name: str
    first: Estimate
    second: Estimate
    ratio: float
    agree: bool
    words: str


def compare(
    first: Mapping[str, Estimate | float], second: Mapping[str, Estimate | float]
) -> list[Comparison]:
    """Compare two tables of exponents, over the names they share.

    Two exponents agree if the interval of their difference includes zero; a number without error
    counts as exact.
    """
    shared = [name for name in first if name in second]
    require(bool(shared), "compare", "be given tables that share a name", list(first))
    rows = []
    for name in shared:
        a, b = _estimate(first[name]), _estimate(second[name])
        gap = a.value - b.value
        # The half-widths on the sides that face each other, added as independent errors.
        half_a = (a.interval[0] - a.value) if gap > 0 else (a.interval[1] - a.value)
        half_b = (b.interval[1] - b.value) if gap > 0 else (b.interval[0] - b.value)
        half = math.hypot(half_a, half_b)
        agree = abs(gap) <= half
        ratio = a.value / b.value if b.value else math.inf
        kind = "superlinear" if a.value > 1 else "sublinear" if a.value < 1 else "linear"
        verdict = "agree" if agree else f"differ by a factor of {ratio:.2f}"
        rows.append(
            Comparison(
                name,
                a,
                b,
                ratio,
                agree,
                f"{name}: {a.value:.3f} ({kind}) against {b.value:.3f}: {verdict}",
            )
        )
    return rows


def _estimate(value: Estimate | float) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(float(value), exact=True)


def consistent(exponent: float, r2: float, n: int, *, se: float | None = None) -> dict[str, float]:
    r"""Standard error and 95 % interval implied by a published exponent and R2.

    For least squares $se = a\sqrt{(1/R^2 - 1)/(n - 2)}$, which checks the columns of a table
    against one another. With `se` given, `ratio` is the published over the implied one.
    """
    require(0 < r2 <= 1, "consistent.r2", "lie in (0, 1]", r2)
    require(n >= 3, "consistent.n", "be at least 3", n)
    implied = abs(exponent) * math.sqrt((1 / r2 - 1) / (n - 2))
    q = t_quantile(n - 2)
    out = {"se": implied, "lo": exponent - q * implied, "hi": exponent + q * implied}
    if se is not None:
        out["ratio"] = se / implied if implied else math.inf
    return out
