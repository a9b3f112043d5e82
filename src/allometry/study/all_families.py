"""Every family that can do a job, at equal compute: one study for each kind of loss."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry.study import recipes
from allometry.study.density_studies import GAN_RECIPES
from allometry.study.equal_compute import at_compute
from allometry.study.job_table import GAN_FAMILIES, JOBS, LIKELIHOOD_FAMILIES, TEXT_FAMILIES
from allometry.study.size_ladder import ladder
from allometry.study.study import Recipe, Study
from allometry.targets import Images, NumericTable, Points

VARIANTS = ("beta_vae", "pacgan3", "pacgan4")
"""Families that differ from another one in a constant; they are compared only if named."""

COMPUTE: dict[str, tuple[float, float]] = {
    "points": (1e9, 3e10),
    "images": (1e10, 3e11),
    "text": (3e9, 1e11),
}
"""Smallest and largest budget of a run in FLOPs by default."""

RATIOS: dict[str, float] = {"points": 20.0, "images": 2.0, "text": 20.0}
"""Examples or tokens per parameter."""

EXACT = ("discrete", "pixelcnn")
"""Families of images with an exact likelihood. The others bound it: they add noise to whole
values, or have latent variables."""


TEXT_BOUNDS = ("masked_diffusion", "uniform_diffusion")
"""Families of text whose loss is a bound."""


@final
@dataclass(frozen=True)
class FamilyGroup:
    """Families with one loss, in one study.

    Args:
        name: Of the folder: `likelihood`, `samples` or `text`.
        study: Their runs.
        families: Their names.
    """

    name: str
    study: Study
    families: tuple[str, ...]


def kind_of(target: Any) -> str:
    """`points`, `images` or `text`."""
    if isinstance(target, Points | NumericTable):
        return "points"
    return "images" if isinstance(target, Images) else "text"


def likelihood_kind(family: str, target: Any) -> str:
    """What the loss of a family is: `exact`, or a `bound` on the likelihood."""
    name = family.replace(" ", "_")
    if kind_of(target) == "images":
        return "exact" if name in EXACT else "bound"
    return "bound" if name in TEXT_BOUNDS else "exact"


def family_groups(
    target: Any,
    *,
    families: Sequence[str] = (),
    rungs: int = 4,
    seeds: int = 2,
    flops: float | None = None,
    context: int = 64,
) -> tuple[list[FamilyGroup], list[str]]:
    """The studies of all families of a target at equal compute, and notes on what was left out.

    Args:
        target: A text, points or images.
        families: Names. Default: every family that can learn the target, without `VARIANTS`.
        rungs: Number of budgets.
        seeds: Runs of each family at each budget.
        flops: Training FLOPs of all runs together. Default: see `COMPUTE`.
        context: Tokens in a window of text.

    Example:
        >>> import allometry as al
        >>> moons = al.targets.Points(al.targets.points.TwoMoons())
        >>> groups, notes = al.study.family_groups(moons, families=["nice", "gan"])
        >>> [(group.name, group.families) for group in groups]
        [('likelihood', ('nice',)), ('samples', ('gan',))]
    """
    kind = kind_of(target)
    require(3 <= rungs <= 12, "rungs", "be 3 to 12: a law needs three budgets", rungs)
    chosen, notes = _usable(target, kind, families, context)
    count = sum(map(len, chosen.values()))
    require(count >= 2, "family", "name at least 2 with --all", list(families), " ".join(notes))
    budgets = _budgets(kind, rungs, count * seeds, flops)
    groups = []
    for name, named in chosen.items():
        equal: list[Recipe] = []
        kept = []
        for family, recipe in named.items():
            made = at_compute(recipe, ratio=RATIOS[kind])
            found = made(target, budgets, tokens=[], seeds=1)
            if len(found) < 3:
                notes.append(
                    f"{family} is left out: it has models of the required compute at "
                    f"{len(found)} of {rungs} budgets."
                )
                continue
            equal.append(made)
            kept.append(family)
        if equal:
            unit = JOBS["ring"].unit if name == "samples" else None
            study = Study(target, equal, ladder=budgets, seeds=seeds, tokens=[1.0], unit=unit)
            groups.append(FamilyGroup(name, study, tuple(kept)))
    total = sum(len(group.families) for group in groups)
    why = " ".join(notes[:3])
    require(total >= 2, "flops", "leave at least 2 families with three budgets", flops, why)
    return groups, notes


def _usable(
    target: Any, kind: str, families: Sequence[str], context: int
) -> tuple[dict[str, dict[str, Recipe]], list[str]]:
    """Recipes of the families that can learn the target, by group and name."""
    known = TEXT_FAMILIES if kind == "text" else (*LIKELIHOOD_FAMILIES, *GAN_FAMILIES)
    for family in families:
        require(family in known, "family", f"be one of {', '.join(known)}", family)
    asked = families or [family for family in known if family not in VARIANTS]
    chosen: dict[str, dict[str, Recipe]] = {}
    notes = []
    for family in asked:
        if family == "ngram":
            continue  # counted, not trained: it has no compute to equalise
        group, recipe = _recipe(family, kind, context)
        try:
            recipe(target, [3000.0], tokens=[1000.0], seeds=1)[0]()
        except InputError as error:
            if families:
                notes.append(f"{family} is left out: {error}")
            continue
        chosen.setdefault(group, {})[family] = recipe
    return chosen, notes


def _recipe(family: str, kind: str, context: int) -> tuple[str, Recipe]:
    if kind == "text":
        return "text", functools.partial(getattr(recipes, family), context=context)
    if family in GAN_FAMILIES:
        return "samples", GAN_RECIPES[family]
    return "likelihood", getattr(recipes, family)


def _budgets(kind: str, rungs: int, runs: int, flops: float | None) -> list[int]:
    """Budgets of a run, evenly spaced in the logarithm."""
    low, high = COMPUTE[kind]
    if flops is not None:
        require(math.isfinite(flops) and flops > 0, "flops", "be positive and finite", flops)
        ratio = high / low
        share = sum(ratio ** (-i / (rungs - 1)) for i in range(rungs))
        high = flops / (runs * share)
        low = high / ratio
    return ladder(low, high, rungs)
