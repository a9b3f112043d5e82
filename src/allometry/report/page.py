"""The report of a study: one self-contained HTML page with its charts and tables."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, final

from allometry._core.files import atomic_write, make_folder, path_inside
from allometry.laws import Law, Plan
from allometry.report import formatting as fmt
from allometry.report import page_template, planner_data, theme
from allometry.report.analysis import Analysis, analyse
from allometry.report.content import Block, Chart, ChartRow, Part
from allometry.report.prose import doubts, facts, plural
from allometry.report.run_groups import RunsLike
from allometry.report.sections import SECTIONS

WIDE, NARROW, PANEL = 960, 344, 344
"""Widths in pixels of a chart on wide and narrow screens, and of one in a row."""


def write(
    path: Path | str,
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    *,
    analysis: Analysis | None = None,
) -> Path:
    """Write the report of a study as one HTML file, and its charts as SVG beside it.

    The page loads nothing from elsewhere. The charts are also saved in `<stem>_charts/`, one SVG
    file each. The study may still be running: the page then covers the runs so far.

    Args:
        path: The HTML file.
        runs: A study's runs.
        law: The scaling law of the trained family. Default: fitted here.
        plan: A plan to show beside the predictions for 10 and 100 times the compute.
        analysis: What `analyse` returned, to save its time. Default: computed here.

    Returns:
        The path of the page.

    References:
        `hoffmann2022` (scaling laws in size and data), `muennighoff2023` (repeated data).
    """
    path = page_template.html_path(path, "write")
    make_folder(path.parent)
    analysis = analysis if analysis is not None else analyse(runs, law, plan)
    page, charts = render(runs, analysis)
    # The page may be in a study's folder; a link there must not lead out of it.
    folder = make_folder(path_inside(path.parent, f"{path.stem}_charts")) if charts else None
    for name, picture in charts.items():
        assert folder is not None
        with atomic_write(folder / f"{name}.svg") as file:
            file.write(picture)
    return page_template.save(path, page)


def render(runs: RunsLike, analysis: Analysis) -> tuple[str, dict[str, str]]:
    """The page as HTML, and its charts as SVG by name."""
    drawing = _Drawing()
    parts = [
        drawing.part(part)
        for section in SECTIONS
        if section.applies(runs, analysis)
        for part in section.parts(runs, analysis)
    ]
    planned = any(kind == "Planner" for part in parts for kind, _ in part["blocks"])
    page = page_template.fill(
        "page.html",
        *((planner_data.STYLE,) if planned else ()),
        script=("page.js", *(planner_data.SCRIPTS if planned else ())),
        analysis=analysis,
        subtitle=_subtitle(analysis),
        notes=doubts(analysis),
        facts=facts(analysis),
        parts=[part for part in parts if part["blocks"]],
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    return page, drawing.charts


@final
@dataclass(frozen=True)
class Figure:
    """A drawn chart: its pictures by screen width, its caption, `single` or `panel` layout."""

    layout: str
    pictures: tuple[tuple[str, str], ...]
    caption: str


@final
@dataclass(frozen=True)
class FigureRow:
    """Drawn charts side by side."""

    figures: tuple[Figure, ...]


@final
@dataclass
class _Drawing:
    """Draws the charts of a page and collects them as SVG by name."""

    charts: dict[str, str] = field(default_factory=dict)

    def part(self, part: Part) -> dict[str, Any]:
        """The part for the template, with its charts drawn; empty ones are left out."""
        blocks = [drawn for block in part.blocks if (drawn := self._block(block)) is not None]
        named = [(type(block).__name__, block) for block in blocks]
        return {"name": part.name, "title": part.title, "blocks": named}

    def _block(self, block: Block) -> Block | Figure | FigureRow | None:
        if isinstance(block, Chart):
            return self._figure(block, "single", (("wide", WIDE), ("narrow", NARROW)))
        if isinstance(block, ChartRow):
            drawn = [self._figure(chart, "panel", (("every", PANEL),)) for chart in block.charts]
            figures = tuple(figure for figure in drawn if figure is not None)
            return FigureRow(figures) if figures else None
        return block

    def _figure(
        self, chart: Chart, layout: str, widths: tuple[tuple[str, int], ...]
    ) -> Figure | None:
        pictures = []
        for size, width in widths:
            spec = chart.draw(width)
            if spec is None:
                return None
            picture = theme.svg(spec)
            name = f"{chart.name}-{size}"
            pictures.append((size, theme.inline(picture, name, escape(chart.caption))))
            self.charts.setdefault(chart.name, theme.on_paper(picture))
        return Figure(layout, tuple(pictures), chart.caption)


def _subtitle(analysis: Analysis) -> str:
    parts = []
    if analysis.D_unique:
        parts.append(f"{fmt.count(analysis.D_unique)} {plural(analysis.token)} of training data")
    parts.append(fmt.several(analysis.total, "run"))
    if analysis.waiting:
        parts.append(f"{analysis.waiting} more to come")
    return "· " + " · ".join(parts)
