"""Complete diffusion models, built from sizes."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from allometry._core.errors import require
from allometry.models.diffusion.denoiser import Diffusion
from allometry.models.diffusion.image_networks import DiT, UNet
from allometry.models.diffusion.networks import PointNetwork
from allometry.models.diffusion.schedules import SCHEDULES
from allometry.models.flows.dequantisation import Dequantised
from allometry.models.flows.flow import Flow
from allometry.models.flows.invertible_linear import ActNorm
from allometry.models.flows.marginal import Marginal

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


NETWORKS = ("dense", "unet", "dit")
"""Networks of images."""


def images(
    shape: Sequence[int],
    levels: int,
    width: int = 128,
    depth: int = 4,
    schedule: str = "edm",
    network: str = "dense",
    context: int = 0,
    probes: int | None = None,
    rng: torch.Generator | None = None,
) -> Dequantised:
    """A diffusion model of images of `levels` grey values.

    The first layer maps every pixel to a standard normal by its own CDF, as in the flows of
    images, so that the network only has to learn the dependence between pixels. Uniform
    dequantisation makes the likelihood a bound.

    Args:
        shape: (channels, height, width).
        levels: Number of values of a pixel.
        width: Of the network.
        depth: Hidden layers (dense), resolutions (U-Net) or blocks (DiT).
        schedule: A name in `SCHEDULES`.
        network: `"dense"`, `"unet"` or `"dit"`.
        context: Size of the context.
        probes: See `Diffusion`.
        rng: Generator of the initial weights; default: seed 0.

    Example:
        >>> from allometry.models import diffusion
        >>> model = diffusion.images((1, 4, 4), levels=17, width=8, depth=2, network="unet")
        >>> model.sample(5).shape
        torch.Size([5, 1, 4, 4])

    References: `karras2022`; `peebles2023`; `ho2019` for the dequantisation.
    """
    known = f"be one of {', '.join(SCHEDULES)}"
    require(schedule in SCHEDULES, "images.schedule", known, schedule)
    require(network in NETWORKS, "images.network", f"be one of {', '.join(NETWORKS)}", network)
    makers: dict[str, Callable[[], nn.Module]] = {
        "dense": lambda: PointNetwork(int(torch.Size(shape).numel()), width, depth, context, rng),
        "unet": lambda: UNet(shape, width, depth, context, rng),
        "dit": lambda: DiT(shape, width, depth, context=context, rng=rng),
    }
    body = Diffusion(makers[network](), SCHEDULES[schedule](), PAIRED[schedule], probes=probes)
    return Dequantised(Flow([Marginal(tuple(shape), levels), body], shape), levels)
