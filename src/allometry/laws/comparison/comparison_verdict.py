"""Is a change real, what is it worth, and does it survive scale?"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from allometry._core.errors import require, require_seed
from allometry._core.estimate import Estimate
from allometry.laws.comparison.comparison_limits import (
    are_apart,
    largest_shared,
    limits,
    noise_notes,
    pooled_note,
    rises,
)
from allometry.laws.comparison.gain import Gain, Trend, gain_of, measured
from allometry.laws.comparison.linear_evidence import DECISIVE
from allometry.laws.comparison.paired_runs import RecipeRuns, read
from allometry.laws.comparison.pooled_noise import pooled_noise
from allometry.laws.comparison.run_noise import RunNoise
from allometry.laws.comparison.sequential import Evidence, evidence
from allometry.laws.comparison.wording import verdict


@final
@dataclass(frozen=True)
class Rival:
    """A recipe against the leader.

    Args:
        name: The recipe.
        multiplier: How many times the leader's compute it needs, at the scale asked for.
        measured: The same at the largest scale at which both have runs.
        measured_at: That scale.
        trend: Whether the leader's gain grows, shrinks or crosses over.
        exponent: Power of the scale by which the multiplier grows.
        crossover: Scale of equal losses, if the gain shrinks or crosses over.
        e_value: Evidence against equal losses at the scale asked for.
        decided: Whether the leader's gain is established.
        pairs: Pairs of runs with the same size, data and seed.
        noise: Standard deviation of the log loss of a run, as the comparison sees it.
        more: How many times as many runs are expected to decide; `None` if unknown.
        gain: Draws of the gain, in which the leader is recipe number `side`.
        side: 0 or 1.
    """

    name: str
    multiplier: Estimate
    measured: Estimate
    measured_at: float
    trend: Trend
    exponent: Estimate
    crossover: Estimate | None
    e_value: float
    decided: bool
    pairs: int
    noise: float
    more: float | None
    gain: Gain = field(repr=False, compare=False)
    side: int = field(repr=False, compare=False)

    def multiplier_at(self, x: float) -> Estimate:
        """The multiplier at a log scale."""
        return self.gain.multiplier(x, self.side, self.multiplier.level)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        crossover = None if self.crossover is None else self.crossover.to_dict()
        return {
            "name": self.name,
            "multiplier": self.multiplier.to_dict(),
            "measured": {"at": self.measured_at, "multiplier": self.measured.to_dict()},
            "trend": self.trend,
            "exponent": self.exponent.to_dict(),
            "crossover": crossover,
            "e_value": self.e_value,
            "decided": self.decided,
            "pairs": self.pairs,
            "noise": self.noise,
            "more_runs": self.more,
        }


@final
@dataclass(frozen=True)
class RecipeComparison:
    """Which recipe is best at a scale, and by how much.

    Args:
        winner: The best recipe; `None` while undecided.
        leader: The recipe with the lowest expected loss, decided or not.
        at: The scale asked for.
        scale: What the scale is: `"C"` (FLOPs), `"N"` or `"D"`.
        rivals: Every other recipe against the leader, the closest first.
        warnings: What limits the answer.
        runs: The runs that were compared.
    """

    winner: str | None
    leader: str
    at: float
    scale: str
    rivals: tuple[Rival, ...]
    warnings: tuple[str, ...]
    runs: RecipeRuns = field(repr=False, compare=False)

    @property
    def multiplier(self) -> Estimate:
        """Compute that the closest rival needs relative to the leader, at the scale asked for."""
        return self.rivals[0].multiplier

    @property
    def measured(self) -> Estimate:
        """The same at the largest scale at which both have runs."""
        return self.rivals[0].measured

    @property
    def trend(self) -> Trend:
        """Whether the gain over the closest rival grows, shrinks or crosses over."""
        return self.rivals[0].trend

    @property
    def crossover(self) -> Estimate | None:
        """Scale at which the closest rival has the same loss."""
        return self.rivals[0].crossover

    @property
    def verdict(self) -> str:
        """One sentence."""
        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the closest rival's numbers at the top."""
        closest = self.rivals[0].to_dict()
        own = ("multiplier", "measured", "trend", "exponent", "crossover", "e_value", "more_runs")
        return {
            "winner": self.winner,
            "leader": self.leader,
            "verdict": self.verdict,
            "at": self.at,
            "scale": self.scale,
            **{key: closest[key] for key in own},
            "rivals": [rival.to_dict() for rival in self.rivals],
            "runs": {
                name: int((self.runs.recipe == i).sum()) for i, name in enumerate(self.runs.names)
            },
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        return self.verdict


def compare_recipes(
    frame: Any,
    by: str = "recipe",
    at: float | None = None,
    *,
    noise: float | None = None,
    seed: int = 0,
) -> RecipeComparison:
    r"""Compare recipes by their runs: the winner at a scale, and the compute multiplier.

    Runs with the same size, data and seed are paired. Both recipes share one law; the gain is a
    factor of compute that may change with scale, by own exponents or own irreducible losses.
    Multipliers have 95 % intervals (simultaneous, if there are several rivals). A winner is named
    only if an e-value of the paired log ratios exceeds 20 (times the number of rivals), so calling
    this after every run names a wrong winner in at most 5 % of comparisons.

    Args:
        frame: A data frame or a mapping of columns: `by`, `loss`, at least one of N, D, C, and
            optionally `seed`, `lr`, `D_unique` and `status`.
        by: Column of the recipe.
        at: Scale to judge at: FLOPs (or parameters, or tokens, if compute is unknown). Default:
            the largest at which two recipes have runs.
        noise: Standard deviation of the log loss between seeds, if it is known from elsewhere,
            such as 0.003 for 0.3 %. A few runs without replicates can then decide. Default: it is
            estimated from these runs.
        seed: Seed of the posterior draws.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> C = np.repeat(np.logspace(17, 20, 4), 6)
        >>> recipe = np.tile(["adamw", "muon"], 12)
        >>> noise = np.random.default_rng(0).normal(0, 0.003, 24)
        >>> loss = (1.8 + 900 * (C * np.where(recipe == "muon", 1.5, 1)) ** -0.15) * np.exp(noise)
        >>> runs = {"recipe": recipe, "C": C, "loss": loss, "seed": np.arange(24) // 2 % 3}
        >>> found = laws.compare_recipes(runs, at=1e21)
        >>> found.winner, found.multiplier.lo > 1
        ('muon', True)

    References:
        `lindon2022` (anytime-valid linear models).
    """
    require_seed(seed, "compare_recipes.seed")
    runs = read(frame, by)
    if at is not None:
        at = float(at)
        require(0 < at < math.inf, "compare_recipes.at", "be positive and finite", at)
    if noise is not None:
        noise = float(noise)
        fix = "Give the standard deviation of log loss, as in 0.003 for 0.3 %."
        require(0 < noise < 1, "compare_recipes.noise", "be between 0 and 1", noise, fix)
    x = largest_shared(runs) if at is None else math.log(at)
    rng = np.random.default_rng(seed)
    stated = RunNoise.known(noise)

    @functools.cache
    def noise_of(pair: frozenset[int]) -> RunNoise | None:
        return pooled_noise(runs, *sorted(pair)) if stated is None else stated

    base, gains = _against_one(runs, rng, noise_of)
    medians = {i: float(np.median(g.log_multiplier(x, 1))) for i, g in gains.items()}
    leader = max(medians, key=lambda i: medians[i])
    leader = leader if medians[leader] > 0 else base
    rivals = _rivals(runs, leader, x, gains, base, rng, noise_of)
    if rivals[0].multiplier.value < 1:
        # Not better than all by direct comparisons: the closest rival may be.
        other = runs.names.index(rivals[0].name)
        again = _rivals(runs, other, x, gains, base, rng, noise_of)
        if again[0].multiplier.value > rivals[0].multiplier.value:
            leader, rivals = other, again
    decided = all(rival.decided for rival in rivals)
    name = runs.names[leader]
    return RecipeComparison(
        name if decided else None,
        name,
        math.exp(x) if at is None else at,
        runs.scale,
        tuple(rivals),
        (
            *runs.notes,
            *limits(runs, x, rivals),
            *noise_notes(rivals, noise),
            *pooled_note(runs, leader, noise_of),
        ),
        runs,
    )


def _against_one(
    runs: RecipeRuns,
    rng: np.random.Generator,
    noise_of: Callable[[frozenset[int]], RunNoise | None],
) -> tuple[int, dict[int, Gain]]:
    """The recipe with the most runs, and the gain of every other over it."""
    base = int(np.bincount(runs.recipe, minlength=len(runs.names)).argmax())
    others = [i for i in range(len(runs.names)) if i != base]
    return base, {
        i: gain_of(runs.two(base, i), rng, noise_of(frozenset((base, i)))) for i in others
    }


def _rivals(
    runs: RecipeRuns,
    leader: int,
    x: float,
    gains: dict[int, Gain],
    base: int,
    rng: np.random.Generator,
    noise_of: Callable[[frozenset[int]], RunNoise | None],
) -> list[Rival]:
    """Every other recipe against the leader at log scale `x`, the closest first."""
    others = [i for i in range(len(runs.names)) if i != leader]
    rivals = []
    for i in others:
        first, second = (base, leader) if i == base else (leader, i)
        two, noise = runs.two(first, second), noise_of(frozenset((first, second)))
        known = gains.get(second) if first == base else None
        gain = gain_of(two, rng, noise) if known is None else known
        found = evidence(two, x, noise)
        rivals.append(_rival(two, gain, found, int(second == leader), x, len(others)))
    return sorted(rivals, key=lambda rival: (rival.multiplier.value, rival.name))


def _rival(
    two: RecipeRuns, gain: Gain, found: Evidence, leader: int, x: float, rivals: int
) -> Rival:
    """The recipe that is not number `leader` of two, against it."""
    _, top = measured(two)
    level = 1 - 0.05 / rivals
    multiplier = gain.multiplier(x, leader, level)
    trend = gain.trend(x)
    meets = trend in ("shrinks", "crosses over")
    sign = found.sign if leader == 1 else -found.sign
    # Under equal recipes, one of k e-values exceeds 20 k with probability 0.05 at most.
    decided = found.value >= DECISIVE * rivals and sign == 1 and multiplier.interval[0] > 1
    decided = decided and not are_apart(two, *two.names) and not rises(two)
    return Rival(
        two.names[1 - leader],
        multiplier,
        gain.multiplier(top, leader, level),
        math.exp(top),
        trend,
        gain.exponent(leader, max(x, gain.high)),
        gain.crossover(x) if meets else None,
        found.value,
        bool(decided),
        found.pairs,
        gain.parts[0][0].noise,
        found.more,
        gain,
        leader,
    )
