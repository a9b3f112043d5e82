"""The pictures of the page: which charts it has, in which widths, and what to read under them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import final

from allometry.report import extrapolation, figures, theme
from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis, FamilyFit
from allometry.report.extrapolation import Crossover
from allometry.report.prose import plural, trust
from allometry.report.run_groups import RunsLike, curved
from allometry.report.sections import families as many
from allometry.report.sections.nesting import depth_against_nesting
from allometry.report.sections.sizes import sizes
from allometry.report.theme import Spec

WIDE, NARROW, PANEL = 960, 344, 344
MANY = 3
"""Trained families from which on one chart shows them all against size."""

_BOTH = (("wide", WIDE), ("narrow", NARROW))


@final
@dataclass(frozen=True)
class Figure:
    """A chart on the page: its pictures by screen width and what to read under it."""

    name: str
    kind: str
    pictures: tuple[tuple[str, str], ...]
    caption: str


@final
@dataclass(frozen=True)
class Panel:
    """One family against N, D and C, with a word on how far its law can be trusted."""

    title: str
    trust: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]


@final
@dataclass
class PageFigures:
    """All pictures of a page, and the same charts by name as files of their own."""

    frontier: Figure | None = None
    sizes: Figure | None = None
    families: Figure | None = None
    nesting: Figure | None = None
    panels: list[Panel] = field(default_factory=list)
    curves: Figure | None = None
    game: list[Figure] = field(default_factory=list)
    findings: list[list[Figure]] = field(default_factory=list)
    charts: dict[str, str] = field(default_factory=dict)

    def draw(
        self,
        name: str,
        chart: Callable[[int], Spec | None],
        sizes: tuple[tuple[str, int], ...],
        caption: str,
    ) -> Figure | None:
        """The chart in each width, or nothing where there is nothing to draw."""
        pictures = []
        for size, width in sizes:
            spec = chart(width)
            if spec is None:
                return None
            picture = theme.svg(spec)
            pictures.append((size, theme.inline(picture, f"{name}-{size}", escape(caption))))
            self.charts.setdefault(name, theme.on_paper(picture))
        return Figure(name, "single" if len(sizes) > 1 else "panel", tuple(pictures), caption)


def plates(runs: RunsLike, story: Analysis) -> PageFigures:
    """Draw everything that the story has something to show for."""
    made = PageFigures()
    if story.findings:
        for finding in story.findings:
            sizes_ = _BOTH if len(finding.charts) == 1 else (("every", PANEL),)
            drawn = [made.draw(c.name, c.draw, sizes_, c.caption) for c in finding.charts]
            made.findings.append([figure for figure in drawn if figure is not None])
        return made
    if story.families:
        made.frontier = made.draw(
            "loss-against-compute",
            lambda width: figures.frontier(runs, story, width),
            _BOTH,
            _frontier_caption(story),
        )
    made.sizes = made.draw(
        "loss-against-size",
        lambda width: sizes(runs, story.unit, width),
        _BOTH,
        "The lowest loss at each size. Lines are power laws of the parameters N, fitted to each "
        "family by itself; built networks have no training, and of them only parameters that are "
        "not zero count.",
    )
    if len(story.families) >= MANY:
        # Domains are not rivals: that one lies below another says nothing.
        rivals = story.target != "domains"
        met = extrapolation.attempt(lambda: many.meetings(runs))[0] or [] if rivals else []
        made.families = made.draw(
            "families-against-size",
            lambda width: many.chart(runs, story.unit, width),
            _BOTH,
            "Loss against size at the most data that all trained families have seen; bars are "
            "95 % between seeds. Count models have read all of the training data, and their size "
            f"is the counts they keep. {many.sentence(met)}".rstrip(),
        )
    made.nesting = made.draw(
        "depth-against-nesting",
        lambda width: depth_against_nesting(runs, width),
        _BOTH,
        "How well networks of several depths remember open brackets, against how deep these may "
        "nest. The construction has two layers and the exact next-symbol distribution at every "
        "nesting depth.",
    )
    for i, family in enumerate(story.families):
        made.panels.append(_panel(made, runs, story, family, i))
    there = len(curved(runs))
    each = "one line for each run"
    if there > figures.MOST_CURVES:
        each = (
            f"of up to {figures.MOST_CURVES} runs chosen evenly from {there:,}, one line for each"
        )
    made.curves = made.draw(
        "learning-curves",
        lambda width: figures.curves(runs, story, width),
        _BOTH,
        f"Validation loss in {story.unit} along training, {each}, coloured by size; "
        "broken lines did not finish. The first steps may lie above the frame.",
    )
    _game(made, runs, story)
    return made


def _game(made: PageFigures, runs: RunsLike, story: Analysis) -> None:
    """The adversarial run of least loss, where the study has one that kept its samples."""
    folder = getattr(runs, "folder", None)
    if folder is None or not (Path(folder) / "samples").is_dir():
        return
    # Torch takes a second to import, which studies of other families need not pay.
    from allometry.report.sections import gan

    found = gan.best(runs, Path(folder))
    if not found:
        return
    first, noun = found[0], "mode" if found[0].plane else "class"
    whose, curve, left, most = (
        fmt.family(first.family),
        first.curve,
        first.left,
        first.modes,
    )
    charts: list[tuple[str, Callable[[int], Spec | None], str]] = [
        (
            "modes-along-training",
            lambda w: gan.modes_along(curve, most, w, noun) if most else None,
            f"{'Modes' if first.plane else 'Classes'} with at least one sample of high quality, "
            f"of the best run ({whose}).",
        ),
        (
            "players-costs",
            lambda w: gan.costs(curve, w),
            "What each player of that run pays: neither falls for long in a game that goes well.",
        ),
    ]
    if first.plane:
        charts.insert(0, (
            "samples-along-training",
            lambda w: gan.samples_along(left["step"], left["samples"], left["real"], w),
            f"Samples of the best run ({whose}) over the data, along training.",
        ))  # fmt: skip
        charts.append((
            "discriminators-field",
            lambda w: gan.discriminator_field(
                left["judge"], left["real"], left["samples"][-1], w
            ),
            "The log density ratio log p/q as the discriminator of that run sees it at the end; "
            "near 0 where data and samples agree.",
        ))  # fmt: skip
    for i, each in enumerate(run for run in found[:3] if run.modes):
        charts.append((
            f"modes-over-time{'' if i == 0 else f'-{i + 1}'}",
            lambda w, own=each.left: gan.modes_over_time(own["look"], own["shares"], w, noun),
            f"Where samples of the best {fmt.family(each.family)} lie along training: each is "
            f"counted at the nearest {noun}, and 1 is an even share. Patches that come and go are "
            "a generator that cycles.",
        ))  # fmt: skip
    critic, minimax = "WGAN" in first.family, "unrolled" in first.family
    charts.append((
        "smallest-game",
        lambda w: gan.smallest_game(critic, w, minimax=minimax),
        "The same costs in the smallest game there is: the generator is one point (across), the "
        "discriminator one slope (up), and arrows are where the two would go. Plain steps circle "
        "the equilibrium in the middle; looking ahead brings them in sooner.",
    ))  # fmt: skip
    drawn = (made.draw(name, chart, _BOTH, caption) for name, chart, caption in charts)
    made.game = [figure for figure in drawn if figure is not None]


def _panel(made: PageFigures, runs: RunsLike, story: Analysis, family: FamilyFit, i: int) -> Panel:
    drawn, notes = [], []
    name = fmt.family(family.name)
    # A family's name may come from anywhere, and this one becomes the name of a file.
    tail = "" if i == 0 else f"-{i + 1}-{re.sub('[^a-z0-9]+', '-', family.name.lower())[:40]}"
    for x in "NDC":
        figure = made.draw(
            f"loss-against-{x}{tail}",
            lambda width, x=x: figures.against(runs, story, x, width, family=family),
            (("every", PANEL),),
            f"Loss of the {name} in {story.unit} against {_against(x, story.token)}.",
        )
        if figure is not None:
            drawn.append(figure)
        elif len(family.configurations) > 1:
            notes.append(
                f"Loss against {x} is not drawn: {x} was the same in all finished runs, so how "
                "loss depends on it was not measured."
            )
    title = f"{name[:1].upper()}{name[1:]}" if len(story.families) > 1 else ""
    return Panel(title, trust(family), tuple(drawn), tuple(notes))


def _against(x: str, token: str) -> str:
    return {
        "N": "size: parameters",
        "D": f"data: {plural(token)} seen in training",
        "C": "compute: FLOPs of training",
    }[x]


def _frontier_caption(story: Analysis) -> str:
    several = len(story.families) > 1
    split = any(f.law and {"N", "D"} <= set(f.law.variables) for f in story.families)
    text = "Each dot is a finished run. "
    text += "Each family's line is " if several else "The line is "
    text += "the loss at the best split of each compute, by the law" if split else "the law"
    text += " fitted to its runs" if several else " fitted to all of them"
    text += ", dotted beyond the largest, with the 95 % interval of a new run around it"
    first = story.families[0]
    whose = f" for the {fmt.family(first.name)}" if several else ""
    if first.reaches:
        text += f"; open diamonds are what larger budgets would reach{whose}"
    if story.rival is not None:
        text += f"; the broken line is the best {fmt.family(story.rival.family)}"
        if _drawn(first.crossing):
            text += ", the ring the predicted crossover with it, with its interval"
    return f"{text}."


def _drawn(met: Crossover | None) -> bool:
    return met is not None and met.C is not None and math.isfinite(met.C.value)


def panel_notes(story: Analysis) -> list[str]:
    """How to read the panels."""
    if any(f.held_out for f in story.families):
        return [
            "Crosses are the held-out runs, dots the runs that the law was fitted to. The line "
            "and its 95 % band come from the dots alone."
        ]
    if any(f.law for f in story.families):
        return ["The line and its 95 % band are the law fitted to all finished runs."]
    return []
