"""What limits a comparison: sentences on scales, noise and pairs, and when no winner is named."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import RunNoise

if TYPE_CHECKING:
    from allometry.laws.comparison.comparison_verdict import Rival

UNITS = {"C": "FLOP", "N": "parameters", "D": "tokens"}
MULTIPLIED = {"C": "compute", "N": "parameters", "D": "data"}

FEW = 8
"""Runs of two recipes up to which their noise rests on other recipes."""

FAR = math.log(100.0)
"""E-folds beyond the largest run from which on a warning is given."""

NEAR = math.log(2.0)
"""E-folds within which scales count as common: FLOPs may differ between recipes of one size."""


def largest_shared(runs: RecipeRuns) -> float:
    """The second largest of the recipes' largest log scales."""
    tops = sorted(float(runs.x[runs.recipe == i].max()) for i in range(len(runs.names)))
    return tops[-2]


def are_apart(runs: RecipeRuns, first: str, second: str) -> bool:
    """Whether the scales of two recipes do not overlap."""
    (low, high), (least, most) = (
        (float(x.min()), float(x.max()))
        for x in (runs.x[runs.recipe == runs.names.index(n)] for n in (first, second))
    )
    return max(low, least) > min(high, most) + NEAR


def rises(runs: RecipeRuns) -> bool:
    """Whether the loss rises with scale in every recipe that has several scales."""
    found = []
    for i in range(len(runs.names)):
        x, y = runs.x[runs.recipe == i], runs.y[runs.recipe == i]
        if np.ptp(x) > NEAR and np.ptp(y) > 0:
            found.append(float(np.corrcoef(x, y)[0, 1]))
    return bool(found) and min(found) > 0.5


def leader_of(runs: RecipeRuns, rivals: "list[Rival]") -> str:
    """The recipe that is no rival."""
    return next(n for n in runs.names if n not in {rival.name for rival in rivals})


def limits(runs: RecipeRuns, x: float, rivals: "list[Rival]") -> list[str]:
    """Sentences on what limits the answer at log scale `x`."""
    found = []
    top = largest_shared(runs)
    sizes = len(np.unique(np.round(runs.x, 3)))
    unit = UNITS[runs.scale]
    if sizes == 1:
        found.append(
            "One size cannot show a trend, nor what a loss is worth in "
            f"{MULTIPLIED[runs.scale]}: these rest on priors. Add two more sizes."
        )
    elif sizes == 2:
        found.append("Two sizes leave the irreducible loss to its prior. Add a third size.")
    if x > top + FAR:
        found.append(
            f"{math.exp(x):.3g} {unit} is {math.exp(x - top):.3g} times the largest scale at "
            "which two recipes have runs: the answer rests on the law."
        )
    unpaired = [rival.name for rival in rivals if rival.pairs < 2]
    if unpaired:
        found.append(
            f"Few runs of {', '.join(unpaired[:4])} have a partner of the same size, data and "
            "seed: they are compared by the law alone, which is less precise."
        )
    leader = leader_of(runs, rivals)
    apart = [rival.name for rival in rivals if are_apart(runs, leader, rival.name)]
    if apart:
        found.append(
            f"{', '.join(apart[:4])} and the leader have no scale in common: their comparison "
            "rests on the law, so no winner is named. Check units, or add runs at the same scales."
        )
    if rises(runs):
        found.append(
            "The loss rises with scale, so no winner is named. If it is an accuracy or a score, "
            "give 1 minus it, or another measure that is better if lower."
        )
    if runs.scale != "C":
        found.append(
            f"Compute is unknown, so the multiplier is one of {MULTIPLIED[runs.scale]}. "
            "Give C, or N and D."
        )
    return found


def noise_notes(rivals: "list[Rival]", noise: float | None) -> list[str]:
    """What is assumed about the noise, and whether the runs contradict what was stated."""
    if noise is None:
        assumed = any(part.assumed for rival in rivals for part, _ in rival.gain.parts)
        return [
            "Too few runs to estimate their noise: 0.3 % of the loss is assumed in intervals. "
            "Add seeds, or state the noise if it is known (--noise)."
        ] * assumed
    found = [f"The noise of a run is stated, not estimated: {noise:.2g} of the loss."]
    seen = max(rival.noise for rival in rivals)
    if seen > 2 * noise:
        found.append(
            f"The runs scatter more around the law, by {seen:.2g}: a verdict may be too early."
        )
    return found


def pooled_note(
    runs: RecipeRuns,
    leader: int,
    noise_of: Callable[[frozenset[int]], RunNoise | None],
) -> list[str]:
    """Say so if two recipes have too few runs of their own to estimate the noise."""
    others = [i for i in range(len(runs.names)) if i != leader]
    few = [i for i in others if int(np.isin(runs.recipe, (leader, i)).sum()) <= FEW]
    used = [noise_of(frozenset((leader, i))) for i in few]
    pooled = [noise.sd for noise in used if noise is not None and not noise.stated]
    if not pooled:
        return []
    return [
        "Two recipes alone have too few runs to estimate their noise. It is estimated from all "
        f"{len(runs.names)} recipes, as if it were the same for all: {max(pooled):.2g} of the "
        "loss. Add seeds if one of them is noisier."
    ]
