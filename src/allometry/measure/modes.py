r"""How many modes of a known mixture a generator has found.

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
    near, good = nearest_modes(samples, means, sd, within=within)
    return recovery(near, good, len(means), f"within {within:g} sd")


def nearest_modes(
    samples: Array, means: Array, sd: float, *, within: float = 3.0
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The mode that each sample lies nearest to, and whether it is of high quality."""
    y, centres = pair(samples, means, rows=1)
    require(sd > 0, "mode_recovery.sd", "be positive", sd)
    distance, near = differences(y, centres).min(1)
    return near, distance <= within * sd + slack(y, centres)


def nearest_classes(
    samples: Array, known: Array, labels: Array, held_out: Array, *, share: float = 0.95
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The class of the labelled row that each sample lies nearest to, and whether it is near.

    A sample is of high quality where it lies no further from the known rows than a `share` of
    held-out rows do: what 3 standard deviations are to a mixture, for data whose law nobody knows.
    Rows that no model was trained on should be the known ones, or learning by heart pays.

    Args:
        samples: (n, d) the model's.
        known: (m, d) rows of the data.
        labels: (m,) a class from 0 for each.
        held_out: Other rows of the data.
        share: Of held-out rows that are called good.
    """
    require(0 < share < 1, "nearest_classes.share", "lie in (0, 1)", share)
    y, rows = pair(samples, known, rows=1)
    other, _ = pair(held_out, known, rows=1)
    classes = as_tensor(labels).reshape(-1).long()
    require(len(classes) == len(rows), "labels", f"be {len(rows)}, one a row", len(classes))
    reach = nearest(other.double(), rows.double())[0][:, 0].quantile(share)
    distance, near = nearest(y.double(), rows.double())
    return classes[near[:, 0]], distance[:, 0] <= reach + slack(y, rows)


def recovery(
    near: Int[Tensor, " n"], good: Bool[Tensor, " n"], k: int, words: str = ""
) -> dict[str, Estimate]:
    """Modes found, share of high quality and reverse KL, from where each of n samples lies.

    Args:
        near: Mode of each sample, 0 ... k - 1.
        good: Whether it is of high quality.
        k: Modes there are.
        words: What high quality means.
    """
    n, found = len(near), len(torch.unique(near[good]))
    return {
        "modes": Estimate(float(found), exact=True, n=n, method=f"of {k}, in these {n} samples"),
        "high_quality": uncertainty.proportion(int(good.sum()), n, words),
        "reverse_kl": _reverse_kl(np.bincount(near.numpy(), minlength=k)),
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
