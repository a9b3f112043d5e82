r"""Fréchet distance between Gaussians fitted to features (FID), and its infinite-sample limit.

Letters: $\mu, \Sigma$ mean and covariance of the real features, $\nu, \Lambda$ of the samples'.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.sample_inputs import Array, Map, generator, pair, require_rank

_FIX = "Give more rows, fewer features (pca), or use kid, which needs no covariance."


def frechet_distance(real: Array, samples: Array, *, features: Map | None = None) -> Estimate:
    r"""Squared Fréchet distance of two fitted Gaussians; FID when the features are Inception's.

    $$\|\mu - \nu\|^2 + \mathrm{tr}\bigl(\Sigma + \Lambda
      - 2(\Sigma^{1/2}\Lambda\Sigma^{1/2})^{1/2}\bigr)$$

    It is biased upwards by about $c/n$. The interval is that of the delta method, with influence
    $2(\mu-\nu)^\top(x-\mu) + (x-\mu)^\top(I-T)(x-\mu)$, T the matrix of the transport map. It is
    about the expectation at these sample sizes, so compare only values of equal n, or use
    `frechet_distance_infinity`. For equal distributions it is conservative.

    References: `heusel2017`; `dowson1982` for the closed form.
    """
    x, y = _checked(real, samples, features)
    value, g, h = _distance(x, y, influences=True)
    n = min(len(x), len(y))
    method = f"delta method; about the expectation at n = {n}, which is biased upwards"
    found = uncertainty.influence(value, g, h, method=method)
    return uncertainty.transformed(found, lambda v: v, 1.0, floor=0.0)


def frechet_distance_infinity(
    real: Array,
    samples: Array,
    *,
    features: Map | None = None,
    pieces: int = 4,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Fréchet distance extrapolated to infinitely many samples, without the bias in $1/n$.

    The sets are cut into k = 1, 2, ... disjoint pieces; the mean over the pieces of size n/k is
    linear in k/n, and the result is its value at 0. It may be below 0 by chance.

    Differs from the paper: disjoint pieces of both sets instead of random subsets of one, which
    uses all data at every size and adds no sampling noise.

    Args:
        real: Real data.
        samples: Samples of the model.
        features: Feature map.
        pieces: The largest k; smaller if pieces would have fewer than 2 d rows.
        rng: Random generator for pieces.

    References: `chong2020`.
    """
    x, y = _checked(real, samples, features)
    rng = generator(rng)
    d, n = x.shape[1], min(len(x), len(y))
    pieces = min(pieces, n // (2 * d + 1))
    require(pieces >= 2, "frechet_distance_infinity", f"have {4 * d + 2} rows or more", n, _FIX)
    x, y = (s[torch.randperm(len(s), generator=rng)] for s in (x, y))
    ks = np.arange(1, pieces + 1)
    means = []
    for k in ks:
        parts = zip(x.tensor_split(int(k)), y.tensor_split(int(k)), strict=True)
        means.append(np.mean([_distance(a, b)[0] for a, b in parts]))
    slope, limit = np.polyfit(ks, means, 1)
    _, g, h = _distance(x, y, influences=True)
    method = f"line through {pieces} sizes; delta method; bias of {slope:.3g} removed"
    return uncertainty.influence(float(limit), g, h, method=method)


def _checked(real: Array, samples: Array, features: Map | None) -> tuple[Tensor, Tensor]:
    x, y = pair(real, samples, features=features)
    require_rank(x, "real", _FIX)
    require_rank(y, "samples", _FIX)
    return x.double(), y.double()


def _distance(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, influences: bool = False
) -> tuple[float, Tensor, Tensor]:
    mu, nu = x.mean(0), y.mean(0)
    a, b = x - mu, y - nu
    sigma, lam = a.T @ a / (len(x) - 1), b.T @ b / (len(y) - 1)
    root = _power(sigma, 0.5)
    middle = root @ lam @ root
    gap = mu - nu
    trace = float(torch.linalg.eigvalsh(middle).clamp(min=0).sqrt().sum())
    value = float(gap @ gap + sigma.trace() + lam.trace()) - 2 * trace
    if not influences:
        return value, a[:0, 0], b[:0, 0]
    # T maps the first Gaussian to the second: T Sigma T = Lambda; its inverse maps back.
    inverse = _power(sigma, -0.5)
    T = inverse @ _power(middle, 0.5) @ inverse
    back = root @ _power(middle, -0.5) @ root
    eye = torch.eye(len(mu), dtype=x.dtype)
    g = 2 * a @ gap + ((a @ (eye - T)) * a).sum(1)
    h = -2 * b @ gap + ((b @ (eye - back)) * b).sum(1)
    return value, g, h


def _power(matrix: Float[Tensor, "d d"], power: float) -> Float[Tensor, "d d"]:
    """A power of a positive semi-definite matrix; zero eigenvalues stay zero."""
    values, vectors = torch.linalg.eigh(matrix)
    least = float(values.max().clamp(min=0)) * len(values) * math.ulp(1.0)
    keep = values > least
    powered = torch.where(keep, values.clamp(min=max(least, 1e-300)) ** power, 0.0)
    return (vectors * powered) @ vectors.T
