r"""Mode recovery: how many modes of a known mixture a generator covers.

Letters: k modes, n samples.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import differences, nearest
from allometry.measure.sample_inputs import Array, as_tensor, pair
from allometry.measure.ties import slack


def mode_recovery(
    samples: Array, means: Array, sd: float, *, within: float = 3.0
) -> dict[str, Estimate]:
    r"""Number of modes covered, share of high-quality samples, and reverse KL over the modes.

    A sample is of high quality within `within` standard deviations of its nearest mode. A mode is
    covered if it has a high-quality sample. The reverse KL is $\sum_j q_j \log(q_j k)$ with $q_j$
    the share of samples nearest to mode j (equally likely modes), minus its bias
    $(k^+ - 1)/2n$, $k^+$ the modes with samples. In two dimensions 98.89 % of the samples of a
    perfect model are of high quality; a larger share means too narrow modes.

    Args:
        samples: (n, d) samples of the model.
        means: (k, d) means of the mixture.
        sd: Standard deviation of each mode.
        within: Largest distance of a high-quality sample, in standard deviations.

    References: `lin2018` section 4.1; `srivastava2017` section 4.1.
    """
    near, good = nearest_modes(samples, means, sd, within=within)
    return recovery(near, good, len(means), f"within {within:g} sd")


def nearest_modes(
    samples: Array, means: Array, sd: float, *, within: float = 3.0
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The nearest mode of each sample, and whether the sample is of high quality."""
    y, centres = pair(samples, means, rows=1)
    require(sd > 0, "mode_recovery.sd", "be positive", sd)
    distance, near = differences(y, centres).min(1)
    return near, distance <= within * sd + slack(y, centres)


def nearest_classes(
    samples: Array, known: Array, labels: Array, held_out: Array, *, share: float = 0.95
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The class of the nearest labelled row of each sample, and whether it is of high quality.

    A sample is of high quality if its distance from the known rows is within the `share` quantile
    of that of held-out rows. This replaces the 3 standard deviations of a mixture for data of
    unknown distribution. The known rows should not be training rows, or memorisation scores high.

    Args:
        samples: (n, d) samples of the model.
        known: (m, d) rows of the data.
        labels: (m,) a class index from 0 for each.
        held_out: Other rows of the data.
        share: Share of held-out rows that count as high quality.
    """
    require(0 < share < 1, "nearest_classes.share", "lie in (0, 1)", share)
    y, rows = pair(samples, known, rows=1)
    other, _ = pair(held_out, known, rows=1)
    classes = as_tensor(labels).reshape(-1).long()
    require(len(classes) == len(rows), "labels", f"be {len(rows)}, one a row", len(classes))
    radius = nearest(other.double(), rows.double())[0][:, 0].quantile(share)
    distance, near = nearest(y.double(), rows.double())
    return classes[near[:, 0]], distance[:, 0] <= radius + slack(y, rows)


def recovery(
    near: Int[Tensor, " n"], good: Bool[Tensor, " n"], k: int, method: str = ""
) -> dict[str, Estimate]:
    """Modes covered, share of high-quality samples and reverse KL, from the mode of each sample.

    Args:
        near: Mode of each sample, 0 ... k - 1.
        good: Whether it is of high quality.
        k: Number of modes.
        method: Definition of high quality.
    """
    n, found = len(near), len(torch.unique(near[good]))
    return {
        "modes": Estimate(float(found), exact=True, n=n, method=f"of {k}, in these {n} samples"),
        "high_quality": uncertainty.proportion(int(good.sum()), n, method),
        "reverse_kl": _reverse_kl(np.bincount(near.numpy(), minlength=k)),
    }


def _reverse_kl(counts: np.ndarray) -> Estimate:
    n, k = int(counts.sum()), len(counts)
    q = counts[counts > 0] / n
    logs = np.log(q * k)
    value = float(q @ logs) - (len(q) - 1) / (2 * n)
    first = float(q @ logs**2 - (q @ logs) ** 2) / n
    # For uniform q the first order vanishes and chi-squared noise remains.
    second = (len(q) - 1) / (2 * n * n)
    se = math.sqrt(first + second)
    return Estimate(value, se=se, n=n, method="delta method, bias removed")
