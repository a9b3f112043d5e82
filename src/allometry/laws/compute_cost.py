"""Compute as a function of size and data, and the path of the runs in size and data.

Letters: n runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.runs_table import RunsTable


@final
@dataclass(frozen=True)
class ComputeCost:
    r"""$C = \kappa(N)\, N D$ with $\log\kappa = c_0 + c_1 (\log N - \bar n)$.

    $\kappa = 6$ by default. The counted FLOPs of small models differ from $6 N D$ (embeddings,
    attention), so $\kappa$ is fitted to a C column if there is one. Outside the sizes of the runs
    it keeps its value at the nearest size.

    References:
        `kaplan2020` section 2.1 (C = 6 N D).
    """

    level: float = float(np.log(6.0))
    slope: float = 0.0
    mid: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    def log_ratio(self, n: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log of FLOPs per parameter and token at log size `n`."""
        return self.level + self.slope * (np.clip(n, self.low, self.high) - self.mid)

    def compute(self, n: Float[ndarray, "..."], d: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log compute of log size `n` and log data `d`."""
        return n + d + self.log_ratio(n)

    def data(self, c: Float[ndarray, "..."], n: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log data for log compute `c` at log size `n`."""
        return c - n - self.log_ratio(n)

    def size(self, c: Float[ndarray, "..."], d: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log size for log compute `c` with log data `d`."""
        n = c - d - self.level
        for _ in range(60):  # a contraction: |slope| < 1
            n = c - d - self.log_ratio(n)
        return n


def cost_of(table: RunsTable) -> ComputeCost:
    """The cost relation of the runs: fitted if N, D and C are all given, else 6ND."""
    if not {"N", "D", "C"} <= table.given:
        return ComputeCost()
    n = table.logs["N"]
    ratio = table.logs["C"] - n - table.logs["D"]
    mid = float(n.mean())
    level, slope = float(ratio.mean()), 0.0
    if len(np.unique(n)) >= 3:
        around = n - mid
        slope = float((around @ ratio) / (around @ around))
        slope = float(np.clip(slope, -0.8, 0.8))
    return ComputeCost(level, slope, mid, float(n.min()), float(n.max()))


@final
@dataclass(frozen=True)
class Path:
    """The line in (log C, log N, log D) on which the runs lie.

    `of[name]` is (value at the mean log C, slope against log C); `mean` is the mean log C.
    """

    mean: float
    of: dict[str, tuple[float, float]]

    def at(self, name: str, c: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log of variable `name` at log compute `c` on the path."""
        level, slope = self.of[name]
        return level + slope * (c - self.mean)

    def compute(self, name: str, value: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Log compute at which log `name` equals `value` on the path."""
        level, slope = self.of[name]
        return self.mean + (value - level) / slope


def path_of(table: RunsTable) -> Path | None:
    """The path of the runs if N determines D (or one of them is constant), else None."""
    if not {"N", "D", "C"} <= set(table.logs) or not table.varies("C"):
        return None
    c = table.logs["C"]
    mean = float(c.mean())
    both = table.varies("N") and table.varies("D")
    of = {}
    for name in ("N", "D"):
        x = table.logs[name]
        slope = float(np.cov(c, x)[0, 1] / c.var(ddof=1))
        away = x - x.mean() - slope * (c - mean)
        # On the line: residuals below 2 % of the spread of log compute. If only N or D varies, it
        # determines C, even if the FLOPs of the output layer bend the line.
        if away.std() > 0.02 * max(float(c.std()), 1e-12) and both:
            return None
        of[name] = (float(x.mean()), slope if abs(slope) > 1e-6 else 0.0)
    return Path(mean, of)


def vary_independently(table: RunsTable) -> bool:
    """Whether size and data both vary and N does not determine D."""
    return table.varies("N") and table.varies("D") and path_of(table) is None
