"""What a frozen representation knows, by the best linear readout of it.

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
    r"""Nats and share right of a softmax regression that is fitted on some rows, judged on others.

    Features are brought to mean 0 and deviation 1 by the rows of the fit. Guessing by chance has
    $\log k$ nats for k equally likely classes.

    Args:
        features: Of the rows to fit on.
        labels: Their classes.
        held: Of the rows to judge by, in the order of the text they come from.
        held_labels: Their classes.
        penalty: Of the squared weights, against the sum of the losses.

    References: `alain2017`.
    """
    require(penalty > 0, "linear_probe.penalty", "be positive", penalty)
    classes = labels.unique().numpy()
    require(len(classes) >= 2, "linear_probe.labels", "be of at least 2 classes", len(classes))
    seen = bool(np.isin(held_labels.numpy(), classes).all())
    require(seen, "linear_probe.held_labels", "be among those of the fit", "another")
    from sklearn.linear_model import LogisticRegression

    x, y = features.double().numpy(), held.double().numpy()
    mean, sd = x.mean(0), x.std(0)
    sd = np.where(sd > 0, sd, 1.0)
    fitted = LogisticRegression(C=1 / penalty, max_iter=1000).fit((x - mean) / sd, labels.numpy())
    log_p = fitted.predict_log_proba((y - mean) / sd)
    place = np.searchsorted(classes, held_labels.numpy())
    nats = block_mean(-log_p[np.arange(len(y)), place])
    return nats, block_mean((log_p.argmax(1) == place).astype(np.float64))
