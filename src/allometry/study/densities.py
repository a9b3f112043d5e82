"""Studies of densities: points, tables and images, by the names people give them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from allometry._core.errors import require
from allometry.study.ladder import ladder
from allometry.study.recipes.baseline import baseline
from allometry.study.recipes.density import Vectors
from allometry.study.recipes.flows import (
    affine_coupling,
    glow,
    masked_autoregressive,
    spline_coupling,
    vae,
)
from allometry.study.study import Study
from allometry.targets import Images, Points, Table, points

LAWS: dict[str, Callable[[], points.Density]] = {
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
"""Jobs by name, besides files."""

RECIPES = {
    "affine_coupling": affine_coupling,
    "spline_coupling": spline_coupling,
    "masked_autoregressive": masked_autoregressive,
    "glow": glow,
    "vae": vae,
}


def vectors(job: str) -> Vectors | None:
    """The target that a job names, or nothing where it names no density."""
    if job in LAWS:
        return Points(LAWS[job]())
    if job == "digits":
        return Images.digits()
    path = Path(job).expanduser()
    if path.suffix.lower() == ".csv":
        return Table(job)
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
    """Flows of growing size on one density, and what they must beat.

    Args:
        target: Points, a table or images.
        families: Of `RECIPES`; affine and spline couplings for points, splines for images, unless
            told.
        smallest: Parameters of the smallest flow.
        largest: Of the largest, 100,000 at most.
        rungs: Sizes, 6 at most.
        seeds: Repetitions.
        examples: Training examples D; three budgets of some minutes unless told.
    """
    images = isinstance(target, Images)
    chosen = list(families) or (
        ["spline_coupling"] if images else ["affine_coupling", "spline_coupling"]
    )
    for family in chosen:
        require(family in RECIPES, "family", f"be one of {', '.join(RECIPES)}", family)
    # A pixel's CDF alone takes a number for each of its values: no flow of images is smaller.
    least = 4 * target.dim * (target.levels or 1) if images else smallest
    return Study(
        target,
        recipes=[*(RECIPES[f] for f in chosen), baseline],
        ladder=ladder(max(smallest, least), max(min(largest, 1e5), 8 * least), min(rungs, 6)),
        seeds=seeds,
        tokens=examples or ([12_800, 25_600, 51_200] if images else [32_000, 64_000, 256_000]),
    )
