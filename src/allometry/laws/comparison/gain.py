"""The gain of one recipe over another: draws under two shapes, and what they say at a scale.

Letters: s draws.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.estimate import Estimate
from allometry.laws.comparison.joint_fit import Posterior, sample
from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import RunNoise

Trend = Literal["grows", "shrinks", "crosses over", "unresolved"]

LEAST_WEIGHT = 0.01
"""A shape of the gain with less posterior weight is left out."""

BEYOND = float(np.log(1e4))
"""How far beyond the runs a crossover is looked for, in e-folds."""

POSITIONS = 40
"""Scales at which a crossover is looked for."""


@final
@dataclass(frozen=True)
class Gain:
    """Posterior draws of two recipes; `low` and `high` are the ends of the measured log scales."""

    parts: tuple[tuple[Posterior, float], ...]
    low: float
    high: float

    def log_multiplier(self, at: float, winner: int) -> Float[ndarray, " s"]:
        """Draws of the log multiplier of the scale that the other recipe needs."""
        drawn = []
        for posterior, weight in self.parts:
            values = posterior.law.log_multiplier(posterior.draws, at, winner)
            drawn.append(values[: max(1, round(weight * len(values)))])
        return np.concatenate(drawn)

    def leader(self, at: float) -> int:
        """The recipe whose loss is lower at a scale by the median draw."""
        return int(np.median(self.log_multiplier(at, 1)) > 0)

    def multiplier(self, at: float, winner: int, level: float = 0.95) -> Estimate:
        """How many times the winner's scale the other needs for the same loss."""
        drawn = self.log_multiplier(at, winner)
        lo, value, hi = quantiles(drawn, level)
        return Estimate(
            float(np.exp(value)), lo=float(np.exp(lo)), hi=float(np.exp(hi)), level=level,
            method="joint fit, posterior quantiles",
        )  # fmt: skip

    def exponent(self, winner: int, end: float) -> Estimate:
        """By which power of the scale the multiplier grows, between the smallest run and `end`."""
        drawn = self._change(winner, end) / max(end - self.low, 1e-9)
        lo, value, hi = quantiles(drawn, 0.95)
        return Estimate(value, lo=lo, hi=hi, method="joint fit, posterior quantiles")

    def _change(self, winner: int, end: float) -> Float[ndarray, " s"]:
        first, last = (self.log_multiplier(at, winner) for at in (self.low, end))
        with np.errstate(invalid="ignore"):
            change = last - first
        return np.where(np.isnan(change), 0.0, change)

    def trend(self, at: float) -> Trend:
        """Whether the gain grows, shrinks or changes sign from the smallest run to `at`.

        Each is said at 95 % confidence. If `at` is inside the measured scales, the trend is that
        over all of them.
        """
        end = max(at, self.high)
        if end - self.low < 1e-9:
            return "unresolved"
        winner = self.leader(end)
        first, last = (self.log_multiplier(x, winner) for x in (self.low, end))
        if np.mean(first < 0) >= 0.975 and np.mean(last > 0) >= 0.975:
            return "crosses over"
        change = self._change(self.leader(at), end)
        if np.mean(change > 0) >= 0.975:
            return "grows"
        return "shrinks" if np.mean(change < 0) >= 0.975 else "unresolved"

    def crossover(self, at: float) -> Estimate | None:
        """The scale at which both recipes have the same loss; `None` if most draws have none."""
        end = max(at, self.high)
        x = np.linspace(self.low, end + BEYOND, POSITIONS)
        table = np.stack([self.log_multiplier(float(v), 1) for v in x])
        change = np.sign(table[1:]) != np.sign(table[:-1])
        found = change.any(0)
        if found.mean() < 0.5:
            return None
        first, draws = change.argmax(0), np.arange(table.shape[1])
        a, b = table[first, draws], table[first + 1, draws]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.nan_to_num(a / (a - b), nan=0.0)
        where = np.where(found, x[first] + share * (x[1] - x[0]), np.inf)
        lo, value, hi = quantiles(where, 0.95)
        return Estimate(
            float(np.exp(value)), lo=float(np.exp(lo)), hi=float(np.exp(hi)),
            method="joint fit, posterior quantiles",
        )  # fmt: skip


def gain_of(runs: RecipeRuns, rng: np.random.Generator, noise: RunNoise | None = None) -> Gain:
    """The gain of the second of two recipes, averaged over own exponents and own floors.

    Weights are posterior probabilities of the two shapes, which have equal prior probability.
    """
    fits = [sample(runs, "exponents", rng, noise)]
    # A difference of the irreducible losses needs three sizes to differ from one of exponents.
    if len(np.unique(np.round(runs.x, 3))) >= 3:
        fits.append(sample(runs, "floors", rng, noise))
    logs = np.array([fit.evidence for fit in fits])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    parts = [(f, float(w)) for f, w in zip(fits, weights, strict=True) if w >= LEAST_WEIGHT]
    low, high = measured(runs)
    return Gain(tuple(parts), low, high)


def measured(runs: RecipeRuns) -> tuple[float, float]:
    """The log scales between which both recipes have runs; of one of them if none are shared."""
    ends = [(runs.x[runs.recipe == r].min(), runs.x[runs.recipe == r].max()) for r in (0, 1)]
    low, high = max(e[0] for e in ends), min(e[1] for e in ends)
    return (float(low), float(high)) if low <= high else (float(high), float(low))


def quantiles(drawn: Float[ndarray, " s"], level: float) -> tuple[float, float, float]:
    """Lower end, median and upper end; draws may be infinite."""
    ends = [(1 - level) / 2, 0.5, (1 + level) / 2]
    values = np.clip(np.quantile(drawn, ends, method="inverted_cdf"), -700, None)
    lo, value, hi = (float(v) if v < 700 else np.inf for v in values)
    return lo, value, hi
