"""Linear probes of a frozen representation.

Letters: n and m rows, f features.
"""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure.likelihood import block_mean


def linear_probe(
    features: Float[Tensor, "n f"],
    labels: Int[Tensor, " n"],
    held: Float[Tensor, "m f"],
    held_labels: Int[Tensor, " m"],
    *,
    penalty: float = 1.0,
) -> tuple[Estimate, Estimate]:
    r"""Held-out cross-entropy (nats) and accuracy of a softmax regression on features.

    The regression is fitted to `features` with classes `labels` and evaluated on `held` with
    classes `held_labels`, whose rows are in the order of the text they come from. `penalty` is the
    weight of the squared weights relative to the sum of the losses. Features are standardised by
    the training rows. A random guess costs $\log k$ nats for k equally likely classes.

    References: `alain2017`.
    """
    require(penalty > 0, "linear_probe.penalty", "be positive", penalty)
    classes = labels.unique().numpy()
    require(len(classes) >= 2, "linear_probe.labels", "be of at least 2 classes", len(classes))
    seen = bool(np.isin(held_labels.numpy(), classes).all())
    require(seen, "linear_probe.held_labels", "be classes of the training rows", "another")
    from sklearn.linear_model import LogisticRegression

    x, y = features.double().numpy(), held.double().numpy()
    mean, sd = x.mean(0), x.std(0)
    sd = np.where(sd > 0, sd, 1.0)
    fitted = LogisticRegression(C=1 / penalty, max_iter=1000).fit((x - mean) / sd, labels.numpy())
    log_p = fitted.predict_log_proba((y - mean) / sd)
    place = np.searchsorted(classes, held_labels.numpy())
    nats = block_mean(-log_p[np.arange(len(y)), place])
    return nats, block_mean((log_p.argmax(1) == place).astype(np.float64))
