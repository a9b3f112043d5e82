"""Studies of densities: points, tables and images, by the names of their jobs."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from allometry._core.errors import require
from allometry.study import recipes
from allometry.study.job_table import (
    FLOW,
    GAN_FAMILIES,
    JOBS,
    LIKELIHOOD_FAMILIES,
    RECONSTRUCTION_FAMILIES,
)
from allometry.study.recipes.density_runs import Vectors
from allometry.study.recipes.quantiser_runs import UNIT
from allometry.study.size_ladder import ladder
from allometry.study.study import Recipe, Study
from allometry.targets import Images, NumericTable, Points, points

DISTRIBUTIONS: dict[str, Callable[[], points.Density]] = {
    "moons": points.TwoMoons,
    "rings": points.Rings,
    "checkerboard": points.Checkerboard,
    "spirals": points.Spirals,
    "eight_gaussians": points.eight_gaussians,
    "ring": points.ring,
    "grid": points.grid,
    "mixture": points.random_mixture,
    "funnel": points.Funnel,
    "banana": points.Banana,
}
"""Distributions of points by the name of their job."""

GAN_RECIPES: dict[str, Recipe] = {
    "gan": recipes.gan,
    "pacgan2": functools.partial(recipes.gan, pack=2),
    "pacgan3": functools.partial(recipes.gan, pack=3),
    "pacgan4": functools.partial(recipes.gan, pack=4),
    "unrolled_gan": functools.partial(recipes.gan, unroll=5),
    "wgan": functools.partial(recipes.gan, wasserstein=True),
}

OTHER_LOSS = "Families with another loss need a study of their own."


def vectors(job: str) -> Vectors | None:
    """The target of a job, or `None` if the job is not a density."""
    if job in DISTRIBUTIONS:
        return Points(DISTRIBUTIONS[job]())
    if job == "digits":
        return Images.digits()
    path = Path(job).expanduser()
    if path.suffix.lower() == ".csv":
        return NumericTable(job)
    if path.suffix.lower() == ".npy":
        return Images.array(job)
    if path.is_dir() and not (path / "study.json").exists():
        return Images.folder(job)
    return None


def density_study(
    target: Vectors,
    *,
    families: Sequence[str] = (),
    smallest: float = 1e3,
    largest: float = 1e5,
    rungs: int = 6,
    seeds: int = 2,
    examples: Sequence[float] | None = None,
) -> Study:
    """Models of growing size on one density, with a baseline.

    Args:
        target: Points, a table or images.
        families: Of `LIKELIHOOD_FAMILIES`. Default, and meaning of `"flow"`: affine and spline
            couplings for points, spline couplings for images. `RECONSTRUCTION_FAMILIES` and
            `GAN_FAMILIES` have other losses, see `reconstruction_study` and `gan_study`.
        smallest: Parameters of the smallest model.
        largest: Parameters of the largest, at most 100,000.
        rungs: Number of sizes, at most 6.
        seeds: Repetitions.
        examples: Training examples D. Default: three budgets of some minutes.
    """
    common = {"families": families, "rungs": rungs, "seeds": seeds, "examples": examples}
    if families and families[0] in RECONSTRUCTION_FAMILIES:
        return reconstruction_study(target, **common)  # pyright: ignore
    if families and families[0] in GAN_FAMILIES:
        return gan_study(target, smallest=smallest, largest=largest, **common)  # pyright: ignore
    images = isinstance(target, Images)
    flows = ["spline_coupling"] if images else ["affine_coupling", "spline_coupling"]
    expanded = [one for family in families for one in (flows if family == FLOW else [family])]
    chosen = list(dict.fromkeys(expanded)) or flows
    for family in chosen:
        other = family in RECONSTRUCTION_FAMILIES or family in GAN_FAMILIES
        require(not other, "family", f"have the loss of {chosen[0]}", family, OTHER_LOSS)
        known = f"be one of {FLOW}, {', '.join(LIKELIHOOD_FAMILIES)}; or, with none of these, of "
        known += f"{', '.join(RECONSTRUCTION_FAMILIES)}; or of {', '.join(GAN_FAMILIES)}"
        require(family in LIKELIHOOD_FAMILIES, "family", known, family)
    # A pixel's CDF alone needs a parameter for each of its values: no flow of images is smaller.
    least = 4 * target.dim * (target.levels or 1) if images else smallest
    return Study(
        target,
        recipes=[*(getattr(recipes, family) for family in chosen), recipes.baseline],
        ladder=ladder(max(smallest, least), max(min(largest, 1e5), 8 * least), min(rungs, 6)),
        seeds=seeds,
        tokens=examples or list(JOBS["digits" if images else "moons"].tokens),
    )


def reconstruction_study(
    target: Vectors,
    *,
    families: Sequence[str] = ("quantiser",),
    rungs: int = 6,
    seeds: int = 2,
    examples: Sequence[float] | None = None,
) -> Study:
    """Quantisers and autoencoders, by the squared error of their reconstructions.

    Args:
        target: Points, a table or images.
        families: Of `RECONSTRUCTION_FAMILIES`.
        rungs: Number of sizes, at most 8: 4 to 512 times the dimension of an example.
        seeds: Repetitions.
        examples: Training examples D. Default: 2,000, 8,000 and 32,000.
    """
    for family in families:
        names = f"be one of {', '.join(RECONSTRUCTION_FAMILIES)}"
        require(family in RECONSTRUCTION_FAMILIES, "family", names, family, OTHER_LOSS)
    return Study(
        target,
        recipes=[getattr(recipes, family) for family in families],
        ladder=ladder(4.0 * target.dim, 512.0 * target.dim, min(rungs, 8)),
        seeds=seeds,
        tokens=examples or [2_000, 8_000, 32_000],
        unit=UNIT,
    )


def gan_study(
    target: Vectors,
    *,
    families: Sequence[str] = ("gan", "pacgan2"),
    smallest: float = 300.0,
    largest: float = 3e4,
    rungs: int = 4,
    seeds: int = 2,
    examples: Sequence[float] | None = None,
) -> Study:
    """Generative adversarial networks of growing generators, and a fitted Gaussian.

    Args:
        target: Points or images.
        families: Of `GAN_FAMILIES`.
        smallest: Parameters of the smallest generator, at least 40 times the dimension.
        largest: Parameters of the largest, at most 400 times the dimension, or 30,000.
        rungs: Number of sizes, at most 4.
        seeds: Repetitions.
        examples: Examples seen in training. Default: 100,000 and 300,000.
    """
    fix = "Use flows for tables."
    require(isinstance(target, Points | Images), "game", "be of points or images", target, fix)
    for family in families:
        names = f"be one of {', '.join(GAN_FAMILIES)}"
        require(family in GAN_FAMILIES, "family", names, family, OTHER_LOSS)
    require(smallest <= largest, "smallest", f"be at most the largest, {largest:g}", smallest)
    # Generators are small: restrict the command line's default sizes, which are for text.
    least = max(300.0, 40.0 * target.dim)
    most = max(3e4, 400.0 * target.dim)
    low = min(max(smallest, least), most / 3)
    return Study(
        target,
        recipes=[*(GAN_RECIPES[family] for family in families), recipes.moments],
        ladder=ladder(low, max(low, min(largest, most)), min(rungs, 4)),
        seeds=seeds,
        tokens=examples or list(JOBS["ring"].tokens),
        unit=JOBS["ring"].unit,
    )
