"""Reconstruction error: the distance of each real row from the range of a generator."""

from collections.abc import Callable

import torch
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.sample_inputs import Array, generator, matrix, subset, tensor


def reconstruction_error(
    generate: Callable[[Tensor], Tensor],
    real: Array,
    z_dim: int,
    *,
    steps: int = 200,
    restarts: int = 4,
    lr: float = 0.1,
    most: int = 200,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Mean over real rows of $\min_z \|G(z) - x\|^2 / d$, by gradient descent with restarts.

    All rows and starts are searched in one batch. The interval is about the real rows, given
    generator and search. The search gives an upper bound of the minimum.

    Args:
        generate: Differentiable function from z, (rows, z_dim), to rows like the real ones.
        real: Held-out data.
        z_dim: Dimension of z.
        steps: Steps of Adam, with a cosine schedule.
        restarts: Standard normal starts for each row; the best counts.
        lr: The initial learning rate.
        most: Largest number of rows used.
        rng: Random generator for rows and starts.

    References: `xiang2017`
    """
    x = subset(tensor(real, "real"), most, generator(rng))
    require(z_dim >= 1, "z_dim", "be at least 1", z_dim)
    require(restarts >= 1 and steps >= 1, "restarts and steps", "be at least 1", (restarts, steps))
    rng = generator(rng)
    start = torch.randn(restarts * len(x), z_dim, generator=rng, dtype=x.dtype)
    z = start.requires_grad_(True)
    target = matrix(x, "real").repeat(restarts, 1)
    optimiser = torch.optim.Adam([z], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def errors() -> Tensor:
        output = generate(z).reshape(len(z), -1)
        same = output.shape == target.shape
        require(same, "generate", f"give rows of {target.shape[1]} numbers", tuple(output.shape))
        return (output.to(target.dtype) - target).pow(2).mean(1)

    best = torch.full((len(z),), torch.inf, dtype=x.dtype)
    for _ in range(steps):
        loss = errors()
        best = torch.minimum(best, loss.detach())
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        best = torch.minimum(best, errors())
    least = best.reshape(restarts, len(x)).amin(0)
    return uncertainty.mean(least, f"{restarts} starts of {steps} steps; given the generator")
