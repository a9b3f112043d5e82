"""Image retrieval: how near to each real row does the model come?"""

import torch

from allometry._core.estimate import Estimate
from allometry.measure import interval
from allometry.measure.blocks import nearest
from allometry.measure.inputs import Array, Map, generator, pair, subset


def retrieval_distance(
    real: Array, samples: Array, *, k: int = 1, features: Map | None = None
) -> Estimate:
    """Mean distance of a held-out real row to the k-th nearest sample.

    References: `wang2016`
    """
    x, y = pair(real, samples, features=features)
    found = nearest(x, y, k)[0][:, -1]
    return interval.mean(found, f"k = {k}; given the samples")


def retrieval_win_rate(
    real: Array,
    samples: Array,
    rival: Array,
    *,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Share of real rows whose nearest sample is nearer than the rival's, of as many samples.

    References: `wang2016`
    """
    ours, theirs = _distances(real, samples, rival, features, rng)
    wins = (ours < theirs).double() + 0.5 * (ours == theirs).double()
    return interval.mean(wins, "given both sets of samples")


def retrieval_p_value(
    real: Array,
    samples: Array,
    rival: Array,
    *,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """p-value of Wilcoxon's signed-rank test that neither model comes nearer to the real rows.

    References: `wang2016`
    """
    from scipy import stats  # slow to import

    ours, theirs = _distances(real, samples, rival, features, rng)
    p = float(stats.wilcoxon((ours - theirs).double().numpy()).pvalue)
    return Estimate(p, exact=True, n=len(ours), method="Wilcoxon's signed ranks")


def _distances(
    real: Array, samples: Array, rival: Array, features: Map | None, rng: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = pair(real, samples, features=features)
    _, z = pair(real, rival, features=features)
    rng, size = generator(rng), min(len(y), len(z))
    y, z = subset(y, size, rng), subset(z, size, rng)
    return nearest(x.double(), y.double())[0][:, 0], nearest(x.double(), z.double())[0][:, 0]
