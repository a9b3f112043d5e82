r"""Maximum mean discrepancy: unbiased, over several kernels, in blocks; KID is one of them.

Letters: $k$ the kernel, $x_1..x_n$ real, $y_1..y_m$ samples, $d$ features.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure.blocks import (
    Kernel,
    PairSums,
    centred,
    pair_sums,
    self_sums,
    squared_distances,
)
from allometry.measure.cubic import cubic_discrepancy
from allometry.measure.inputs import Array, Map, generator, pair, subset


def rbf(bandwidth: float | int) -> Kernel:
    r"""$\exp(-\|a-b\|^2 / 2h^2)$."""
    require(bandwidth > 0, "rbf.bandwidth", "be positive", bandwidth)
    return lambda a, b: squared_distances(a, b).mul_(-0.5 / bandwidth**2).exp_()


def laplacian(bandwidth: float | int) -> Kernel:
    r"""$\exp(-\|a-b\| / h)$."""
    require(bandwidth > 0, "laplacian.bandwidth", "be positive", bandwidth)
    return lambda a, b: squared_distances(a, b).sqrt_().mul_(-1 / bandwidth).exp_()


def rational_quadratic(scales: Sequence[float | int] = (0.2, 0.5, 1, 2, 5)) -> Kernel:
    r"""$\sum_\alpha (1 + \|a-b\|^2 / 2\alpha)^{-\alpha}$: many bandwidths at once.

    References: `binkowski2018` section 4.
    """
    require(min(scales) > 0, "rational_quadratic.scales", "be positive", scales)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squared = squared_distances(a, b)
        return sum((squared / (2 * s)).add_(1).pow_(-s) for s in scales)  # type: ignore[return-value]

    return kernel


def polynomial(degree: int = 3, constant: float | int = 1) -> Kernel:
    r"""$(a^\top b / d + c)^p$, by default KID's cubic kernel."""
    require(degree >= 1, "polynomial.degree", "be at least 1", degree)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        inner = torch.addmm(a.new_full((1, 1), constant), a, b.T, alpha=1 / a.shape[1])
        return inner * inner * inner if degree == 3 else inner.pow_(degree)

    return kernel


def distance_kernel() -> Kernel:
    r"""$-\|a-b\|$, whose discrepancy is the energy distance."""
    return lambda a, b: squared_distances(a, b).sqrt_().neg_()


