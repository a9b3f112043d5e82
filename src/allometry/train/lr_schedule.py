"""Learning rate schedules."""

import math

from allometry._core.errors import require

SHAPES = ("cosine", "linear", "wsd")

COOL_DOWN = 0.2
"""Fraction of a warmup-stable-decay training that is cool-down."""


def warmup_decay(step: int, *, steps: int, warmup: int, shape: str = "cosine") -> float:
    r"""The factor on the peak rate at `step` of `steps`: linear warm-up, then decay to zero.

    Step `warmup - 1` is the first at the peak; the rate after the last step would be zero, so no
    step is spent at rate zero.

    Args:
        step: From 0 to `steps - 1`.
        steps: Length of the training.
        warmup: Steps of linear warm-up.
        shape: `"cosine"` or `"linear"` decay; or `"wsd"`: the peak rate up to `branch_step`, then
            a cool-down as $1 - \sqrt{x}$ over what is left.

    References: `hu2024` for warm-up, stable, decay; `hagele2024` for the cool-down's shape.
    """
    require(shape in SHAPES, "schedule.shape", "be 'cosine' or 'linear' or 'wsd'", shape)
    if shape == "wsd" and step >= (branch := branch_step(steps)):
        # A stable phase shorter than the warm-up cools down from the rate it has reached.
        top = min(1.0, (branch + 1) / warmup)
        return top * (1 - math.sqrt((step - branch) / max(1, steps - branch)))
    if step < warmup:
        return (step + 1) / warmup
    if shape == "wsd":
        return 1.0
    done = (step - warmup) / max(1, steps - warmup)
    return 0.5 * (1 + math.cos(math.pi * done)) if shape == "cosine" else 1 - done


def branch_step(steps: int) -> int:
    """The step at which the cool-down of a warmup-stable-decay training begins: after 80 %."""
    return steps - max(1, round(COOL_DOWN * steps))


def log_spaced(steps: int, points: int) -> list[int]:
    """At most `points` distinct step numbers from 1 to `steps`, evenly spread in the logarithm.

    Example:
        >>> log_spaced(1000, 4)
        [1, 10, 100, 1000]
    """
    require(steps >= 1, "log_spaced.steps", "be at least 1", steps)
    if points < 2:
        return [steps]
    ratio = steps ** (1 / (points - 1))
    return sorted({min(steps, round(ratio**i)) for i in range(points)} | {steps})
