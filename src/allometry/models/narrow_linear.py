"""Linear maps that are fast for narrow models too.

Letters: b batch, n positions, i inputs, o outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

NARROW = 16
"""Sizes up to this one are worked feature by feature."""


def linear(
    x: Float[Tensor, "b n i"],
    weight: Float[Tensor, "o i"],
    bias: Float[Tensor, " o"] | None = None,
) -> Float[Tensor, "b n o"]:
    """`x @ weight.T + bias`.

    Matrix products of shape (b n, 2) by (2, 4) are several times slower than (4, 2) by (2, b n).
    Narrow maps therefore keep features outermost in memory, whatever the shape says; a stack of
    narrow layers, such as a construction's thousands of thin blocks, then never copies.
    """
    if max(weight.shape) > NARROW:
        return F.linear(x, weight, bias)
    flat = x.permute(2, 0, 1).flatten(1)
    y = weight @ flat if bias is None else torch.addmm(bias[:, None], weight, flat)
    return y.unflatten(1, x.shape[:2]).permute(1, 2, 0)
