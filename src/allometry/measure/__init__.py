"""The measure room: functions from samples, models or tensors to an `Estimate`."""

from allometry.measure.entropy import hindsight, regret, shannon
from allometry.measure.likelihood import bits, block_mean, per_character, perplexity

__all__ = [
    "bits",
    "block_mean",
    "hindsight",
    "per_character",
    "perplexity",
    "regret",
    "shannon",
]
