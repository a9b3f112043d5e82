"""Points and densities carried along a velocity field: continuous flows and diffusion models.

Shapes: n points, k directions, "*event" shape of a point.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from allometry.models.flows.ode_solver import State, integrate, march
from allometry.models.flows.transform import Event, LogDet

Directions = Float[Tensor, "k n *event"]
Field = Callable[[float, Event, Directions], tuple[Event, Directions]]
"""The velocity at time t and points x, and the Jacobian (or its transpose) times directions."""


def exact_directions(x: Event) -> Directions:
    """The unit vectors, for which `carry` has the exact trace of the Jacobian."""
    d = x[0].numel()
    eye = torch.eye(d, dtype=x.dtype, device=x.device)
    return eye.view(d, 1, *x.shape[1:]).expand(d, *x.shape)


def random_directions(x: Event, k: int = 1, rng: torch.Generator | None = None) -> Directions:
    r"""Random signs, for which `carry` has Hutchinson's estimate of the trace from k directions.

    The directions are the same along a trajectory: the solver needs a smooth field.
    """
    where = x.device if rng is None else rng.device
    signs = torch.randint(0, 2, (k, *x.shape), generator=rng, device=where)
    return (signs.to(x.device, x.dtype) * 2 - 1) / math.sqrt(k)


def carry(
    field: Field,
    x: Event,
    start: float,
    end: float,
    directions: Directions,
    *,
    tolerance: float = 1e-5,
    steps: int | None = None,
    longest: float = math.inf,
) -> tuple[Event, LogDet]:
    r"""The points moved from `start` to `end`, and $\int \mathrm{tr}\,\partial v / \partial x$.

    Args:
        field: The velocity.
        x: Points.
        start: Time.
        end: Time.
        directions: Of the trace; see `exact_directions` and `random_directions`.
        tolerance: Of the adaptive solver, per unit of time.
        steps: Equal steps instead of adaptive ones.
        longest: Longest adaptive step.
    """

    def slope(t: float, state: State) -> State:
        v, turned = field(t, state[0], directions)
        return v, (turned * directions).flatten(2).sum((0, 2))

    moved, logdet = solve(slope, (x, x.new_zeros(len(x))), start, end, tolerance, steps, longest)
    return moved, logdet


def solve(
    slope: Callable[[float, State], State],
    state: State,
    start: float,
    end: float,
    tolerance: float,
    steps: int | None,
    longest: float = math.inf,
) -> State:
    """The solution at `end`, by adaptive steps or, if `steps` is given, by equal ones."""
    if steps is not None:
        return march(slope, state, start, end, steps)
    return integrate(slope, state, start, end, tolerance, longest=longest)
