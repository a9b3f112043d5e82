"""Complete diffusion models, built from sizes."""

import torch

from allometry._core.errors import require
from allometry.models.diffusion.denoiser import Diffusion
from allometry.models.diffusion.networks import PointNetwork
from allometry.models.diffusion.schedules import SCHEDULES
from allometry.models.flows.flow import Flow
from allometry.models.flows.invertible_linear import ActNorm

PAIRED = {"edm": "angle", "ve": "angle", "vp": "noise", "cosine": "angle", "straight": "velocity"}
"""The usual prediction of a network by schedule."""


def points(
    dim: int,
    width: int = 64,
    depth: int = 4,
    schedule: str = "edm",
    prediction: str | None = None,
    context: int = 0,
    steps: int | None = None,
    rng: torch.Generator | None = None,
) -> Flow:
    """A diffusion model of points; flow matching with `schedule="straight"`.

    Args:
        dim: d.
        width: Width of the network.
        depth: Hidden layers of the network.
        schedule: A name in `SCHEDULES`.
        prediction: What the network predicts; default: by schedule.
        context: Size of the context.
        steps: Equal steps of the solver; default: adaptive ones.
        rng: Generator of the initial weights; default: seed 0.

    Example:
        >>> from allometry.models import diffusion
        >>> diffusion.points(2, width=16, schedule="straight").sample(5).shape
        torch.Size([5, 2])

    References: `karras2022`; `lipman2023`.
    """
    known = f"be one of {', '.join(SCHEDULES)}"
    require(schedule in SCHEDULES, "points.schedule", known, schedule)
    network = PointNetwork(dim, width, depth, context, rng)
    chosen = PAIRED[schedule] if prediction is None else prediction
    body = Diffusion(network, SCHEDULES[schedule](), chosen, steps=steps)
    return Flow([ActNorm(dim), body], (dim,))
