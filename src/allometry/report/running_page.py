"""The page of a study that is running: losses so far, without a fit; it reloads itself.

The report replaces it in the same file when the last run has ended.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, final

from allometry._core.files import path_exists
from allometry.report import formatting as fmt
from allometry.report import page_template, theme
from allometry.report.theme import FAMILY_COLOURS, LIGHT, Spec

MARK = '<meta name="allometry-page" content="running">'
"""Identifies a page that the next one may replace."""

WIDE, NARROW = 960, 344
"""Widths in pixels of the chart on wide and narrow screens."""

SPACING = 1.06
"""Ratio of the data seen at two points of a curve."""

MOST_CURVES = 60
"""Runs whose curves are drawn: those that started last."""


@final
@dataclass
class RunSoFar:
    """A run that has started.

    Args:
        family: Its family.
        shape: Its shape.
        seed: Its seed.
        N: Parameters.
        D: Training data of the whole run.
        seen: Training data at each point of the curve.
        losses: Training loss there.
        status: `running`, `done`, `failed` or `diverged`.
        loss: Validation loss, once it is done.
    """

    family: str
    shape: str
    seed: int
    N: float
    D: float
    seen: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    status: str = "running"
    loss: float | None = None

    def add(self, share: float, loss: float) -> None:
        """Add a point to the curve: evenly spaced in logarithms, and always the last one."""
        if len(self.seen) > 1 and share * self.D < SPACING * self.seen[-2]:
            del self.seen[-1], self.losses[-1]
        self.seen.append(share * self.D)
        self.losses.append(loss)


def replaceable(path: Path) -> bool:
    """Whether there is no page, or one of a running study: a finished report is kept."""
    if not path_exists(path):
        return True
    with path.open(encoding="utf-8", errors="replace") as file:
        return MARK in file.read(1 << 17)  # it follows the style


def write(
    path: Path,
    runs: Mapping[str, RunSoFar],
    *,
    target: str,
    unit: str,
    token: str,
    total: int,
    left: str = "",
    stopped: bool = False,
) -> Path:
    """Write the page.

    Args:
        path: The HTML file.
        runs: The runs that have started, by key.
        target: The target's name.
        unit: Unit of the loss.
        token: Unit of the data.
        total: Number of runs.
        left: Expected time until the study is done.
        stopped: Whether nothing more will happen, so that the page need not reload.
    """
    ended = sum(run.status != "running" for run in runs.values())
    name = f"{unit.capitalize()} during training, against {token}s seen"
    label = "Dots are validation losses of finished runs, lines training losses."
    pictures = []
    for size, width in (("wide", WIDE), ("narrow", NARROW)):
        chart = _chart(runs, width, unit, token)
        if chart is not None:
            pictures.append((size, theme.inline(theme.svg(chart), f"so-far-{size}", escape(name))))
    page = page_template.fill(
        "running.html",
        script=("page.js",) if stopped else ("page.js", "running.js"),
        mark=MARK,
        target=target,
        state="stopped" if stopped else "running",
        headline=f"{ended} of {fmt.several(total, 'run')} done"
        + (f", {left} left" if left else ""),
        pictures=pictures,
        caption=label,
        rows=_rows(runs),
        unit=unit,
        written=round(1000 * time.time()),
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    return page_template.save(path, page)


def _chart(runs: Mapping[str, RunSoFar], width: int, unit: str, token: str) -> Spec | None:
    """Training loss against data, and the validation losses of finished runs."""
    shown = list(runs.items())[-MOST_CURVES:]
    families = list(dict.fromkeys(run.family for run in runs.values()))
    palette = [LIGHT[FAMILY_COLOURS[i % len(FAMILY_COLOURS)]] for i in range(len(families))]
    names = [fmt.family(family) for family in families]
    lines: dict[str, list[Any]] = {name: [] for name in ("key", "x", "y", "family", "about")}
    dots: dict[str, list[Any]] = {name: [] for name in ("x", "y", "family", "about")}
    for key, run in shown:
        about = f"{fmt.family(run.family)}, {run.shape}, seed {run.seed}"
        for seen, loss in zip(run.seen, run.losses, strict=True):
            if seen > 0 and math.isfinite(loss):
                for name, value in zip(
                    lines, (key, seen, loss, fmt.family(run.family), about), strict=True
                ):
                    lines[name].append(value)
        if run.loss is not None and run.D > 0:
            about += f": {run.loss:.3f}"
            for name, value in zip(
                dots, (run.D, run.loss, fmt.family(run.family), about), strict=True
            ):
                dots[name].append(value)
    if not lines["x"] and not dots["x"]:
        return None
    colour = {"field": "family", "type": "nominal", "title": None,
              "scale": {"domain": names, "range": palette}}  # fmt: skip
    low, high = theme.extent([*lines["x"], *dots["x"]], 0.02)
    x = theme.log_axis("x", low, high, fmt.count, f"{token.capitalize()}s seen")
    y = {"field": "y", "type": "quantitative", "scale": {"zero": False}, "axis": {"title": None}}
    layers = [
        theme.layer(lines, "line", {"strokeWidth": 1.3, "opacity": 0.8},
                    x=x, y=y, detail="key", color=colour, tooltip="about"),
        theme.layer(dots, "point", {"filled": True, "size": 44, "opacity": 0.9},
                    x=x, y=y, color=colour, tooltip="about"),
    ]  # fmt: skip
    height = round(width * (0.46 if width > 500 else 1.0))
    return theme.styled(layers, unit.capitalize(), width, height)


def _rows(runs: Mapping[str, RunSoFar]) -> list[tuple[str, ...]]:
    """One row per family, shape and amount of data, in order of size."""
    groups: dict[tuple[str, float, str, float], list[RunSoFar]] = {}
    for run in runs.values():
        groups.setdefault((run.family, run.N, run.shape, run.D), []).append(run)
    rows = []
    for (family, N, shape, D), found in sorted(groups.items()):
        losses = [run.loss for run in found if run.loss is not None]
        running = sum(run.status == "running" for run in found)
        failed = sum(run.status in ("failed", "diverged") for run in found)
        state = [f"{len(losses)} done"] if losses else []
        state += [f"{running} running"] if running else []
        state += [f"{failed} failed"] if failed else []
        mean = f"{sum(losses) / len(losses):.3f}" if losses else ""
        rows.append(
            (fmt.family(family), shape, fmt.count(N), fmt.count(D), ", ".join(state), mean)
        )
    return rows
