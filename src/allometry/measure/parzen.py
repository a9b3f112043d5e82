r"""Likelihood of data under Parzen windows on samples, exact likelihood, density coverage.

Letters: $h$ the bandwidth, $y_1..y_m$ samples (window centres), $d$ features.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize_scalar
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import BLOCK, centred, nearest, spans, squared_distances
from allometry.measure.sample_inputs import (
    Array,
    Map,
    generator,
    halves,
    matrix,
    pair,
    subset,
    whole_seed,
)
from allometry.measure.ties import slack


def parzen_log_density(
    points: Float[Tensor, "n d"], windows: Float[Tensor, "m d"], bandwidth: float
) -> Float[Tensor, " n"]:
    r"""$\log \frac1m \sum_j N(x; y_j, h^2 I)$ at each point, in blocks."""
    points, windows = centred(points.double(), windows.double())
    d = points.shape[1]
    norm = math.log(len(windows)) + d * math.log(bandwidth * math.sqrt(2 * math.pi))
    out = [
        torch.logsumexp(-squared_distances(points[i], windows) / (2 * bandwidth**2), 1)
        for i in spans(len(points), max(1, BLOCK * BLOCK // len(windows)))
    ]
    return torch.cat(out) - norm


def parzen_bandwidth(validation: Float[Tensor, "n d"], windows: Float[Tensor, "m d"]) -> float:
    """The bandwidth with the highest likelihood of the validation rows."""
    v, w = centred(validation[:300].double(), windows[:10_000].double())
    squared = squared_distances(v, w)
    d = v.shape[1]
    # Coinciding rows give no starting scale; their distance is 0 up to rounding.
    least = float(nearest(v, w)[0].median())
    start = (least if least > slack(v, w) else math.sqrt(float(squared.mean()))) / math.sqrt(d)
    require(start > 0, "samples", "vary", f"{len(w)} equal rows", "Give a bandwidth.")

    def loss(log_h: float) -> float:
        h2 = math.exp(2 * log_h)
        return float(d * log_h - torch.logsumexp(-squared / (2 * h2), 1).mean())

    centre = math.log(start)
    grid = np.linspace(centre - 3, centre + 3, 13)
    best = grid[int(np.argmin([loss(g) for g in grid]))]
    found = minimize_scalar(
        loss, bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-3}
    )
    return math.exp(float(found.x))


def parzen_log_likelihood(
    real: Array,
    samples: Array,
    *,
    bandwidth: float | None = None,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Mean log-likelihood of real rows, in nats, under Gaussian windows on the samples.

    Half of the real rows select the bandwidth and the other half are evaluated; the interval is
    about those, given samples and bandwidth. In many dimensions it says little about a model.

    References: `breuleux2011` for the practice; `theis2016` for the warning.
    """
    x, y = pair(real, samples, features=features)
    rng = generator(rng)
    if bandwidth is None:
        validation, test = halves(x, rng)
        bandwidth = parzen_bandwidth(validation, subset(y, len(y), rng))
    else:
        require(bandwidth > 0, "bandwidth", "be positive", bandwidth)
        test = x
    values = parzen_log_density(test, y, bandwidth)
    return uncertainty.mean(values, f"windows of {bandwidth:.4g}; given the samples")


def mean_log_likelihood(log_prob: Array) -> Estimate:
    """Mean exact log-likelihood, in nats, from a model's `log_prob` of independent rows."""
    values = matrix(log_prob, "log_prob")
    require(values.shape[1] == 1, "log_prob", "be one number for each row", tuple(values.shape))
    return uncertainty.mean(values[:, 0], "independent rows")


def bits_per_dimension(log_prob: Array, dim: int, *, bin_width: float | int = 1.0) -> Estimate:
    r"""$-\log_2 p(x)/d - \log_2 \delta$: bits per number at precision $\delta$.

    Args:
        log_prob: Natural logarithms of densities, one for each row.
        dim: d, numbers per row.
        bin_width: $\delta$: 1 for densities over pixels 0..255, 1/256 if these were divided by
            256.

    References: `theis2016`
    """
    require(dim >= 1, "bits_per_dimension.dim", "be at least 1", dim)
    require(bin_width > 0, "bits_per_dimension.bin_width", "be positive", bin_width)
    nats = mean_log_likelihood(log_prob)
    scale, shift = 1 / (dim * math.log(2)), -math.log2(bin_width)
    lo, hi = nats.interval
    return Estimate(
        shift - nats.value * scale,
        se=None if nats.se is None else nats.se * scale,
        lo=shift - hi * scale,
        hi=shift - lo * scale,
        n=nats.n,
        method=nats.method,
    )


def coverage_metric(
    real: Array,
    samples: Array,
    *,
    mass: float = 0.95,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Share of real rows where the model's density is as high as on `mass` of its own samples.

    $C = P_{real}(p(x) > t)$ with $P_{model}(p(x) > t) = 0.95$; 0.95 for equal distributions, less
    if modes are missing. The density is a Parzen estimate on one half of the samples; the other
    half determines bandwidth and threshold. Bootstrap over real rows and threshold samples.

    References: `tolstikhin2017`
    """
    require(0 < mass < 1, "coverage_metric.mass", "lie between 0 and 1", mass)
    x, y = pair(real, samples, rows=8, features=features)
    rng = generator(rng)
    windows, rest = halves(y, rng)
    bandwidth = parzen_bandwidth(rest, windows)
    on_real = parzen_log_density(x, windows, bandwidth).numpy()
    on_model = parzen_log_density(rest, windows, bandwidth).numpy()

    def share(sets: list[ndarray]) -> float:
        return float((sets[0] > np.quantile(sets[1], 1 - mass)).mean())

    method = f"windows of {bandwidth:.4g}; bootstrap"
    return uncertainty.bootstrap(share, [on_real, on_model], seed=whole_seed(rng), method=method)


def nearest_distance(x: Float[Tensor, "n d"]) -> float:
    """Median distance of a row to its nearest neighbour."""
    return float(nearest(x, x, itself=True)[0].median())
