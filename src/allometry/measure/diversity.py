r"""Diversity: support size, effective number of samples, bins with different proportions.

Letters: $c_i$ the number of other samples within the tolerance of sample i, $\lambda$ eigenvalues.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import (
    BLOCK,
    Kernel,
    differences,
    nearest,
    spans,
    squared_distances,
)
from allometry.measure.sample_inputs import (
    Array,
    Map,
    generator,
    halves,
    matrix,
    pair,
    require_spread,
    subset,
    tensor,
    whole_seed,
)
from allometry.measure.ties import slack

FEWER = "instead of the"
"""Marks, in `method`, a metric that was computed with less than was asked for."""


def birthday_support(
    real: Array,
    samples: Array,
    *,
    tolerance: float | None = None,
    features: Map | None = None,
) -> Estimate:
    r"""Support size of a model, from the number of coinciding pairs of samples.

    With N equally likely values a pair coincides with probability 1/N, so
    $\hat N = n(n-1)/\sum_i c_i$; for unequal ones it is the inverse Simpson number, a lower bound.
    Infinite, with a finite lower end, if no pair coincides.

    Differs from the paper: all pairs are counted, instead of the batch size at which half of the
    batches have a duplicate; that batch size is about $\sqrt{2 \ln 2\,N}$.

    Args:
        real: Real data; their spacing sets the tolerance.
        samples: Samples of the model.
        tolerance: Distance up to which samples coincide; 0 for equal rows only. Default: a tenth
            of the median distance between a real row and its nearest neighbour.
        features: Feature map.

    References: `arora2018`.
    """
    from scipy import stats  # imported here because it is slow

    x, y = pair(real, samples, features=features)
    if tolerance is None:
        own = nearest(subset(x, 5000, generator(None)), x, 2)[0][:, 1]
        middle = float(own.median())
        # If most rows have a duplicate, only equal rows coincide.
        tolerance = middle / 10 if middle > slack(x) else 0.0
    require(tolerance >= 0, "birthday_support.tolerance", "not be negative", tolerance)
    counts = _coincidences(y.double(), tolerance)
    n = len(y)
    pairs, total = n * (n - 1) / 2, float(counts.sum()) / 2
    method = f"{total:.0f} of {pairs:.0f} pairs within {tolerance:.3g}"
    if total == 0:
        lowest = pairs / float(stats.chi2.ppf(0.975, 2) / 2)
        return Estimate(math.inf, lo=lowest, hi=math.inf, n=n, method=f"{method}; Poisson")
    u = total / pairs
    rows = counts / (n - 1)
    spread = max(0.0, u - 2 * float((rows**2).mean()) + u * u)
    first = max(0.0, float(rows.var()) - spread / (n - 1))
    variance = 4 * first / n + 2 * spread / (n * (n - 1))
    # Few coincidences are Poisson; clustered ones vary more, like fewer of them.
    effective = total / max(1.0, variance / (u / pairs))
    lo = float(stats.chi2.ppf(0.025, 2 * effective) / 2) / effective
    hi = float(stats.chi2.ppf(0.975, 2 * effective + 2) / 2) / effective
    se = math.sqrt(variance) / u**2
    return Estimate(1 / u, se=se, lo=1 / (u * hi), hi=1 / (u * lo), n=n, method=method)


def _coincidences(y: Float[Tensor, "n d"], tolerance: float) -> Float[Tensor, " n"]:
    if tolerance == 0:
        _, inverse, counts = torch.unique(y, dim=0, return_inverse=True, return_counts=True)
        return (counts[inverse] - 1).double()
    a, radius = y - y.mean(0), tolerance + slack(y)
    # The matrix product is too imprecise for a tolerance far below the size of the rows.
    error = 16 * torch.finfo(a.dtype).eps * float((a * a).sum(1).max())
    coarse = radius**2 <= 1e5 * error
    out = torch.zeros(len(y), dtype=torch.float64)
    for i in spans(len(y), max(1, BLOCK * BLOCK // len(y))):
        near = differences(y[i], y) if coarse else squared_distances(a[i], a).sqrt_()
        out[i] = (near <= radius).sum(1).double() - 1
    return out.clamp(min=0)


def vendi_score(
    samples: Array,
    *,
    kernel: Kernel | None = None,
    features: Map | None = None,
    most: int = 2000,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Effective number of different samples: $\exp(-\sum_k \lambda_k \log \lambda_k)$.

    $\lambda$ are the eigenvalues of $K/n$, $K_{ij} = k(x_i, x_j)$ with $k(x,x) = 1$. With the
    default kernel, the cosine, they are those of a d x d matrix for any n. The bias in 1/n is
    removed by halving; the interval is that of the delta method, with a minimum for nearly equal
    eigenvalues.

    Args:
        samples: Samples of the model.
        kernel: A function of two blocks of rows, 1 on the diagonal (`rbf`, for example).
        features: Feature map.
        most: Largest number of rows with a given kernel; the cost is cubic in it.
        rng: Random generator for halves and rows.

    References: `friedman2023`.
    """
    y = tensor(samples, "samples", rows=8)
    y = matrix(y if features is None else features(y), "samples", rows=8).double()
    rng = generator(rng)
    y = y if kernel is None else subset(y, most, rng)
    if kernel is None:
        norms = y.norm(dim=1, keepdim=True)
        require(float(norms.min()) > 0, "samples", "have no row of zeros for the cosine", 0.0)
        y = y / norms
    whole, influences = _spectral_entropy(y, kernel)
    pieces = [_spectral_entropy(half, kernel)[0] for half in halves(y, rng)]
    value = 2 * whole - float(np.mean(pieces))
    method = (
        f"{'cosine' if kernel is None else 'kernel given'}; delta method, bias removed by halving"
    )
    # For nearly equal eigenvalues the first order vanishes; the second remains: a bias b over the
    # r (r + 1)/2 - 1 degrees of freedom of r eigenvalues.
    effective = math.exp(whole)
    freedom = max(1.0, effective * (effective + 1) / 2 - 1)
    least = abs(whole - float(np.mean(pieces))) / math.sqrt(freedom)
    first = uncertainty.influence(value, influences, method=method)
    assert first.se is not None
    found = Estimate(value, se=max(first.se, least), n=first.n, method=method)
    return uncertainty.transformed(found, math.exp, math.exp(value), floor=1.0)


