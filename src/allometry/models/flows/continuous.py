"""Continuous flows: neural ordinary differential equations.

Shapes: n points, d dimensions, k directions.
"""

import math
from typing import cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.flows.conditioners import MLP
from allometry.models.flows.ode_trace import carry, exact_directions, random_directions, solve
from allometry.models.flows.transform import Context, LogDet, Transform

Points = Float[Tensor, "n d"]


@final
class Velocity(nn.Module):
    r"""A velocity field $v(x, t)$ given by a network with tanh layers, and its divergence.

    Tangents are propagated with the points (forward mode), so the exact trace of the Jacobian
    takes one pass with d directions and Hutchinson's estimate $\epsilon^T J \epsilon$ one with a
    single direction; neither needs a second backward pass.

    Args:
        dim: d.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        context: Size of the context.
        rng: Generator of the initial weights; default: seed 0.
    """

    def __init__(
        self,
        dim: int,
        width: int = 64,
        depth: int = 2,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.network = MLP(dim + 1 + context, dim, width, depth, rng)

    def forward(
        self, t: float, x: Points, directions: Float[Tensor, "k n d"], context: Context
    ) -> tuple[Points, Float[Tensor, "k n d"]]:
        """The velocity at (x, t) and the Jacobian times each direction."""
        extra = [x.new_full((len(x), 1), t), *([] if context is None else [context])]
        h, dh = torch.cat([x, *extra], 1), directions
        *hidden, last = self.network.layers
        for i, layer in enumerate(hidden):
            weight = cast("Tensor", layer.weight)
            h = torch.tanh(layer(h))
            dh = (1 - h.square()) * (dh @ (weight[:, : self.dim] if i == 0 else weight).T)
        return last(h), dh @ cast("Tensor", last.weight).T


@final
class Continuous(Transform):
    r"""$\dot x = v(x, t)$ from t = 0 (data) to 1 (noise).

    $\log |\det| = \int_0^1 \mathrm{tr}\,\partial v / \partial x\,dt$: the density satisfies the
    continuity equation $\partial_t p + \nabla \cdot (p v) = 0$. The solver is adaptive
    (Dormand-Prince) and differentiated step by step, so gradients are exact for its solution.

    Args:
        dim: d.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        trace: `"exact"` or `"hutchinson"`; the estimate is used only in training mode.
        tolerance: Tolerance of the solver, per unit of time.
        context: Size of the context.
        rng: Generator of the initial weights; default: seed 0.
        steps: Equal steps instead of adaptive ones. Adaptive steps depend on the data, so such
            flows cannot be vectorised over seeds; with a fixed number of steps they can.

    References: `chen2018` Theorem 1; `grathwohl2019` Eq. (7); `dormand1980`.
    """

    def __init__(
        self,
        dim: int,
        width: int = 64,
        depth: int = 2,
        trace: str = "exact",
        tolerance: float = 1e-5,
        context: int = 0,
        rng: torch.Generator | None = None,
        steps: int | None = None,
    ) -> None:
        super().__init__()
        require(steps is None or steps >= 1, "Continuous.steps", "be at least 1", steps)
        self.steps = steps
        known = ("exact", "hutchinson")
        require(trace in known, "Continuous.trace", f"be one of {known}", trace)
        require(tolerance > 0, "Continuous.tolerance", "be positive", tolerance)
        self.dim, self.trace, self.tolerance = dim, trace, tolerance
        self.velocity = Velocity(dim, width, depth, context, rng)

    def _directions(self, x: Points) -> Float[Tensor, "k n d"]:
        hutchinson = self.training and self.trace == "hutchinson"
        return random_directions(x) if hutchinson else exact_directions(x)

    def between(
        self, x: Points, start: float, end: float, context: Context = None
    ) -> tuple[Points, LogDet]:
        """The points moved from time `start` to `end`, and the log-determinant."""

        def field(t: float, x: Points, directions: Tensor) -> tuple[Tensor, Tensor]:
            return self.velocity(t, x, directions, context)

        directions = self._directions(x)
        return carry(field, x, start, end, directions, tolerance=self.tolerance, steps=self.steps)

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """From data (time 0) to noise (time 1)."""
        return self.between(x, 0.0, 1.0, context)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """From noise to data, without the trace."""

        def slope(t: float, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (self.velocity(t, state[0], z.new_empty(0, *z.shape), context)[0],)

        return solve(slope, (z,), 1.0, 0.0, self.tolerance, self.steps)[0]

    def log_prob_at(self, x: Points, t: float, context: Context = None) -> LogDet:
        """Log density at time t: of the data at 0, of noise at 1."""
        z, logdet = self.between(x, t, 1.0, context)
        return logdet - 0.5 * z.square().sum(1) - 0.5 * self.dim * math.log(2 * math.pi)
