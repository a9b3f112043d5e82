"""Loss against size of constructed and trained networks, each family with its own power law."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from allometry import laws
from allometry.laws import Allometry
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.analysis import Analysis
from allometry.report.content import Chart, Part, Section
from allometry.report.figures import AXES
from allometry.report.run_groups import (
    Configuration,
    RunsLike,
    configurations_of,
    counted,
    finished,
    table,
)
from allometry.report.theme import LIGHT, Spec, layer

LEAST = 3
"""Sizes that a power law is fitted to, at least."""


def built(runs: RunsLike) -> list[str]:
    """Families of constructed networks: untrained, and no baseline with a formula or counts."""
    done = finished(table(runs))
    names = [str(name) for name in done["family"].unique()]
    known = ("ngram", *fmt.FITTED)
    return [n for n in names if n not in known and counted(done[done["family"] == n])]


def lines(runs: RunsLike) -> dict[str, Allometry]:
    r"""The power law $\text{loss} = a N^{-b}$ of each family with at least three sizes.

    It is fitted to the lowest loss at each size, so that runs of several lengths are one family.
    """
    fits = {}
    for name, best in _best(runs).items():
        if len(best) >= LEAST:
            x, y = np.array([[c.N, c.loss.value] for c in best]).T
            fits[name] = laws.allometry(x, y)
    return fits


def sizes(runs: RunsLike, unit: str, width: int = 720) -> Spec | None:
    """The chart; `None` unless there are both constructed and trained families.

    Args:
        runs: A study's runs.
        unit: Of the loss.
        width: In pixels.
    """
    best, fits = _best(runs), lines(runs)
    constructed = built(runs)
    if not constructed or len(constructed) == len(best):
        return None
    names = sorted(best, key=lambda n: (n in constructed, n))
    labels = {n: _label(n, fits.get(n)) for n in names}
    rows = [
        {
            "name": labels[n],
            "x": c.N,
            "loss": c.loss.value,
            "tooltip": f"{fmt.family(n)}, {c.shape}: {fmt.estimated(c.loss, fmt.loss, unit)}; "
            f"{fmt.count(c.N)} parameters",
        }
        for n in names
        for c in best[n]
    ]
    if not rows:
        return None  # no loss fits a logarithmic axis
    data = pd.DataFrame(rows)
    order = [labels[n] for n in names]
    hues = [LIGHT[theme.FAMILY_COLOURS[i % len(theme.FAMILY_COLOURS)]] for i in range(len(order))]
    field = {"field": "name", "type": "nominal", "sort": order, "legend": {"title": None}}
    colour = field | {"scale": {"domain": order, "range": hues}}
    signs = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(order))]
    shape = field | {"scale": {"domain": order, "range": signs}}
    x = theme.log_axis("x", *theme.extent(data["x"], 0.05), fmt.count, AXES["N"])
    y = theme.log_axis("loss", *theme.extent(data["loss"], 0.08), fmt.significant, None)
    drawn = [_drawn(labels[n], best[n], fit) for n, fit in fits.items()]
    marks = []
    if drawn:
        stroke = {"strokeWidth": 1.8, "clip": True, "aria": False}
        marks.append(layer(pd.concat(drawn), "line", stroke, x=x, y=y, color=colour))
    dots = {"filled": True, "size": 70, "opacity": 0.92}
    marks.append(
        layer(data, "point", dots, x=x, y=y, color=colour, shape=shape, tooltip="tooltip")
    )
    height = round(width * (0.5 if width > 500 else 1.0))
    return theme.styled(marks, f"Loss, {unit}", width, height)


def _best(runs: RunsLike) -> dict[str, list[Configuration]]:
    """Each family's configuration of lowest loss at every size, smallest first."""
    found: dict[str, dict[float, Configuration]] = {}
    for c in configurations_of(runs):
        if c.loss.value > 0:
            known = found.setdefault(c.family, {})
            if c.N not in known or c.loss.value < known[c.N].loss.value:
                known[c.N] = c
    return {name: [by[N] for N in sorted(by)] for name, by in found.items()}


def _label(name: str, fit: Allometry | None) -> str:
    shown = fmt.family(name)
    return shown if fit is None else f"{shown}: N^{fmt.significant(fit.exponent.value, 2)}"


def _drawn(label: str, best: list[Configuration], fit: Allometry) -> pd.DataFrame:
    x = np.geomspace(best[0].N, best[-1].N, 24)
    return pd.DataFrame({"name": label, "x": x, "loss": fit(x)})


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    chart = Chart(
        "loss-against-size",
        lambda width: sizes(runs, analysis.unit, width),
        "The lowest loss at each size. Lines are power laws in N, fitted to each family "
        "separately. Constructed networks are not trained; N counts their nonzero parameters.",
    )
    yield Part("sizes", "Constructed and trained networks", (chart,))


SECTION = Section(lambda runs, analysis: not analysis.findings, _parts)