def median_distance(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], rng: torch.Generator, most: int = 1000
) -> float:
    """Median distance between different rows of both sets together: the usual bandwidth."""
    pool = torch.cat([subset(x, most // 2, rng), subset(y, most // 2, rng)])
    upper = torch.triu_indices(len(pool), len(pool), 1)
    found = squared_distances(*centred(pool, pool))[upper[0], upper[1]]
    middle = float(found[found > 0].median()) if bool((found > 0).any()) else 0.0
    require(middle > 0, "real and samples", "vary", f"{len(pool)} equal rows")
    return math.sqrt(middle)


def mmd2(
    real: Array,
    samples: Array,
    *,
    kernel: Kernel | None = None,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Unbiased squared maximum mean discrepancy; below 0 by chance where the laws are equal.

    $$\frac{\sum_{i\ne j} k(x_i,x_j)}{n(n-1)} + \frac{\sum_{i\ne j} k(y_i,y_j)}{m(m-1)}
      - \frac{2\sum_{ij} k(x_i,y_j)}{nm}$$

    The standard error holds the U-statistic's first and second order, so the interval keeps its
    coverage under equal laws, where the first vanishes. Memory does not grow with n m.

    Args:
        real: The data.
        samples: The model's.
        kernel: A function of two blocks of rows; `rbf` at the median distance unless given.
        features: A map to features.
        rng: Draws the rows behind the median.

    References: `gretton2012` Eq. (3); `sutherland2019` for the variance.
    """
    x, y = pair(real, samples, features=features)
    words = "kernel given"
    if kernel is None:
        width = median_distance(x, y, generator(rng))
        kernel, words = rbf(width), f"rbf, bandwidth {width:.4g} (median distance)"
        x, y = centred(x, y)
    return _discrepancy(x, y, kernel, words)


def energy_distance(real: Array, samples: Array, *, features: Map | None = None) -> Estimate:
    r"""$2\,E\|X-Y\| - E\|X-X'\| - E\|Y-Y'\|$, unbiased: `mmd2` with the kernel $-\|a-b\|$.

    References: `szekely2013`.
    """
    x, y = pair(real, samples, features=features)
    return _discrepancy(*centred(x, y), distance_kernel(), "energy distance")


def kid(
    real: Array,
    samples: Array,
    *,
    features: Map | None = None,
    subsets: int = 100,
    subset_size: int = 1000,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Kernel distance (KID): mean over random subsets of `mmd2` with the cubic kernel.

    The standard error is that of the whole sets' discrepancy plus the noise of drawing the
    subsets. The spread over subsets that others print is neither: subsets share rows.

    Args:
        real: The data.
        samples: The model's.
        features: A map to features; KID proper has Inception's.
        subsets: How many.
        subset_size: Rows of each; all rows where there are fewer.
        rng: Draws the subsets.

    References: `binkowski2018`.
    """
    x, y = pair(real, samples, features=features)
    require(subsets >= 1, "kid.subsets", "be at least 1", subsets)
    rng, size = generator(rng), min(subset_size, len(x), len(y))
    kernel = polynomial()
    values, first, second = [], [], []
    for index in range(subsets):
        a, b = subset(x, size, rng), subset(y, size, rng)
        # Five subsets tell the variance well enough; the others need only their sums.
        if index >= 5:
            values.append(cubic_discrepancy(a, b))
            continue
        value, zetas, degenerate = _moments(
            self_sums(a, kernel), self_sums(b, kernel), pair_sums(a, b, kernel)
        )
        values.append(value)
        first.append(zetas)
        second.append(degenerate)
    zeta, spread = torch.tensor(first).mean(0), torch.tensor(second).mean(0)
    found = torch.tensor(values, dtype=torch.float64)
    drawing = float(found.var()) / subsets if subsets > 1 else 0.0
    variance = _variance(zeta, spread, len(x), len(y)) + drawing
    words = f"{subsets} subsets of {size}; U-statistic of all rows and the drawing of subsets"
    return Estimate(float(found.mean()), se=math.sqrt(variance), n=len(x) + len(y), method=words)


def _discrepancy(x: Tensor, y: Tensor, kernel: Kernel, words: str) -> Estimate:
    xx, yy, xy = self_sums(x, kernel), self_sums(y, kernel), pair_sums(x, y, kernel)
    value, zetas, degenerate = _moments(xx, yy, xy)
    n, m = len(x), len(y)
    variance = _variance(torch.tensor(zetas), torch.tensor(degenerate), n, m)
    return Estimate(
        value, se=math.sqrt(variance), n=n + m, method=f"{words}; U-statistic variance"
    )


def _moments(
    xx: PairSums, yy: PairSums, xy: PairSums
) -> tuple[float, tuple[float, float], tuple[float, float, float]]:
    """The discrepancy, its first-order variances and its second-order mean squares."""
    n, m = len(xx.rows), len(yy.rows)
    value = float(xx.rows.sum()) / (n * (n - 1)) + float(yy.rows.sum()) / (m * (m - 1))
    value -= 2 * float(xy.rows.sum()) / (n * m)
    exx = _centred_square(xx, n - 1, n - 1)
    eyy = _centred_square(yy, m - 1, m - 1)
    exy = _centred_square(xy, m, n)
    # The observed spread of row means holds the spread of the means themselves and the noise of
    # averaging over finitely many columns; taking the noise off leaves the first order alone.
    gx = float((xx.rows / (n - 1) - xy.rows / m).var()) - exx / (n - 1) - exy / m
    gy = float((yy.rows / (m - 1) - xy.columns / n).var()) - eyy / (m - 1) - exy / n
    return value, (max(0.0, gx), max(0.0, gy)), (exx, eyy, exy)


def _centred_square(sums: PairSums, per_row: int, per_column: int) -> float:
    """Mean square of the kernel's matrix less its row and column means (Hoeffding's rest)."""
    rows, columns = sums.rows / per_row, sums.columns / per_column
    whole = sums.squares / (len(rows) * per_row)
    rest = whole - float((rows**2).mean()) - float((columns**2).mean()) + float(rows.mean()) ** 2
    return max(0.0, rest)


def _variance(zetas: Tensor, degenerate: Tensor, n: int, m: int) -> float:
    first = 4 * float(zetas[0]) / n + 4 * float(zetas[1]) / m
    exx, eyy, exy = degenerate.tolist()
    second = 2 * exx / (n * (n - 1)) + 2 * eyy / (m * (m - 1)) + 4 * exy / (n * m)
    return first + second
