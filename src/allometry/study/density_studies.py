"""Studies of densities: points, tables and images, by the names people give them."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from allometry._core.errors import require
from allometry.study.ladder import ladder
from allometry.study.recipes.autoencoder import PLAIN
from allometry.study.recipes.baseline import baseline
from allometry.study.recipes.density import Vectors
from allometry.study.recipes.density_recipes import RECIPES
from allometry.study.recipes.gan import gan
from allometry.study.recipes.moments import moments
from allometry.study.recipes.pixels import pixelcnn
from allometry.study.recipes.quantiser import UNIT, quantiser
from allometry.study.study import Recipe, Study
from allometry.targets import Images, NumericTable, Points, points

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


FLOW = "flow"
"""Stands for the flows that a density has where no family is named."""


PLAYING: dict[str, Recipe] = {
    "gan": gan,
    "pacgan2": functools.partial(gan, pack=2),
    "pacgan3": functools.partial(gan, pack=3),
    "pacgan4": functools.partial(gan, pack=4),
    "unrolled_gan": functools.partial(gan, unroll=5),
    "wgan": functools.partial(gan, wasserstein=True),
}
"""Families that play against a discriminator: their loss is a distance of samples."""


APART = "Families with another loss need a study of their own."

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
    """Flows of growing size on one density, and what they must beat.

    Args:
        target: Points, a table or images.
        families: Of `LIKELY`; affine and spline couplings for points, splines for images, where
            none is named or `"flow"` is. Those of `COPYING` and of `PLAYING` are studies of other
            losses, see `copy_study` and `game_study`.
        smallest: Parameters of the smallest flow.
        largest: Of the largest, 100,000 at most.
        rungs: Sizes, 6 at most.
        seeds: Repetitions.
        examples: Training examples D; three budgets of some minutes unless told.
    """
    if families and families[0] in COPYING:
        return copy_study(target, families=families, rungs=rungs, seeds=seeds, examples=examples)
    if families and families[0] in PLAYING:
        sizes = {"smallest": smallest, "largest": largest, "rungs": rungs}
        told = {"families": families, "seeds": seeds, "examples": examples}
        return game_study(target, **told, **sizes)  # pyright: ignore
    images = isinstance(target, Images)
    usual = ["spline_coupling"] if images else ["affine_coupling", "spline_coupling"]
    named = [one for family in families for one in (usual if family == FLOW else [family])]
    chosen = list(dict.fromkeys(named)) or usual
    for family in chosen:
        alone = family in COPYING or family in PLAYING
        require(not alone, "family", f"have the loss of {chosen[0]}", family, APART)
        known = f"be one of {FLOW}, {', '.join(LIKELY)}; or, with none of these, of "
        known += f"{', '.join(COPYING)}; or of {', '.join(PLAYING)}"
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
        require(family in COPYING, "family", f"be one of {', '.join(COPYING)}", family, APART)
    return Study(
        target,
        recipes=[COPYING[family] for family in families],
        ladder=ladder(4.0 * target.dim, 512.0 * target.dim, min(rungs, 8)),
        seeds=seeds,
        tokens=examples or [2_000, 8_000, 32_000],
        unit=UNIT,
    )


def game_study(
    target: Vectors,
    *,
    families: Sequence[str] = ("gan", "pacgan2"),
    smallest: float = 300.0,
    largest: float = 3e4,
    rungs: int = 4,
    seeds: int = 2,
    examples: Sequence[float] | None = None,
) -> Study:
    """Generators of growing size against their discriminators, by remedy, and a fitted Gaussian.

    Args:
        target: Points or images.
        families: Of `PLAYING`.
        smallest: Parameters of the smallest generator; at least 40 times an example's numbers.
        largest: Of the largest, 400 times those numbers at most, or 30,000.
        rungs: Sizes, 4 at most.
        seeds: Repetitions.
        examples: Examples seen in training; 100,000 and 300,000 unless told.
    """
    fix = "Flows learn tables."
    require(isinstance(target, Points | Images), "game", "be of points or images", target, fix)
    for family in families:
        require(family in PLAYING, "family", f"be one of {', '.join(PLAYING)}", family, APART)
    require(smallest <= largest, "smallest", f"be at most the largest, {largest:g}", smallest)
    # A generator is small: the command line's ladder for text is cut to what it needs.
    least = max(300.0, 40.0 * target.dim)
    most = max(3e4, 400.0 * target.dim)
    low = min(max(smallest, least), most / 3)
    return Study(
        target,
        recipes=[*(PLAYING[family] for family in families), moments],
        ladder=ladder(low, max(low, min(largest, most)), min(rungs, 4)),
        seeds=seeds,
        tokens=examples or [1e5, 3e5],
        unit="sliced Wasserstein distance",
    )
