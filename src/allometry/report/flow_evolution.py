"""The density of a continuous flow over time, and the continuity equation that it obeys.

Letters: t time, from data (0) to noise (1).
"""

import copy

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry.models import flows
from allometry.report import formatting as fmt
from allometry.report import png_images
from allometry.report.png_images import Picture

CELLS, TIMES, REACH = 44, (0.0, 0.25, 0.5, 0.75, 1.0), 3.2
"""Cells per side, times shown, and half the width of the frame."""

STEP = 1e-2
"""Step of the central differences in time and space."""


def field_of(model: object) -> flows.Continuous | None:
    """The continuous layer of a flow in the plane; `None` if it has none."""
    if not isinstance(model, flows.Flow) or model.dim != 2:
        return None
    return next((t for t in model.transforms if isinstance(t, flows.Continuous)), None)


@torch.no_grad()
def rates(
    field: flows.Continuous, x: Float[Tensor, "n 2"], t: float, step: float = STEP
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""$\partial_t p$ and $-\nabla \cdot (p v)$ at points x and time t, by central differences.

    By the continuity equation they are equal.

    Args:
        field: The flow.
        x: Points.
        t: Time; differences in time stay within 0 and 1.
        step: Step of the differences.
    """
    before, after = max(0.0, t - step), min(1.0, t + step)
    p0, p1 = (field.log_prob_at(x, s).exp() for s in (before, after))
    middle = (before + after) / 2

    def flux(at: Tensor, axis: int) -> Tensor:
        v, _ = field.velocity(middle, at, at.new_empty(0, *at.shape), None)
        return field.log_prob_at(at, middle).exp() * v[:, axis]

    e = step * torch.eye(2, dtype=x.dtype)
    slopes = [(flux(x + e[i], i) - flux(x - e[i], i)) / (2 * step) for i in (0, 1)]
    return (p1 - p0) / (after - before), -(slopes[0] + slopes[1])


@torch.no_grad()
def evolution(field: flows.Continuous, name: str) -> Picture:
    """The density at five times, its rate of change, and the negative divergence of its flux."""
    # Differences of densities have too few digits in single precision.
    own = copy.deepcopy(field).double().eval()
    u = REACH * (2 * (np.arange(CELLS) + 0.5) / CELLS - 1)
    cells = torch.from_numpy(np.stack(np.meshgrid(u, -u), 2).reshape(-1, 2))
    found = [(own.log_prob_at(cells, t).exp(), *rates(own, cells, t)) for t in TIMES]
    top = max(float(p.max()) for p, _, _ in found)
    fastest = max(float(a.abs().max()) for _, a, _ in found)
    worst = max(float((a - b).abs().max()) for _, a, b in found)
    panels = [png_images.heat((p / top).sqrt().reshape(CELLS, CELLS).numpy()) for p, _, _ in found]
    for row in (1, 2):
        panels += [
            png_images.signed((rate[row] / fastest).reshape(CELLS, CELLS).numpy())
            for rate in found
        ]
    sheet = png_images.side_by_side(
        [png_images.enlarged(p, 3) for p in panels], columns=len(TIMES)
    )
    share = fmt.significant(100 * worst / fastest, 2)
    return Picture(
        f"evolution-{name}",
        png_images.address(png_images.png(sheet), "image/png"),
        f"The density of the {name} flow from data (left) to noise (right): the density, its rate "
        "of change, and the negative divergence of its flux. By the continuity equation the last "
        f"two rows are equal; they differ by {share} % of the fastest change at most.",
    )
