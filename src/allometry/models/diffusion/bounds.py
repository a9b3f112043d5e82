"""The variational bound of diffusion models, and pairs of data and noise for flow matching.

Shapes: n points, "*event" shape of a point.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.models.diffusion.denoiser import Angles, Diffusion
from allometry.models.flows.transform import Context, Event, LogDet


def variational_bound(
    model: Diffusion,
    x: Event,
    u: Angles,
    noise: Event,
    *,
    steps: int | None = None,
    context: Context = None,
) -> LogDet:
    r"""One draw of a lower bound on $\log p(x)$ in nats, for each row.

    $-\log p(x) \le \mathrm{KL}(q(y_{high} | x) \| N(0, I)) + \mathbb E[-\log p(x | y_{low})]
    + L(x)$ with $L = \frac12 \int \mathrm{SNR}\,\mathbb E \|x - \hat x\|^2\,d(-\log
    \mathrm{SNR})$ in continuous time. With `steps` it is the bound of DDPM, a Markov chain of so
    many steps: $L = \frac T2 \mathbb E (\mathrm{SNR}(s) - \mathrm{SNR}(t)) \|x - \hat x\|^2$.

    Args:
        model: The diffusion model.
        x: Data.
        u: Uniform numbers in (0, 1), which choose the angle. Evenly spread over the rows they have
            a mean of smaller variance.
        noise: Standard normal.
        steps: T; default: continuous time.
        context: Values to condition on.

    References: `kingma2021` sections 3 to 5.
    """
    d = x[0].numel()
    low, high = model.low, model.high
    # A schedule may end at pure data or noise, where the ratios are infinite.
    low, high = max(low, 1e-3), min(high, math.pi / 2 - 1e-3)
    prior = 0.5 * (
        math.cos(high) ** 2 * x.square().flatten(1).sum(1)
        + d * (math.sin(high) ** 2 - 1 - 2 * math.log(math.sin(high)))
    )
    last = d * (0.5 * math.log(2 * math.pi) + math.log(math.tan(low)) + 0.5)
    if steps is None:
        # Evenly in the logarithm of the noise-to-data ratio, which is half of -log SNR.
        ends = math.log(math.tan(low)), math.log(math.tan(high))
        angle = torch.atan(torch.exp(ends[0] + (ends[1] - ends[0]) * u))
        weight = (ends[1] - ends[0]) / torch.tan(angle).square()
    else:
        require(steps >= 1, "variational_bound.steps", "be at least 1", steps)
        grid = torch.tensor(model.schedule.grid(steps), dtype=x.dtype, device=x.device)
        grid = grid.clamp(low, high)
        index = (u * steps).long().clamp(0, steps - 1)
        angle, before = grid[index], grid[index + 1]
        weight = 0.5 * steps * (torch.tan(before) ** -2 - torch.tan(angle) ** -2)
    wide = angle.view(-1, *[1] * (x.ndim - 1))
    data, _ = model.predict(torch.cos(wide) * x + torch.sin(wide) * noise, angle, context)
    return -(prior + last + weight * (data - x).square().flatten(1).sum(1))


def even_levels(n: int, rng: torch.Generator) -> Angles:
    """N uniform numbers, one in each n-th of (0, 1), in random order.

    They have the same distribution one by one, and means over a batch vary less.
    """
    u = (torch.arange(n) + torch.rand(n, generator=rng)) / n
    return u[torch.randperm(n, generator=rng)]


def optimal_pairs(x: Event, noise: Event) -> Event:
    """The rows of `noise` in the order that minimises the squared distance to the rows of `x`.

    Flow matching with such pairs has straighter paths.

    References: `tong2024`.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    require(x.shape == noise.shape, "optimal_pairs.noise", f"be of shape {x.shape}", noise.shape)
    cost = torch.cdist(x.flatten(1).double(), noise.flatten(1).double()).square()
    _, columns = linear_sum_assignment(cost.cpu().numpy())
    return noise[torch.as_tensor(columns, device=noise.device)]


@torch.no_grad()
def reflow_pairs(
    model: Diffusion, n: int, shape: tuple[int, ...], rng: torch.Generator
) -> tuple[Float[Tensor, "n *event"], Float[Tensor, "n *event"]]:
    """Noise and the data to which the model's flow carries it: pairs for a rectified flow.

    Training on such pairs again makes the paths straight.

    References: `liu2023`.
    """
    require(n >= 1, "reflow_pairs.n", "be at least 1", n)
    like = next(model.parameters())
    noise = torch.randn(n, *shape, generator=rng, dtype=like.dtype).to(like.device)
    return model.inverse(noise), noise
