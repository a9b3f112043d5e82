r"""Levenberg-Marquardt vectorised over starts, for models of a few hundred parameters.

First-order training of small polynomial networks rarely finds the functions they can represent; a
second-order fit from several starts is closer to the capacity of the model.

Shapes: s starts, p parameters, n residuals.
"""

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require


@final
class LevenbergMarquardtResult(NamedTuple):
    """Final parameters of each start."""

    parameters: Float[Tensor, "s p"]
    loss: Float[Tensor, " s"]
    """Mean squared residual."""
    steps: int


def residuals_of(
    model: nn.Module, x: Float[Tensor, "n i"], y: Float[Tensor, " n"]
) -> Callable[[Tensor], Tensor]:
    """Prediction minus y as a function of the flattened parameters of the model."""
    shapes = {name: p.shape for name, p in model.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]

    def residuals(flat: Float[Tensor, " p"]) -> Float[Tensor, " n"]:
        parts = zip(shapes.items(), flat.split(sizes), strict=True)
        weights = {name: part.view(shape) for (name, shape), part in parts}
        return torch.func.functional_call(model, weights, (x,)).reshape(-1) - y

    return residuals


@torch.no_grad()
def levenberg_marquardt(
    residuals: Callable[[Tensor], Tensor],
    starts: Float[Tensor, "s p"],
    *,
    steps: int = 200,
    damping: float = 1e-2,
    enough: float = 1e-12,
) -> LevenbergMarquardtResult:
    r"""Minimise $\|r(\theta)\|^2$ from every start: $(J^T J + \lambda D)\,\delta = -J^T r$.

    D is the diagonal of $J^T J$. A step that lowers the loss is accepted and $\lambda$ divided by
    3; otherwise it is rejected and $\lambda$ doubled, independently for each start.

    Args:
        residuals: Parameters (p,) to residuals (n,).
        starts: (s, p).
        steps: Largest number of steps.
        damping: Initial $\lambda$.
        enough: Mean squared residual at which a start has converged.

    References: `more1978`.
    """
    require(starts.ndim == 2, "levenberg_marquardt.starts", "be (s, p)", tuple(starts.shape))
    value = torch.vmap(residuals)
    slope = torch.vmap(torch.func.jacfwd(residuals))
    theta, lam = starts.clone(), torch.full((len(starts),), damping, dtype=starts.dtype)
    loss = _mean_square(value(theta))
    taken = 0
    for _ in range(steps):
        going = (loss > enough) & (lam < 1e12)
        if not bool(going.any()):
            break
        taken += 1
        here = theta[going]
        J, r = slope(here), value(here)
        normal = J.mT @ J
        scale = normal.diagonal(dim1=1, dim2=2).clamp(min=1e-12)
        damped = normal + torch.diag_embed(lam[going, None] * scale)
        delta, info = torch.linalg.solve_ex(damped, -(J.mT @ r[..., None]))
        tried = here + delta[..., 0]
        found = _mean_square(value(tried))
        better = (found < loss[going]) & (info == 0)
        theta[going] = torch.where(better[:, None], tried, here)
        loss[going] = torch.where(better, found, loss[going])
        lam[going] *= torch.where(better, 1 / 3, 2.0)
        lam.clamp_(min=1e-12)
    return LevenbergMarquardtResult(theta, loss, taken)


@torch.no_grad()
def fit_with_kicks(
    residuals: Callable[[Tensor], Tensor],
    starts: Float[Tensor, "s p"],
    *,
    kicks: int = 10,
    size: float = 0.3,
    steps: int = 100,
    enough: float = 1e-12,
    rng: torch.Generator | None = None,
) -> LevenbergMarquardtResult:
    """Levenberg-Marquardt with restarts near the best point (basin hopping at temperature zero).

    A kick multiplies each parameter by a normal number with mean 1 and adds one with mean 0; the
    result is kept if it is better.

    Args:
        residuals: As for `levenberg_marquardt`.
        starts: (s, p).
        kicks: Largest number of kicks per start.
        size: Standard deviation of both normal numbers.
        steps: Largest number of steps of each fit.
        enough: Mean squared residual at which a start has converged.
        rng: Generator of the kicks; default: seed 0.

    References: `wales1997`.
    """
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    best = levenberg_marquardt(residuals, starts, steps=steps, enough=enough)
    theta, loss, taken = best.parameters, best.loss, best.steps
    for _ in range(kicks):
        stuck = loss > enough
        if not bool(stuck.any()):
            break
        here = theta[stuck]
        factor, shift = (size * torch.randn(here.shape, generator=rng) for _ in range(2))
        tried = levenberg_marquardt(
            residuals, here * (1 + factor) + shift, steps=steps, enough=enough
        )
        better = tried.loss < loss[stuck]
        theta[stuck] = torch.where(better[:, None], tried.parameters, here)
        loss[stuck] = torch.where(better, tried.loss, loss[stuck])
        taken += tried.steps
    return LevenbergMarquardtResult(theta, loss, taken)


def _mean_square(r: Tensor) -> Tensor:
    return r.square().mean(1).nan_to_num(nan=torch.inf)
