"""A value with its uncertainty, as every measure and every law returns it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

Z95 = 1.959963984540054
"""The 0.975 quantile of the standard normal distribution."""


@final
@dataclass(frozen=True)
class Estimate:
    """A number with a standard error or an interval.

    Give either a standard error `se` (the 95 % interval is then `value ± 1.96 se`) or the
    interval `lo, hi` itself, which may be asymmetric. `exact=True` marks a number without
    statistical error, such as an exhaustive count.

    Args:
        value: The point estimate.
        se: Standard error; `None` if only an interval is known.
        lo: Lower end of the interval at `level`.
        hi: Upper end.
        level: Nominal coverage of `(lo, hi)`.
        n: Number of observations.
        exact: Whether there is no statistical error.
        method: Method of the uncertainty estimate.

    Example:
        >>> from allometry import Estimate
        >>> x = Estimate(1.5172, se=0.0031)
        >>> print(x)
        1.5172 ± 0.0031
        >>> f"{x:.2f}"
        '1.52'
        >>> x.covers(1.52)
        True
    """

    value: float
    se: float | None = None
    lo: float | None = None
    hi: float | None = None
    level: float = 0.95
    n: int | None = None
    exact: bool = False
    method: str = ""

    def __post_init__(self) -> None:
        if self.exact and self.se is None:
            object.__setattr__(self, "se", 0.0)
        if self.se is not None and (self.lo is None or self.hi is None):
            # Z95 is valid only at 95 %: any other level needs explicit ends.
            half = Z95 * self.se
            if self.lo is None:
                object.__setattr__(self, "lo", self.value - half)
            if self.hi is None:
                object.__setattr__(self, "hi", self.value + half)

    @property
    def interval(self) -> tuple[float, float]:
        """`(lo, hi)`; an unknown end is infinite."""
        return (
            -math.inf if self.lo is None else self.lo,
            math.inf if self.hi is None else self.hi,
        )

    def covers(self, truth: float) -> bool:
        """Whether `truth` lies inside the interval."""
        lo, hi = self.interval
        return lo <= truth <= hi

    def through(self, f: Callable[[float], float], slope: float) -> "Estimate":
        """The estimate of f(x) for an increasing f.

        The ends of the interval are mapped by f; the standard error is scaled by the slope (the
        delta method).

        Args:
            f: An increasing function.
            slope: Its derivative at the value.
        """

        def at(x: float | None) -> float | None:
            return None if x is None else f(x)

        return Estimate(
            f(self.value),
            se=None if self.se is None else slope * self.se,
            lo=at(self.lo),
            hi=at(self.hi),
            level=self.level,
            n=self.n,
            exact=self.exact,
            method=self.method,
        )

    def to_dict(self) -> dict[str, Any]:
        """`{"value", "se", "lo", "hi"}` with `None` for unknown or infinite numbers."""

        def finite(x: float | None) -> float | None:
            return None if x is None or not math.isfinite(x) else float(x)

        return {k: finite(getattr(self, k)) for k in ("value", "se", "lo", "hi")}

    def __float__(self) -> float:
        return float(self.value)

    def item(self) -> "Estimate":
        """This estimate; the same call works for an array of one estimate."""
        return self

    def __format__(self, spec: str) -> str:
        """Format the value (`f"{x:.3f}"`); without a format, as `str`."""
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:g}"
        if self.se is not None and math.isfinite(self.se) and self.se > 0 and not self._skewed:
            digits = max(0, 1 - math.floor(math.log10(self.se)))
            if digits <= 12 and abs(self.value) < 1e6:
                return f"{self.value:.{digits}f} ± {self.se:.{digits}f}"
            return f"{self.value:.4g} ± {self.se:.2g}"
        if self.lo is not None and self.hi is not None:
            return f"{self.value:.4g} ({self.lo:.4g} to {self.hi:.4g})"
        return f"{self.value:.4g}"

    @property
    def _skewed(self) -> bool:
        """Whether the interval is so asymmetric that a standard error would misstate it."""
        if self.lo is None or self.hi is None:
            return False
        below, above = self.value - self.lo, self.hi - self.value
        return max(below, above) > 2 * min(below, above)

    def _repr_html_(self) -> str:
        """The value and its interval, for notebooks."""
        from html import escape

        level = "" if self.exact or self.lo is None else f"{100 * self.level:g} % interval"
        lo, hi = self.interval
        ends = "" if not level else f" <small>({level} {lo:.4g} to {hi:.4g})</small>"
        title = f' title="{escape(self.method)}"' if self.method else ""
        return f"<span{title}><strong>{self.value:.6g}</strong>{ends}</span>"


def proportion(hits: float, n: float, method: str = "Wilson") -> Estimate:
    """A proportion with Wilson's 95 % interval, which keeps its coverage near 0 and 1.

    Counts need not be integers: dependent rows have a smaller effective number.

    References: `wilson1927`.

    Example:
        >>> print(proportion(0, 10))
        0 (0 to 0.2775)
    """
    p = hits / n
    scale = 1 + Z95**2 / n
    centre = (p + Z95**2 / (2 * n)) / scale
    half = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)) / scale
    se = math.sqrt(p * (1 - p) / n)
    lo, hi = min(p, centre - half), max(p, centre + half)
    return Estimate(p, se=se, lo=lo, hi=hi, n=round(n), method=method)
