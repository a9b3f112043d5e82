"""Studies of densities: points, tables and images, by the names people give them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from allometry._core.errors import require
from allometry.study.ladder import ladder
from allometry.study.recipes.autoencoder import PLAIN
from allometry.study.recipes.baseline import baseline
from allometry.study.recipes.density import Vectors
from allometry.study.recipes.flows import RECIPES
from allometry.study.recipes.pixels import pixelcnn
from allometry.study.recipes.quantiser import UNIT, quantiser
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


LIKELY = {**RECIPES, "pixelcnn": pixelcnn}
"""Families with a likelihood (or a bound on it)."""

COPYING = {"quantiser": quantiser, **PLAIN}
"""Families whose loss is the squared error of a copy, apart from those with a likelihood."""


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
        families: Of `LIKELY`; affine and spline couplings for points, splines for images, unless
            told. Those of `COPYING` are a study of another loss, see `copy_study`.
        smallest: Parameters of the smallest flow.
        largest: Of the largest, 100,000 at most.
        rungs: Sizes, 6 at most.
        seeds: Repetitions.
        examples: Training examples D; three budgets of some minutes unless told.
    """
    if families and families[0] in COPYING:
        return copy_study(target, families=families, rungs=rungs, seeds=seeds, examples=examples)
    images = isinstance(target, Images)
    chosen = list(families) or (
        ["spline_coupling"] if images else ["affine_coupling", "spline_coupling"]
    )
    for family in chosen:
        known = f"be one of {', '.join(LIKELY)}; or, with none of these, of {', '.join(COPYING)}"
        require(family in LIKELY, "family", known, family)
    # A pixel's CDF alone takes a number for each of its values: no flow of images is smaller.
    least = 4 * target.dim * (target.levels or 1) if images else smallest
    return Study(
        target,
        recipes=[*(LIKELY[f] for f in chosen), baseline],
        ladder=ladder(max(smallest, least), max(min(largest, 1e5), 8 * least), min(rungs, 6)),
        seeds=seeds,
        tokens=examples or ([12_800, 25_600, 51_200] if images else [32_000, 64_000, 256_000]),
    )


def copy_study(
    target: Vectors,
    *,
    families: Sequence[str] = ("quantiser",),
    rungs: int = 6,
    seeds: int = 2,
    examples: Sequence[float] | None = None,
) -> Study:
    """Quantisers and autoencoders: what a copy through so small a code costs in squared error.

    Args:
        target: Points, a table or images.
        families: Of `COPYING`.
        rungs: Sizes, 8 at most: 4 to 512 times the numbers of an example.
        seeds: Repetitions.
        examples: Training examples D; three numbers up to 32,000 unless told.
    """
    for family in families:
        require(family in COPYING, "family", f"be one of {', '.join(COPYING)}", family)
    return Study(
        target,
        recipes=[COPYING[family] for family in families],
        ladder=ladder(4.0 * target.dim, 512.0 * target.dim, min(rungs, 8)),
        seeds=seeds,
        tokens=examples or [2_000, 8_000, 32_000],
        unit=UNIT,
    )
