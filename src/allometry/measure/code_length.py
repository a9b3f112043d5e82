r"""Description length: how many bits real data take in a code made from samples.

Letters: $k$ free parameters of the code, $m$ samples it was fitted to, $d$ features.
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
    r"""Bits per number to tell real rows in the two-part code fitted to the samples.

    The code is a mixture of Gaussians; the number of components is the one whose description of
    the samples is shortest, parameters counted at $\frac12\log_2 m$ bits each. Real rows are then
    told to within `bin_width`. The interval is about the real rows, given the code.

    Args:
        real: The data.
        samples: The model's.
        components: Sizes of the mixture that are tried.
        bin_width: The precision to which numbers are told.
        features: A map to features.
        most: Samples that are used.
        rng: Draws rows and starts.

    References: `rissanen1978`; `grunwald2007`
    """
    require(bin_width > 0, "description_length.bin_width", "be positive", bin_width)
    x, y = pair(real, samples, features=features)
    require_spread(y, "samples")
    rng = generator(rng)
    # An offset would cost digits, and the fit's own tolerances are in units of the data.
    centre, unit = y.double().mean(0), float(y.double().std(0).max())
    x, y = ((s.double() - centre) / unit for s in (x, y))
    a, b = x.numpy(), subset(y, most, rng).numpy()
    d, m, seed = b.shape[1], len(b), whole_seed(rng)
    # Each component needs rows to stand on; the ridge is the square of a thousandth of the spread.
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
    # Full covariances where each component has rows for them, diagonal ones elsewhere.
    kind = "full" if m > 2 * k * d and d <= 128 else "diag"
    model = GaussianMixture(
        k, covariance_type=kind, reg_covar=ridge, random_state=seed, max_iter=50, tol=1e-3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stopped early is still a code
        return model.fit(rows)


def _parameters(model: Any) -> int:
    k, d = model.n_components, model.n_features_in_
    covariance = d * (d + 1) // 2 if model.covariance_type == "full" else d
    return k * (d + covariance) + k - 1