def _spectral_entropy(y: Float[Tensor, "n d"], kernel: Kernel | None) -> tuple[float, Tensor]:
    n = len(y)
    if kernel is None:
        values, vectors = torch.linalg.eigh(y.T @ y / n)
        values = values.clamp(min=0)
        weights = (y @ vectors) ** 2
    else:
        values, vectors = torch.linalg.eigh(kernel(y, y) / n)
        values = values.clamp(min=0)
        weights = vectors**2 * values * n
    entropy = -float(torch.special.xlogy(values, values).sum())
    logs = torch.where(values > 1e-300, values.clamp(min=1e-300).log(), 0.0)
    return entropy, -(weights @ logs)


def different_bins(
    real: Array,
    samples: Array,
    *,
    bins: int = 100,
    level: float = 0.05,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Share of bins in which samples and data have significantly different proportions (NDB/K).

    Bins are the k-means clusters of one half of the real rows; the other half is counted, so that
    equal distributions give about `level` of the bins. A bin needs 10 rows of that half, and there
    are no more bins than distinct rows. If K is lowered for that, `method` says so.

    Args:
        real: Real data.
        samples: Samples of the model.
        bins: K.
        level: Significance level of the test in each bin.
        features: Feature map.
        rng: Random generator for halves and centres.

    References: `richardson2018`
    """
    from scipy import stats  # imported here because it is slow
    from sklearn.cluster import MiniBatchKMeans

    x, y = pair(real, samples, rows=40, features=features)
    require_spread(x, "real")
    rng = generator(rng)
    first, second = halves(x, rng)
    requested = bins
    bins = max(2, min(bins, len(second) // 10, len(torch.unique(first, dim=0))))
    model: Any = MiniBatchKMeans(
        bins, n_init="auto", random_state=whole_seed(rng), batch_size=1024
    )
    # k-means multiplies uncentred rows.
    centre, unit = first.double().mean(0), float(first.double().std(0).max()) or 1.0
    first, second, y = ((s.double() - centre) / unit for s in (first, second, y))
    model.fit(first.numpy())
    a = np.bincount(model.predict(second.numpy()), minlength=bins)
    b = np.bincount(model.predict(y.numpy()), minlength=bins)
    n, m = len(second), len(y)
    pooled = (a + b) / (n + m)
    se = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    gap = np.abs(a / n - b / m)
    different = gap > stats.norm.ppf(1 - level / 2) * np.where(se > 0, se, np.inf)
    count = f"{bins} bins" if bins == requested else f"{bins} bins {FEWER} {requested} asked for"
    chance = f"{level:g} expected for equal distributions"
    method = f"of {count}; {chance}; no interval: tests are dependent"
    return Estimate(float(different.mean()), n=n + m, method=method)
