"""Image retrieval: distance of each real row to the nearest samples."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import nearest
from allometry.measure.sample_inputs import Array, Map, generator, pair, subset, whole_seed
from allometry.measure.ties import merged, slack


def retrieval_distance(
    real: Array, samples: Array, *, k: int = 1, features: Map | None = None
) -> Estimate:
    """Mean distance of a held-out real row to the k-th nearest sample.

    References: `wang2016`
    """
    x, y = pair(real, samples, features=features)
    found = nearest(x, y, k)[0][:, -1]
    return uncertainty.mean(found, f"k = {k}; given the samples")


def retrieval_win_rate(
    real: Array,
    samples: Array,
    rival: Array,
    *,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Share of real rows whose nearest sample is nearer than the nearest of a rival model.

    References: `wang2016`
    """
    x, y, z = _sets(real, samples, rival, features, generator(rng))
    both = torch.stack([nearest(x, y)[0][:, 0], nearest(x, z)[0][:, 0]])
    ours, theirs = merged(both.flatten(), slack(x, y, z)).reshape(both.shape)
    wins = (ours < theirs).double() + 0.5 * (ours == theirs).double()
    return uncertainty.mean(wins, "given both sets of samples")


def retrieval_p_value(
    real: Array,
    samples: Array,
    rival: Array,
    *,
    permutations: int = 999,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    """p-value of the hypothesis that both models are equally near to the real rows.

    The statistic is Wilcoxon's signed-rank sum of the differences of distances; its distribution
    comes from permutations of the samples between the models.

    Differs from the paper: the table of Wilcoxon's test assumes independent differences. They are
    dependent, because all real rows are compared with the same samples, and it rejects two equal
    models far too often.

    References: `wang2016`; `phipson2010` for the p-value.
    """
    require(permutations >= 19, "permutations", "be at least 19", permutations)
    rng = generator(rng)
    x, y, z = _sets(real, samples, rival, features, rng)
    seeded = np.random.default_rng(whole_seed(rng))
    pool = torch.cat([y, z])
    # All of the nearest 64 belong to one of two equal sets with probability 2^-63.
    distance, index = nearest(x, pool, min(64, len(pool)))
    shape = distance.shape
    far = merged(distance.flatten(), slack(x, pool)).reshape(shape).numpy()
    mine = np.arange(len(pool)) < len(y)
    observed = _signed_ranks(mine[None], far, index.numpy())[0]
    step = max(1, 2**22 // index.numel())
    drawn = [
        _signed_ranks(
            seeded.permuted(np.tile(mine, (min(step, permutations - done), 1)), axis=1),
            far,
            index.numpy(),
        )
        for done in range(0, permutations, step)
    ]
    return uncertainty.randomised_p_value(float(observed), np.concatenate(drawn), seeded)


def _signed_ranks(
    mine: Bool[ndarray, "B m"], far: Float[ndarray, "n k"], index: Int[ndarray, "n k"]
) -> Float[ndarray, " B"]:
    """Absolute signed-rank sum of Wilcoxon, relative to its maximum, for each assignment.

    Args:
        mine: Which samples of the pool belong to the first model.
        far: Distances of each real row to its nearest samples, in order.
        index: The indices of these samples.
    """
    from scipy import stats  # imported here because it is slow

    owned = mine[:, index]
    rows = np.arange(len(far))
    gap = far[rows, owned.argmax(2)] - far[rows, (~owned).argmax(2)]
    # Rows without a difference have rank 0 and count for neither side.
    ranks = stats.rankdata(np.abs(gap), axis=1) - (gap == 0).sum(1, keepdims=True)
    ranks = np.where(gap == 0, 0.0, ranks)
    whole = ranks.sum(1)
    return np.abs((np.sign(gap) * ranks).sum(1)) / np.where(whole > 0, whole, 1.0)


def _sets(
    real: Array, samples: Array, rival: Array, features: Map | None, rng: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """The real rows and equally many samples of each model, in float64."""
    x, y = pair(real, samples, features=features)
    _, z = pair(real, rival, features=features)
    size = min(len(y), len(z))
    y, z = subset(y, size, rng), subset(z, size, rng)
    return x.double(), y.double(), z.double()
