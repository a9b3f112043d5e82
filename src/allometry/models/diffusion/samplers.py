"""Samplers of diffusion models: ancestral, DDIM, Heun, and the probability flow.

Shapes: n points, c size of the context, "*event" shape of a point.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allometry._core.errors import require
from allometry.models.diffusion.denoiser import Diffusion
from allometry.models.flows.dequantisation import Dequantised
from allometry.models.flows.flow import Flow
from allometry.models.flows.transform import Context, Event

MOST = 80.0
"""Largest standard deviation of the noise from which `heun` starts."""


def _rows(angle: float, y: Event) -> Tensor:
    return y.new_full((len(y),), angle)


def _normal(y: Event, rng: torch.Generator) -> Event:
    return torch.randn(y.shape, generator=rng, dtype=y.dtype).to(y.device)


def ddim(
    model: Diffusion,
    y: Event,
    steps: int,
    rng: torch.Generator,
    *,
    eta: float = 0.0,
    context: Context = None,
    guidance: float = 1.0,
) -> Event:
    r"""Data from noise y in steps of $y_s = \cos\phi_s\,\hat x_0 + \sin\phi_s\,\hat\epsilon$.

    A share `eta` of the standard deviation of the ancestral step is drawn anew: 0 is
    deterministic, 1 is ancestral sampling. The angles are those of even times of the schedule.

    Args:
        model: The diffusion model.
        y: Standard normal noise.
        steps: Number of steps.
        rng: Generator of the noise of the steps.
        eta: $\eta$.
        context: Values to condition on.
        guidance: See `Diffusion.predict`.

    References: `song2021ddim` Eqs. (12) and (16).
    """
    require(0 <= eta <= 1, "ddim.eta", "be between 0 and 1", eta)
    angles = model.schedule.grid(steps)
    for now, then in itertools.pairwise(angles):
        data, noise = model.predict(y, _rows(now, y), context, guidance)
        variance = eta**2 * _posterior_variance(now, then)
        y = math.cos(then) * data + math.sqrt(math.sin(then) ** 2 - variance) * noise
        if variance:
            y = y + math.sqrt(variance) * _normal(y, rng)
    return y


def _posterior_variance(now: float, then: float) -> float:
    """Variance of y at the smaller angle `then`, given y at `now` and the data."""
    shrink = math.cos(now) / math.cos(then)
    added = math.sin(now) ** 2 - (shrink * math.sin(then)) ** 2
    return max(added * (math.sin(then) / math.sin(now)) ** 2, 0.0)


def ancestral(
    model: Diffusion,
    y: Event,
    steps: int,
    rng: torch.Generator,
    *,
    context: Context = None,
    guidance: float = 1.0,
) -> Event:
    r"""Data from noise y by the reverse Markov chain of DDPM with `steps` steps.

    Each step draws from $q(y_s \mid y_t, x_0)$ with the prediction for $x_0$.

    References: `ho2020` Eqs. (6), (7) and Algorithm 2.
    """
    return ddim(model, y, steps, rng, eta=1.0, context=context, guidance=guidance)


def heun(
    model: Diffusion,
    y: Event,
    steps: int,
    rng: torch.Generator,
    *,
    churn: float = 0.0,
    rho: float = 7.0,
    context: Context = None,
    guidance: float = 1.0,
) -> Event:
    r"""Data from noise y by Heun's method for $dx / d\sigma = (x - D(x; \sigma)) / \sigma$.

    Args:
        model: The diffusion model.
        y: Standard normal noise.
        steps: Number of steps; each but the last has two evaluations.
        rng: Generator of the churned noise.
        churn: $S_{churn}$: noise added before each step, at most $\sqrt 2 - 1$ of a level.
        rho: Exponent of the spacing of $\sigma$.
        context: Values to condition on.
        guidance: See `Diffusion.predict`.

    References: `karras2022` Algorithm 2 and Eq. (5).
    """
    require(steps >= 1, "steps", "be at least 1", steps)
    low, high = math.tan(max(model.low, 1e-3)), min(math.tan(model.high), MOST)
    ends = high ** (1 / rho), low ** (1 / rho)
    shares = [i / max(steps - 1, 1) for i in range(steps)]
    levels = [(ends[0] + share * (ends[1] - ends[0])) ** rho for share in shares] + [0.0]

    def slope(x: Event, sigma: float) -> Event:
        angle = math.atan(sigma)
        data, _ = model.predict(math.cos(angle) * x, _rows(angle, x), context, guidance)
        return (x - data) / sigma

    x = y * math.sqrt(1 + high**2)
    for now, then in itertools.pairwise(levels):
        raised = now * (1 + min(churn / steps, math.sqrt(2) - 1))
        if raised > now:
            x = x + math.sqrt(raised**2 - now**2) * _normal(x, rng)
        first = slope(x, raised)
        moved = x + (then - raised) * first
        if then:
            moved = x + (then - raised) * 0.5 * (first + slope(moved, then))
        x = moved
    return x


def _flow(model: Diffusion, y: Event, steps: int, rng: torch.Generator, **given: Any) -> Event:
    return model.inverse(y, **given)


SAMPLERS: dict[str, Callable[..., Event]] = {
    "ancestral": ancestral,
    "ddim": ddim,
    "heun": heun,
    "flow": _flow,
}
"""Samplers by name; `"flow"` solves the probability flow with adaptive steps."""


@torch.no_grad()
def sample(
    model: Flow | Dequantised,
    n: int,
    method: str = "heun",
    steps: int = 32,
    *,
    context: Context = None,
    guidance: float = 1.0,
    rng: torch.Generator | None = None,
    **options: float,
) -> Event | Tensor:
    """`n` samples of a diffusion model by any sampler.

    Args:
        model: Made by `points` or `images`.
        n: Number of samples; with a context, one for each of its rows.
        method: A name in `SAMPLERS`.
        steps: Number of steps; the adaptive `"flow"` ignores it.
        context: Values to condition on.
        guidance: See `Diffusion.predict`.
        rng: Generator of all noise; default: seed 0.
        options: `eta` of `ddim`; `churn` and `rho` of `heun`.

    Example:
        >>> from allometry.models import diffusion
        >>> model = diffusion.points(2, width=16)
        >>> diffusion.sample(model, 5, "ddim", steps=10).shape
        torch.Size([5, 2])
    """
    require(n >= 1, "sample.n", "be at least 1", n)
    require(method in SAMPLERS, "sample.method", f"be one of {', '.join(SAMPLERS)}", method)
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    flow = model.flow if isinstance(model, Dequantised) else model
    *first, last = flow.transforms
    require(isinstance(last, Diffusion), "sample.model", "be a diffusion model", last)
    assert isinstance(last, Diffusion)
    like = next(last.parameters())
    y = torch.randn(n, *flow.shape, generator=rng, dtype=like.dtype).to(like.device)
    x = SAMPLERS[method](last, y, steps, rng, context=context, guidance=guidance, **options)
    for transform in reversed(first):
        x = transform.inverse(x)  # pyright: ignore[reportCallIssue]
    return model.to_levels(x) if isinstance(model, Dequantised) else x
