"""An adaptive, differentiable solver of ordinary differential equations."""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from allometry._core.errors import DivergedError

State = tuple[Tensor, ...]

_C = (0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1)
_A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_E = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""The difference between the fifth-order and the fourth-order weights."""


def integrate(
    slope: Callable[[float, State], State],
    state: State,
    start: float,
    end: float,
    tolerance: float,
    most: int = 2000,
    longest: float = math.inf,
) -> State:
    """The state at `end` of the equation `d state / dt = slope(t, state)`, from `start`.

    The Dormand-Prince pair of orders 5 and 4 (first same as last). A step is accepted if its
    largest error, relative to 1 + |state|, is below `tolerance` times its length. Only accepted
    steps stay in the graph; step sizes have no gradients.

    Args:
        slope: The right-hand side.
        state: Tensors at `start`.
        start: Time, before or after `end`.
        end: Time.
        tolerance: Error per unit of time; at least 8 units in the last place of the slopes.
        most: Largest number of steps.
        longest: Longest step. The error estimate has only the stages of a step: where a field is
            nearly 0 at both ends, a long step can miss what happens between them.

    Raises:
        DivergedError: The steps became too many or too small.

    References: `dormand1980` Table 2.
    """
    t, h = start, (end - start) / 8
    h = math.copysign(min(abs(h), longest), h)
    k1 = slope(t, state)
    tolerance = max(tolerance, 8 * torch.finfo(k1[0].dtype).eps)
    for _ in range(most):
        if abs(end - t) <= abs(h):
            h = end - t
        moved, ks = _step(slope, t, h, state, k1)
        error = _error(ks, state)
        if error <= tolerance:
            # The last row of the table is the solution, and its slope the first of the next step.
            t, state, k1 = t + h, moved, ks[-1]
            if abs(end - t) < 1e-12 * max(1.0, abs(end)):
                return state
        factor = 0.9 * (tolerance / max(error, 1e-300)) ** 0.25
        h = h * min(5.0, max(0.2, factor), longest / abs(h))
        if not abs(h) > 1e-10:
            break
    raise DivergedError(f"The ODE of the flow could not be solved beyond time {t:.4g}.")


def march(
    slope: Callable[[float, State], State], state: State, start: float, end: float, steps: int
) -> State:
    """The same with equal steps of the fifth-order rule, without error control.

    The control flow does not depend on values, so many equations can be vectorised.

    Args:
        slope: The right-hand side.
        state: Tensors at `start`.
        start: Time, before or after `end`.
        end: Time.
        steps: Number of steps.
    """
    h, k1 = (end - start) / steps, slope(start, state)
    for i in range(steps):
        state, ks = _step(slope, start + i * h, h, state, k1)
        k1 = ks[-1]
    return state


def _step(
    slope: Callable[[float, State], State], t: float, h: float, state: State, k1: State
) -> tuple[State, list[State]]:
    """The state after one step, and the slopes of its stages; the last is at the new state."""
    ks, moved = [k1], state
    for c, row in zip(_C[1:], _A, strict=True):
        moved = tuple(
            y + h * sum(a * k[i] for a, k in zip(row, ks, strict=True) if a)
            for i, y in enumerate(state)
        )
        ks.append(slope(t + c * h, moved))
    return moved, ks


@torch.no_grad()
def _error(ks: list[State], state: State) -> float:
    """The largest error per unit of time."""
    worst = 0.0
    for i, y in enumerate(state):
        gap = cast("Tensor", sum(e * k[i] for e, k in zip(_E, ks, strict=True) if e))
        worst = max(worst, float((gap / (1 + y.abs())).abs().max()))
    return worst
