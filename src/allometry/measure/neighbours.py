r"""Nearest-neighbour metrics: precision, recall, density, coverage; copying.

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
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import BLOCK, centred, differences, nearest, spans
from allometry.measure.sample_inputs import Array, Map, pair, require_spread
from allometry.measure.ties import merged, slack


def prdc(
    real: Array, samples: Array, *, k: int = 5, features: Map | None = None
) -> dict[str, Estimate]:
    r"""Precision, recall, density and coverage in one pass over the pairs.

    Precision is the share of samples within $r_i$ of some $x_i$; recall the share of real rows
    within $s_j$ of some $y_j$; density the mean over samples of $\#\{i: \|x_i-y_j\| \le r_i\}/k$;
    coverage the share of real rows with a sample within $r_i$. Intervals are about the counted
    rows, given the other set. That of coverage is wider than a binomial one, because real rows
    determine one another's radii.

    Balls include their surface: for discrete data a radius is often 0, and equal distributions
    would have no precision. More than k real rows may then lie in a ball. For density, a sample on
    the surface counts by its probability to be inside if ties were broken at random.

    Args:
        real: Real data.
        samples: Samples of the model.
        k: The neighbour that determines the radius of a ball.
        features: Feature map.

    References: `kynkaanniemi2019` Eq. (2) for precision and recall; `naeem2020` for density and
    coverage.
    """
    x, y = pair(real, samples, features=features)
    fewest = min(len(x), len(y))
    require(1 <= k < fewest, "prdc.k", f"lie between 1 and {fewest - 1}", k)
    require_spread(x, "real")
    radii, neighbours = nearest(x, x, min(2 * k + 2, len(x) - 1), itself=True)
    s = nearest(y, y, k, itself=True)[0][:, -1]
    edge = slack(x, y)
    weights = _surface(x, radii, k, edge)
    inside, recalled, closest = _memberships(x, y, radii[:, k - 1], s, weights, edge)
    method = f"k = {k}; given the {{}} balls"
    return {
        "precision": uncertainty.proportion(
            int((inside > 0).sum()), len(y), method.format("real")
        ),
        "recall": uncertainty.proportion(int(recalled.sum()), len(x), method.format("samples'")),
        "density": uncertainty.mean(inside / k, method.format("real")),
        "coverage": _covered(closest, radii + edge, neighbours, k),
    }


def _surface(
    x: Float[Tensor, "n d"], radii: Float[Tensor, "n j"], k: int, edge: float
) -> Float[Tensor, " n"]:
    """The weight of a sample on the surface of each ball.

    It is the probability to be among the k nearest if ties were broken at random; 1 without ties.
    """
    r = radii[:, k - 1]
    on = ((radii - r[:, None]).abs() <= edge).sum(1)
    below = (radii < r[:, None] - edge).sum(1)
    # If the last neighbour found still lies on the surface, there may be more.
    more = ((radii[:, -1] <= r + edge) & (radii.shape[1] < len(x) - 1)).nonzero()[:, 0]
    for some in more.split(max(1, BLOCK * BLOCK // len(x))):
        far = differences(x[some], x)
        far[torch.arange(len(some)), some] = torch.inf
        on[some] = ((far - r[some, None]).abs() <= edge).sum(1)
        below[some] = (far < r[some, None] - edge).sum(1)
    weights = (k - below).double() / (on + 1)
    # Continuous data in float32 have a few chance ties; other surfaces have no samples.
    few = float((on > 1).double().mean()) < 0.01
    return torch.where(on == 1, 1.0, weights) if few else weights


def _covered(
    closest: Float[Tensor, " n"], radii: Float[Tensor, "n j"], neighbours: Tensor, k: int
) -> Estimate:
    """Share of rows with a sample within their k-th radius; variance by a delete-d jackknife.

    Deleting single rows overstates the variance of a function that is not smooth, and deleting
    half changes the radii too much; in simulation a fifth is right.
    """
    n, j = radii.shape
    left = max(1, n // 5)
    kept = torch.zeros(n, dtype=torch.bool)
    rng, found = torch.Generator().manual_seed(0), []
    for _ in range(60):
        kept[:] = True
        kept[torch.randperm(n, generator=rng)[:left]] = False
        place = (kept[neighbours].cumsum(1) < k).sum(1, keepdim=True).clamp(max=j - 1)
        found.append(float((closest <= radii.gather(1, place)[:, 0])[kept].double().mean()))
    variance = (n - left) / left * float(np.var(found, ddof=1))
    p = float((closest <= radii[:, k - 1]).double().mean())
    # The effective number of independent rows with this variance.
    rows = p * (1 - p) / variance if variance > 0 and 0 < p < 1 else n
    method = f"k = {k}; given the samples; delete-d jackknife, 60 draws"
    return replace(uncertainty.proportion(p * rows, rows, method), n=n)


def _memberships(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "m d"],
    r: Float[Tensor, " n"],
    s: Float[Tensor, " m"],
    weights: Float[Tensor, " n"],
    edge: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Number of real balls around each sample; recalled real rows; distance to nearest sample.

    Squared distances come from one matrix product. Exact distances are used where rounding could
    matter: for tiny balls, and for balls with rows on their surface.
    """
    a, b = centred(x, y)
    columns, norms, own = b.T.contiguous(), (b * b).sum(1), (a * a).sum(1)
    largest = float(torch.cat([own, norms]).max())
    margin = 1e5 if x.dtype == torch.float64 else 1e3
    tiny = math.sqrt(margin * 16 * torch.finfo(x.dtype).eps * largest)
    careful, careful_s = (weights < 1) | (r <= tiny), s <= tiny
    r2 = torch.where(careful, -1.0, (r + edge) ** 2).to(x.dtype)
    s2 = torch.where(careful_s, -1.0, (s + edge) ** 2).to(x.dtype)
    inside = torch.zeros(len(y), dtype=torch.float64)
    recalled = torch.zeros(len(x), dtype=torch.bool)
    closest = torch.empty(len(x), dtype=torch.float64)
    step = max(1, BLOCK * BLOCK // len(y))
    for i in spans(len(x), step):
        block = torch.addmm(norms[None, :], a[i], columns, alpha=-2).add_(own[i, None])
        inside += (block <= r2[i, None]).sum(0)
        recalled[i] = (block <= s2).any(1)
        closest[i] = block.amin(1).double().clamp(min=0).sqrt()
    for i in careful.nonzero()[:, 0].split(step):
        far = differences(x[i], y)
        within, below = far <= r[i, None] + edge, far < r[i, None] - edge
        inside += below.sum(0) + weights[i] @ (within & ~below).double()
        closest[i] = far.amin(1)
    for j in careful_s.nonzero()[:, 0].split(max(1, BLOCK * BLOCK // len(x))):
        recalled |= (differences(x, y[j]) <= s[j] + edge).any(1)
    return inside, recalled, closest


def precision(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of samples inside the balls of the real rows; see `prdc`.

    References: `kynkaanniemi2019`.
    """
    return prdc(real, samples, k=k, features=features)["precision"]


def recall(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of real rows inside the balls of the samples; see `prdc`.

    References: `kynkaanniemi2019`.
    """
    return prdc(real, samples, k=k, features=features)["recall"]


def density(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Mean number of real balls around a sample, over k; see `prdc`. 1 for equal distributions.

    References: `naeem2020`.
    """
    return prdc(real, samples, k=k, features=features)["density"]


def coverage(real: Array, samples: Array, *, k: int = 5, features: Map | None = None) -> Estimate:
    """Share of real balls with a sample in them; see `prdc`.

    References: `naeem2020`.
    """
    return prdc(real, samples, k=k, features=features)["coverage"]


def authenticity(training: Array, samples: Array, *, features: Map | None = None) -> Estimate:
    """Share of samples that are not copies of training rows.

    A sample is a copy if it is nearer to its nearest training row than that row's nearest training
    neighbour. For several equally near training rows, their share counts.

    References: `alaa2022`
    """
    x, y = pair(training, samples, features=features)
    edge, k = slack(x, y), min(2, len(x))
    own = nearest(x, x, itself=True)[0][:, 0].double()
    distance, index = nearest(y, x, k)
    first = distance[:, 0].double()
    authentic = (first >= own[index[:, 0]] - edge).double()
    tied = (distance[:, -1] <= first + edge).nonzero()[:, 0] if k > 1 else index[:0, 0]
    for some in tied.split(max(1, BLOCK * BLOCK // len(x))):
        near = differences(y[some], x) <= first[some, None] + edge
        fresh = near & (first[some, None] >= own - edge)
        authentic[some] = fresh.sum(1).double() / near.sum(1)
    return uncertainty.proportion(float(authentic.sum()), len(y), "given the training set")


def copying(
    training: Array, heldout: Array, samples: Array, *, features: Map | None = None
) -> Estimate:
    r"""$P(\text{a sample is nearer to the training set than a held-out row is})$; 1/2 if none.

    Distances are to the nearest training row; ties count one half. Values above 1/2 show
    memorisation, values below 1/2 underfitting.

    References: `meehan2020` for the test; `delong1988` for the standard error.
    """
    x, y = pair(training, samples, features=features)
    _, z = pair(training, heldout, features=features)
    both = torch.cat([nearest(y, x)[0][:, 0], nearest(z, x)[0][:, 0]])
    distances = merged(both, slack(x, y, z)).numpy()
    return win_probability(-distances[: len(y)], -distances[len(y) :])


def win_probability(a: np.ndarray, b: np.ndarray) -> Estimate:
    """P(A > B) + P(A = B)/2 with the standard error from placements."""
    from scipy import stats  # imported here because it is slow

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
