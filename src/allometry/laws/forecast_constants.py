"""Constants of `forecast`, chosen on public training logs by `bench/watch.py --choose`."""

from dataclasses import dataclass
from typing import final

LEVELS = (0.95, 0.99)
"""Nominal coverages with quantiles."""


@final
@dataclass(frozen=True)
class Constants:
    """Mean and scale of the error of a power law's extrapolation of the log loss.

    Args:
        slope: Factors of the slope and of the recent slope, each constant and per unit of the
            remaining log progress.
        scale: Of the error: log of a factor; exponents of the remaining log progress, of the
            error of backtests and of the noise. The slope has the rest of the exponent, so that
            the last three sum to 1.
        decay: Relative error of the gain by the learning rate's decay.
        quantiles: Of the error over its scale at each level, for irregular and regular curves.
        prior: Mean and standard deviation of the decrease of the log loss by a decay of the rate
            to zero.
        lag: Delay of that decrease, as a share of the training at the peak rate.
    """

    slope: tuple[float, float, float, float]
    scale: tuple[float, float, float, float]
    decay: float
    quantiles: dict[bool, dict[float, tuple[float, float]]]
    prior: tuple[float, float] = (0.0, 1.0)
    lag: float = 0.02


UNKNOWN = Constants(
    slope=(0.565, 0.347, 0.346, -0.342),
    scale=(-1.087, 1.501, 0.212, -0.133),
    decay=0.0,
    quantiles={
        False: {0.95: (-4.46, 2.372), 0.99: (-15.228, 3.623)},
        True: {0.95: (-3.604, 2.055), 0.99: (-6.767, 2.794)},
    },
)
"""Without a schedule: halves of modded-nanogpt, TaskSet and misfitting."""

KNOWN = Constants(
    slope=(0.792, -0.446, 0.064, 0.319),
    scale=(-0.708, 1.134, 0.123, 0.798),
    decay=0.3,
    quantiles={
        False: {0.95: (-4.46, 2.372), 0.99: (-15.228, 3.623)},
        True: {0.95: (-2.424, 3.015), 0.99: (-3.232, 5.588)},
    },
    prior=(0.035, 0.012),
)
"""With a schedule: multi-power-law curves of 25M and 100M, half of Gemstones. No curve there is
irregular, so those quantiles are the ones without a schedule."""
