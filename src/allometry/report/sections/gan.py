"""Adversarial training: samples, modes, costs and the discriminator of the best run."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.content import Chart, Part, Section
from allometry.report.run_groups import RunsLike

if TYPE_CHECKING:
    from allometry.report.gan_figures import BestRun

MOST_FAMILIES = 3
"""Families whose modes over time are shown."""


def _applies(runs: RunsLike, analysis: Analysis) -> bool:
    folder = getattr(runs, "folder", None)
    return not analysis.findings and folder is not None and (Path(folder) / "samples").is_dir()


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    # The discriminator's field needs torch, which other studies do not load.
    from allometry.report import gan_figures

    runs_by_family = gan_figures.best(runs, Path(getattr(runs, "folder", "")))
    if runs_by_family:
        yield Part("game", "Adversarial training", tuple(_charts(runs_by_family)))


def _charts(best: "list[BestRun]") -> Iterator[Chart]:
    from allometry.report import gan_figures as gan

    first, noun = best[0], "mode" if best[0].plane else "class"
    name, curve, left, modes = fmt.family(first.family), first.curve, first.left, first.modes
    if first.plane:
        yield Chart(
            "samples-along-training",
            lambda w: gan.samples_along(left["step"], left["samples"], left["real"], w),
            f"Samples of the best run ({name}) over the data during training.",
        )
    yield Chart(
        "modes-along-training",
        lambda w: gan.modes_along(curve, modes, w, noun) if modes else None,
        f"{'Modes' if first.plane else 'Classes'} with at least one sample of high quality, in "
        f"the best run ({name}).",
    )
    yield Chart(
        "players-costs",
        lambda w: gan.costs(curve, w),
        "Cost of each player in that run. In a game that goes well, neither falls for long.",
    )
    if first.plane:
        yield Chart(
            "discriminators-field",
            lambda w: gan.discriminator_field(left["judge"], left["real"], left["samples"][-1], w),
            "The log density ratio log p/q that the discriminator of that run estimates at the "
            "end of training. It is near 0 where data and samples agree.",
        )
    for i, run in enumerate(run for run in best[:MOST_FAMILIES] if run.modes):
        yield Chart(
            f"modes-over-time{'' if i == 0 else f'-{i + 1}'}",
            lambda w, own=run.left: gan.modes_over_time(own["look"], own["shares"], w, noun),
            f"Samples of the best {fmt.family(run.family)} by their nearest {noun} during "
            "training; 1 is an even share. Patches that come and go are a generator that cycles.",
        )
    critic, minimax = "WGAN" in first.family, "unrolled" in first.family
    yield Chart(
        "smallest-game",
        lambda w: gan.smallest_game(critic, w, minimax=minimax),
        "The same costs in the smallest game (Dirac-GAN): the generator is one point (x axis), "
        "the discriminator one slope (y axis), and arrows show the directions of gradient "
        "descent. Simultaneous steps circle the equilibrium in the middle; look-ahead steps "
        "approach it faster.",
    )


SECTION = Section(_applies, _parts)
