"""Diffusion models and flow matching: schedules, networks, samplers, likelihoods."""

from allometry.models.diffusion.bounds import (
    even_levels,
    optimal_pairs,
    reflow_pairs,
    variational_bound,
)
from allometry.models.diffusion.denoiser import Diffusion, noise_level, stable_pairs
from allometry.models.diffusion.image_networks import DiT, UNet
from allometry.models.diffusion.named_models import images, points
from allometry.models.diffusion.networks import PointNetwork
from allometry.models.diffusion.samplers import SAMPLERS, ancestral, ddim, heun, sample
from allometry.models.diffusion.schedules import EDM, SCHEDULES, VE, VP, Cosine, Schedule, Straight
from allometry.models.diffusion.token_diffusion import DiscreteDiffusion

__all__ = [
    "EDM",
    "SAMPLERS",
    "SCHEDULES",
    "VE",
    "VP",
    "Cosine",
    "DiT",
    "Diffusion",
    "DiscreteDiffusion",
    "PointNetwork",
    "Schedule",
    "Straight",
    "UNet",
    "ancestral",
    "ddim",
    "even_levels",
    "heun",
    "images",
    "noise_level",
    "optimal_pairs",
    "points",
    "reflow_pairs",
    "sample",
    "stable_pairs",
    "variational_bound",
]
