r"""Maximum mean discrepancy, unbiased and in blocks, with several kernels; KID.

Letters: $k$ the kernel, $x_1..x_n$ real, $y_1..y_m$ samples, $d$ features.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Z95, Estimate
from allometry.measure.cubic_kernel import cubic_discrepancies
from allometry.measure.pair_blocks import (
    Kernel,
    PairSums,
    centred,
    pair_sums,
    self_sums,
    squared_distances,
)
from allometry.measure.sample_inputs import Array, Map, generator, pair, subset


def rbf(bandwidth: float | int) -> Kernel:
    r"""$\exp(-\|a-b\|^2 / 2h^2)$."""
    require(bandwidth > 0, "rbf.bandwidth", "be positive", bandwidth)
    return lambda a, b: squared_distances(a, b).mul_(-0.5 / bandwidth**2).exp_()


def laplacian(bandwidth: float | int) -> Kernel:
    r"""$\exp(-\|a-b\| / h)$."""
    require(bandwidth > 0, "laplacian.bandwidth", "be positive", bandwidth)
    return lambda a, b: squared_distances(a, b).sqrt_().mul_(-1 / bandwidth).exp_()


def rational_quadratic(scales: Sequence[float | int] = (0.2, 0.5, 1, 2, 5)) -> Kernel:
    r"""$\sum_\alpha (1 + \|a-b\|^2 / 2\alpha)^{-\alpha}$: a mixture of bandwidths.

    References: `binkowski2018`
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
    """Median distance between different rows of both sets pooled: the usual bandwidth."""
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
    r"""Unbiased squared maximum mean discrepancy; may be below 0 for equal distributions.

    $$\frac{\sum_{i\ne j} k(x_i,x_j)}{n(n-1)} + \frac{\sum_{i\ne j} k(y_i,y_j)}{m(m-1)}
      - \frac{2\sum_{ij} k(x_i,y_j)}{nm}$$

    The interval includes the first and second order of the U-statistic, so it keeps its coverage
    for equal distributions, where the first vanishes. Memory does not grow with n m.

    Args:
        real: Real data.
        samples: Samples of the model.
        kernel: A function of two blocks of rows. Default: `rbf` at the median distance.
        features: Feature map.
        rng: Random generator for the rows of the median.

    References: `gretton2012` Eq. (3); `sutherland2019` for the variance.
    """
    x, y = pair(real, samples, features=features)
    method = "kernel given"
    if kernel is None:
        width = median_distance(x, y, generator(rng))
        kernel, method = rbf(width), f"rbf, bandwidth {width:.4g} (median distance)"
        x, y = centred(x, y)
    return _discrepancy(x, y, kernel, method)


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

    The interval is that of the U-statistic over the pairs of rows used. The commonly reported
    spread over subsets is not a standard error: subsets share rows.

    Differs from the paper: for 100 pairs of subsets, ten subsets of each set are drawn, disjoint
    if there are enough rows, and all pairs are compared. That is also unbiased, less noisy, and
    less than half of the work.

    Args:
        real: Real data.
        samples: Samples of the model.
        features: Feature map; the original KID uses Inception features.
        subsets: Smallest number of pairs of subsets; rounded up to rows times columns.
        subset_size: Rows of each subset; all rows if there are fewer.
        rng: Random generator for subsets.

    References: `binkowski2018`.
    """
    x, y = pair(real, samples, features=features)
    require(subsets >= 1, "kid.subsets", "be at least 1", subsets)
    rng, size = generator(rng), min(subset_size, len(x), len(y))
    r = math.ceil(math.sqrt(subsets))
    c = math.ceil(subsets / r)
    xs, ys = _subsets(x, r, size, rng), _subsets(y, c, size, rng)
    value = float(cubic_discrepancies(xs, ys).mean())
    # Three pairs suffice for the variance.
    kernel = polynomial()
    moments = torch.stack(
        [
            _moments(self_sums(a, kernel), self_sums(b, kernel), pair_sums(a, b, kernel))
            for a, b in list(zip(xs, ys, strict=False))[:3]
        ]
    ).mean(0)
    exx, eyy, exy = moments[3:6].tolist()
    (x1, x2), (y1, y2) = _overlap(len(x), r, size), _overlap(len(y), c, size)
    second = (2 * exx * x2 + 2 * eyy * y2) / (size * (size - 1)) + 4 * exy * x1 * y1 / size**2
    used = size / x1, size / y1
    method = f"{r} x {c} subsets of {size}; score interval of the U-statistic"
    found = _estimate(value, moments, (size, size), used, second, method)
    return replace(found, n=len(x) + len(y))


def _subsets(
    x: Float[Tensor, "n d"], count: int, size: int, rng: torch.Generator
) -> list[Float[Tensor, "s d"]]:
    """Random subsets of successive permutations, disjoint if rows suffice."""
    each = len(x) // size
    orders = [torch.randperm(len(x), generator=rng) for _ in range(math.ceil(count / each))]
    return [x[orders[i // each][(i % each) * size :][:size]] for i in range(count)]


def _overlap(n: int, count: int, size: int) -> tuple[float, float]:
    """Mean over pairs of `_subsets` of the share of rows in common, and of its square.

    The share is 1 for a subset and itself, 0 for two of one permutation, else `size / n`.
    """
    each = n // size
    groups = [min(each, count - start) for start in range(0, count, each)]
    apart = (count**2 - sum(g * g for g in groups)) / count**2
    share = size / n
    return 1 / count + apart * share, 1 / count + apart * share**2


def _discrepancy(x: Tensor, y: Tensor, kernel: Kernel, method: str) -> Estimate:
    moments = _moments(self_sums(x, kernel), self_sums(y, kernel), pair_sums(x, y, kernel))
    n, m = len(x), len(y)
    value, _, _, exx, eyy, exy, _, _ = moments.tolist()
    second = 2 * exx / (n * (n - 1)) + 2 * eyy / (m * (m - 1)) + 4 * exy / (n * m)
    method = f"{method}; score interval of the U-statistic"
    found = _estimate(value, moments, (n, m), (n, m), second, method)
    return replace(found, n=n + m)


def _moments(xx: PairSums, yy: PairSums, xy: PairSums) -> Float[Tensor, " 8"]:
    """The discrepancy; variances of row means; second-order mean squares; traces."""
    n, m = len(xx.rows), len(yy.rows)
    mean_x, mean_y = float(xx.rows.mean()) / (n - 1), float(yy.rows.mean()) / (m - 1)
    value = mean_x + mean_y - 2 * float(xy.rows.mean()) / m
    exx = _centred_square(xx, n - 1, n - 1)
    eyy = _centred_square(yy, m - 1, m - 1)
    exy = _centred_square(xy, m, n)
    gx = float((xx.rows / (n - 1) - xy.rows / m).var())
    gy = float((yy.rows / (m - 1) - xy.columns / n).var())
    traces = xx.diagonal / n - mean_x, yy.diagonal / m - mean_y
    return torch.tensor([value, gx, gy, exx, eyy, exy, *traces], dtype=torch.float64)


def _centred_square(sums: PairSums, per_row: int, per_column: int) -> float:
    """Mean square of the kernel matrix minus its row and column means (Hoeffding)."""
    rows, columns = sums.rows / per_row, sums.columns / per_column
    whole = sums.squares / (len(rows) * per_row)
    rest = whole - float((rows**2).mean()) - float((columns**2).mean()) + float(rows.mean()) ** 2
    return max(0.0, rest)


def _estimate(
    value: float,
    moments: Float[Tensor, " 8"],
    sizes: tuple[int, int],
    used: tuple[float, float],
    second: float,
    method: str,
) -> Estimate:
    r"""The discrepancy $t$ with its score interval.

    The estimate is $|\theta + \epsilon|^2$ minus the trace of the covariance S of $\epsilon$, with
    variance $4 t \sigma^2 + V_2$: $\sigma^2$ is the variance of $\epsilon$ along $\theta$, and
    $V_2 = 2\,\mathrm{tr} S^2$ remains for equal distributions. As in Wilson's interval for a
    proportion, the variance is evaluated at each t, not at the estimate.

    Args:
        value: The estimate.
        moments: Output of `_moments`.
        sizes: Rows of the moments.
        used: Rows of the estimate.
        second: $V_2$.
        method: Description of the method.
    """
    whole, gx, gy, _, _, _, tx, ty = moments.tolist()
    # Both are quadratic in theta + epsilon at the sizes of the moments, so their ratio is stable
    # even for theta = 0; it is then scaled to the rows of the estimate.
    biased = whole + tx / sizes[0] + ty / sizes[1]
    along = (gx / used[0] + gy / used[1]) / biased if biased > 0 else 0.0
    centre = value + 2 * Z95**2 * along
    half = math.sqrt(max(0.0, centre**2 - value**2 + Z95**2 * second))
    se = math.sqrt(4 * max(value, 0.0) * along + second)
    return Estimate(value, se=se, lo=centre - half, hi=centre + half, method=method)
