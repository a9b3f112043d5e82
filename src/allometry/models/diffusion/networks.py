"""The dense network of diffusion models, and features of the noise level.

Shapes: n points, d dimensions, c size of the context, f features of the noise level.
"""

import math
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry.models.flows.conditioners import MLP
from allometry.models.flows.transform import Context, Event

OCTAVES = 3
"""Frequencies of the features of the noise level."""


def level_features(level: Float[Tensor, " n"]) -> Float[Tensor, "n f"]:
    r"""The noise level c with $\sin$ and $\cos$ of $2^k \pi c / 2$ for k = 0, 1, 2."""
    rates = 0.5 * math.pi * 2.0 ** torch.arange(OCTAVES, dtype=level.dtype, device=level.device)
    turns = level[:, None] * rates
    return torch.cat([level[:, None], torch.sin(turns), torch.cos(turns)], 1)


LEVEL = 1 + 2 * OCTAVES
"""f."""


@final
class PointNetwork(nn.Module):
    """A dense network of a point or image, features of its noise level, and the context.

    Its last layer is initialised to 0. Without a context where one is possible, the context is 0
    and a further input says so.

    Args:
        dim: d, entries of a point.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        context: c.
        rng: Generator of the initial weights; default: seed 0.
    """

    def __init__(
        self,
        dim: int,
        width: int = 64,
        depth: int = 4,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.context = context
        extra = context + 1 if context else 0
        self.mlp = MLP(dim + LEVEL + extra, dim, width, depth, rng, smooth=True)

    def forward(self, y: Event, level: Float[Tensor, " n"], context: Context = None) -> Event:
        """The prediction."""
        parts = [y.flatten(1), level_features(level)]
        if self.context:
            given = y.new_zeros(len(y), self.context) if context is None else context
            parts += [given, y.new_full((len(y), 1), float(context is not None))]
        return self.mlp(torch.cat(parts, 1)).view(y.shape)
