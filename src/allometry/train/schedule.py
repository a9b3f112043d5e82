"""How the learning rate goes up and down."""

import math

from allometry._core.errors import require


def warmup_decay(step: int, *, steps: int, warmup: int, shape: str = "cosine") -> float:
    """The factor on the peak rate at `step` of `steps`: linear warm-up, then decay to zero.

    Step `warmup - 1` is the first at the peak; the rate after the last step would be zero, so no
    step is spent at rate zero.

    Args:
        step: From 0 to `steps - 1`.
        steps: Length of the training.
        warmup: Steps of linear warm-up.
        shape: `"cosine"` or `"linear"` decay.
    """
    require(shape in ("cosine", "linear"), "schedule.shape", "be 'cosine' or 'linear'", shape)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.5 * (1 + math.cos(math.pi * done)) if shape == "cosine" else 1 - done


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
