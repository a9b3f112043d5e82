r"""Measures from nearest neighbours: precision, recall, density, coverage; copying.

Letters: $x_1..x_n$ real, $y_1..y_m$ samples, $r_i$ the distance of $x_i$ to its k-th nearest real
row, $s_j$ that of $y_j$ to its k-th nearest sample.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import interval
from allometry.measure.blocks import BLOCK, centred, nearest, spans
from allometry.measure.inputs import Array, Map, pair, require_spread


def prdc(
    real: Array, samples: Array, *, k: int = 5, features: Map | None = None
) -> dict[str, Estimate]:
    r"""Precision, recall, density and coverage in one pass over the pairs.

    Precision is the share of samples within $r_i$ of some $x_i$; recall the share of real rows
    within $s_j$ of some $y_j$; density the mean over samples of $\#\{i: \|x_i-y_j\| < r_i\}/k$;
    coverage the share of real rows with a sample within $r_i$. Intervals are about the rows that
    are counted, given the other set; coverage's is wider than a share's, since real rows
    set one another's radii.

    Args:
        real: The data.
        samples: The model's.
        k: Which neighbour sets the radius of a ball.
        features: A map to features.

    References: `kynkaanniemi2019` for precision and recall; `naeem2020` for density and coverage.
    """
    x, y = pair(real, samples, features=features)
    fewest = min(len(x), len(y))
    require(1 <= k < fewest, "prdc.k", f"lie between 1 and {fewest - 1}", k)
    require_spread(x, "real")
    # Squared radii, compared with squared distances: no root is taken for any pair.
    radii, neighbours = nearest(x, x, min(2 * k + 2, len(x) - 1), itself=True)
    r2 = radii[:, k - 1] ** 2
    s2 = nearest(y, y, k, itself=True)[0][:, -1] ** 2
    x, y = centred(x, y)
    inside, recalled, closest = _memberships(x, y, r2, s2)
    words = f"k = {k}; given the {{}} balls"
    return {
        "precision": interval.proportion(int((inside > 0).sum()), len(y), words.format("real")),
        "recall": interval.proportion(int(recalled.sum()), len(x), words.format("samples'")),
        "density": interval.mean(inside / k, words.format("real")),
        "coverage": _covered(closest, radii**2, neighbours, k),
    }


def _covered(
    closest: Float[Tensor, " n"], radii: Float[Tensor, "n j"], neighbours: Tensor, k: int
) -> Estimate:
    """Share of rows with a sample within their k-th radius, spread by leaving out fifths.

    Leaving out single rows overstates the variance of so rough a function, and leaving out halves
    changes the radii too much; in simulation a fifth is right.
    """
    n, j = radii.shape
    left = max(1, n // 5)
    kept = torch.zeros(n, dtype=torch.bool)
    rng, found = torch.Generator().manual_seed(0), []
    for _ in range(60):
        kept[:] = True
        kept[torch.randperm(n, generator=rng)[:left]] = False
        place = (kept[neighbours].cumsum(1) < k).sum(1, keepdim=True).clamp(max=j - 1)
        found.append(float((closest < radii.gather(1, place)[:, 0])[kept].double().mean()))
    variance = (n - left) / left * float(np.var(found, ddof=1))
    p = float((closest < radii[:, k - 1]).double().mean())
    # Rows count for as many independent ones as have this variance.
    rows = p * (1 - p) / variance if variance > 0 and 0 < p < 1 else n
    words = f"k = {k}; given the samples; 60 times a fifth left out"
    return replace(interval.proportion(p * rows, rows, words), n=n)


def _memberships(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], r2: Tensor, s2: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    columns, norms = y.T.contiguous(), (y * y).sum(1)
    inside = torch.zeros(len(y), dtype=torch.float64)
    recalled = torch.zeros(len(x), dtype=torch.bool)
    closest = torch.empty(len(x), dtype=x.dtype)
    for i in spans(len(x), max(1, BLOCK * BLOCK // len(y))):
        a = x[i]
        squared = torch.addmm(norms[None, :], a, columns, alpha=-2).add_((a * a).sum(1)[:, None])
        within = squared < r2[i, None]
        inside += within.sum(0)
        closest[i] = squared.amin(1)
        recalled[i] = (squared < s2).any(1)
    return inside, recalled, closest


def precision(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of samples inside the real data's balls; see `prdc`.

    References: `kynkaanniemi2019`.
    """
    return prdc(real, samples, k=k, features=features)["precision"]


def recall(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of real rows inside the samples' balls; see `prdc`.

    References: `kynkaanniemi2019`.
    """
    return prdc(real, samples, k=k, features=features)["recall"]


def density(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Mean number of real balls around a sample, over k; see `prdc`. Expected 1 for equal laws.

    References: `naeem2020`.
    """
    return prdc(real, samples, k=k, features=features)["density"]


def coverage(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of real balls with a sample in them; see `prdc`.

    References: `naeem2020`.
    """
    return prdc(real, samples, k=k, features=features)["coverage"]


def authenticity(training: Array, samples: Array, *, features: Map | None = None) -> Estimate:
    """Share of samples that are no copies of training rows.

    A sample is a copy where it is nearer to its nearest training row than that row's own nearest
    training neighbour is.

    References: `alaa2022`
    """
    x, y = pair(training, samples, features=features)
    own = nearest(x, x, itself=True)[0][:, 0]
    distance, index = nearest(y, x)
    authentic = distance[:, 0] >= own[index[:, 0]]
    return interval.proportion(int(authentic.sum()), len(y), "given the training set")


def copying(
    training: Array, heldout: Array, samples: Array, *, features: Map | None = None
) -> Estimate:
    r"""$P(\text{a sample is nearer to the training set than a held-out row is})$; 1/2 if honest.

    Distances are to the nearest training row; ties count one half. Above 1/2 samples crowd the
    training rows (memorisation), below they keep away from them (underfitting).

    References: `meehan2020` for the test; `delong1988` for the standard error.
    """
    x, y = pair(training, samples, features=features)
    _, z = pair(training, heldout, features=features)
    near = nearest(y, x)[0][:, 0].double().numpy()
    far = nearest(z, x)[0][:, 0].double().numpy()
    return _win_probability(-near, -far)


def _win_probability(a: np.ndarray, b: np.ndarray) -> Estimate:
    """P(A > B) + P(A = B)/2 with the standard error from placements."""
    from scipy import stats  # slow to import

    n, m = len(a), len(b)
    ranks = stats.rankdata(np.concatenate([a, b]))
    over_b = (ranks[:n] - stats.rankdata(a)) / m
    over_a = 1 - (ranks[n:] - stats.rankdata(b)) / n
    value = float(over_b.mean())
    se = math.sqrt(over_b.var(ddof=1) / n + over_a.var(ddof=1) / m)
    half = 1.959963984540054 * se
    return Estimate(
        value,
        se=se,
        lo=max(0.0, value - half),
        hi=min(1.0, value + half),
        n=n + m,
        method="placements, given the training set",
    )
