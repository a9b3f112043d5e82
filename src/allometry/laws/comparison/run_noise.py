"""The noise of a run that is known apart from two recipes: stated, or pooled over further ones."""

from dataclasses import dataclass
from typing import final

STATED_DEGREES = 10.0
"""Number of replicates that a stated noise counts as."""

USUAL_TREND = 0.08
"""Standard deviation of the gain's trend: trends between public recipes have 0.05 to 0.12."""


@final
@dataclass(frozen=True)
class RunNoise:
    """Standard deviation of the log loss of a run.

    Args:
        sd: The standard deviation.
        degrees: Number of replicates that it counts as.
        stated: Whether the user states it.
    """

    sd: float
    degrees: float
    stated: bool = False

    @classmethod
    def known(cls, sd: float | None) -> "RunNoise | None":
        """A noise that the user states."""
        return None if sd is None else cls(sd, STATED_DEGREES, stated=True)
