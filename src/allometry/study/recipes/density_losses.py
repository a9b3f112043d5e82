"""The training loss of each family of densities."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from allometry.models import autoencoders as ae
from allometry.models import diffusion, flows
from allometry.targets import Images, NumericTable, Points
from allometry.train.objectives import (
    info_vae,
    negative_elbo,
    negative_log_likelihood,
    quantised_bound,
)

BETA, LAMBDA = 4.0, 10.0
"""Weights of `beta_vae` and `info_vae`; their reported loss is the plain bound."""

BLUR = 0.09
"""Noise on the input of a VQ-VAE's encoder in training, as a share of the range of values."""


STABLE = 16
"""Largest dimension in which diffusion models learn mean targets (`diffusion.stable_pairs`)."""

DIFFUSION = {"diffusion": "edm", "flow_matching": "straight"}
"""Schedule of each family of diffusion models."""


def step_batch(
    family: str, model: nn.Module, target: Points | NumericTable | Images, batch: int, seed: int
) -> Callable[[int], tuple[Tensor, ...]]:
    """Data and noise of a step as a pure function of its number: the inputs of `objective`."""

    def tensors(step: int) -> tuple[Tensor, ...]:
        x = target.batch(step, size=batch, seed=seed)
        if family in DIFFUSION:
            rng = torch.Generator().manual_seed(1_000_003 * seed + step)
            levels, noise = diffusion.even_levels(batch, rng), torch.randn(x.shape, generator=rng)
            if not isinstance(target, Images):
                return x, levels, noise
            return (x + torch.rand(x.shape, generator=rng)) / target.levels, levels, noise
        if not isinstance(target, Images) or isinstance(model, flows.DiscreteFlow):
            return (x,)
        rng = torch.Generator().manual_seed(1_000_003 * seed + step)
        noise = model.draw_noise(x.shape, rng)  # pyright: ignore
        if isinstance(model, ae.GenerativeVQVAE):
            rows = len(x) * math.prod(model.grid)
            return x, noise, torch.randint(rows, (model.K,), generator=rng)
        if isinstance(model, ae.VAE) and family == "info_vae":
            return x, noise, model.draw_noise(x.shape, rng)
        return x, noise

    return tensors


def objective(family: str, model: nn.Module, x: Tensor, *noise: Tensor) -> Tensor:
    """The loss of a step on the tensors of `step_batch`."""
    if family in DIFFUSION:
        return denoising_error(model, x, *noise)
    if isinstance(model, ae.GenerativeVQVAE):
        # The encoder's scale is the largest value.
        first, rows = noise
        return quantised_bound(model, x, first, rows, blur=BLUR * model.scale)
    if isinstance(model, ae.VAE) and family == "beta_vae":
        return negative_elbo(model, x, *noise, beta=BETA)
    if isinstance(model, ae.VAE) and family == "info_vae":
        first, prior = noise
        return info_vae(model, x, first, prior, alpha=0.0, lambda_=LAMBDA)
    return negative_log_likelihood(model, x, *noise)


def denoising_error(model: nn.Module, x: Tensor, levels: Tensor, noise: Tensor) -> Tensor:
    """Mean error of a diffusion model's predictions for standardised data.

    Args:
        model: A flow that ends in a diffusion model, or its dequantisation.
        x: Data, as the flow has them.
        levels: Uniform numbers that choose the noise levels.
        noise: Standard normal.
    """
    flow = model.flow if isinstance(model, flows.Dequantised) else model
    assert isinstance(flow, flows.Flow)
    *first, last = flow.transforms
    assert isinstance(last, diffusion.Diffusion)
    # The first layers only standardise: they keep the values of the training data.
    with torch.no_grad():
        for transform in first:
            x, _ = transform(x)
    few = x[0].numel() <= STABLE
    return last.loss(x.detach(), levels, noise, stable=few).mean()
