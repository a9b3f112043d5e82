r"""How many modes of a known mixture a generator has found.

Letters: k modes, n samples.
"""

import math

import numpy as np
import torch

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import interval
from allometry.measure.inputs import Array, pair


def mode_recovery(
    samples: Array, means: Array, sd: float, *, within: float = 3.0
) -> dict[str, Estimate]:
    r"""Modes found, share of samples of high quality, and reverse KL over the modes.

    A sample is of high quality within `within` standard deviations of its nearest mode; a mode is
    found where it has a sample of high quality; the reverse KL is $\sum_j q_j \log(q_j k)$ with
    $q_j$ the share of samples nearest to mode j (modes being equally likely), less its bias
    $(k^+ - 1)/2n$, $k^+$ the modes with samples. In the plane 98.89 % of a perfect model's samples
    are of high quality: more means it is too sure of itself.

    Args:
        samples: (n, d) the model's.
        means: (k, d) of the mixture.
        sd: Of each mode.
        within: How far a good sample may lie, in standard deviations.

    References: `lin2018` section 4.1; `srivastava2017` section 4.1.
    """
    y, centres = pair(samples, means, rows=1)
    require(sd > 0, "mode_recovery.sd", "be positive", sd)
    n, k = len(y), len(centres)
    distance, near = torch.cdist(y.double(), centres.double()).min(1)
    good = distance <= within * sd
    counts = np.bincount(near.numpy(), minlength=k)
    found = len(torch.unique(near[good]))
    return {
        "modes": Estimate(float(found), exact=True, n=n, method=f"of {k}, in these {n} samples"),
        "high_quality": interval.proportion(int(good.sum()), n, f"within {within:g} sd"),
        "reverse_kl": _reverse_kl(counts),
    }


def _reverse_kl(counts: np.ndarray) -> Estimate:
    n, k = int(counts.sum()), len(counts)
    q = counts[counts > 0] / n
    logs = np.log(q * k)
    value = float(q @ logs) - (len(q) - 1) / (2 * n)
    first = float(q @ logs**2 - (q @ logs) ** 2) / n
    # Where q is uniform the first order vanishes and chi-squared noise is left.
    second = (len(q) - 1) / (2 * n * n)
    se = math.sqrt(first + second)
    return Estimate(value, se=se, n=n, method="delta method, bias removed")
