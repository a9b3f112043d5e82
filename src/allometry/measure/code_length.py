r"""Description length: bits of the real data in a code fitted to the samples.

Letters: $k$ free parameters of the code, $m$ samples it is fitted to, $d$ features.
"""

import math
import warnings
from typing import Any

import numpy as np
import torch

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.sample_inputs import (
    Array,
    Map,
    generator,
    pair,
    require_spread,
    subset,
    whole_seed,
)


def description_length(
    real: Array,
    samples: Array,
    *,
    components: tuple[int, ...] = (1, 2, 4, 8, 16),
    bin_width: float | int = 1.0,
    features: Map | None = None,
    most: int = 5000,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Bits per number that encode the real rows in a two-part code fitted to the samples.

    The code is a mixture of Gaussians. Its number of components minimises the description length
    of the samples, with $\frac12\log_2 m$ bits per parameter. Real rows are encoded to precision
    `bin_width`. The interval is about the real rows, given the code.

    Args:
        real: Real data.
        samples: Samples of the model.
        components: Candidate numbers of components.
        bin_width: Precision of the encoded numbers.
        features: Feature map.
        most: Largest number of samples used.
        rng: Random generator for rows and starts.

    References: `rissanen1978`; `grunwald2007`
    """
    require(bin_width > 0, "description_length.bin_width", "be positive", bin_width)
    x, y = pair(real, samples, features=features)
    require_spread(y, "samples")
    rng = generator(rng)
    # An offset would lose precision, and the tolerances of the fit are in units of the data.
    centre, unit = y.double().mean(0), float(y.double().std(0).max())
    x, y = ((s.double() - centre) / unit for s in (x, y))
    a, b = x.numpy(), subset(y, most, rng).numpy()
    d, m, seed = b.shape[1], len(b), whole_seed(rng)
    # Each component needs at least 10 rows; the ridge is the square of 0.001 of the spread.
    ridge = 1e-6 * float(b.var(0).mean())
    fitted = [_mixture(b, k, ridge, seed) for k in components if k == 1 or m >= 10 * k]
    lengths = [-g.score(b) * m + 0.5 * _parameters(g) * math.log(m) for g in fitted]
    best = fitted[int(np.argmin(lengths))]
    bits = -best.score_samples(a) / (d * math.log(2)) - math.log2(bin_width / unit)
    kind = "full" if best.covariance_type == "full" else "diagonal"
    return uncertainty.mean(bits, f"mixture of {best.n_components}, {kind}; given the samples")


def _mixture(rows: np.ndarray, k: int, ridge: float, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    m, d = rows.shape
    # Full covariances if each component has enough rows, else diagonal ones.
    kind = "full" if m > 2 * k * d and d <= 128 else "diag"
    model = GaussianMixture(
        k, covariance_type=kind, reg_covar=ridge, random_state=seed, max_iter=50, tol=1e-3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit without convergence is still a valid code
        return model.fit(rows)


def _parameters(model: Any) -> int:
    k, d = model.n_components, model.n_features_in_
    covariance = d * (d + 1) // 2 if model.covariance_type == "full" else d
    return k * (d + covariance) + k - 1
