"""Loss against size, built networks beside trained ones, each family with its own power law."""

import numpy as np
import pandas as pd

from allometry import laws
from allometry.laws import Allometry
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.figures import AXES
from allometry.report.run_groups import (
    Configuration,
    RunsLike,
    configurations,
    counted,
    finished,
    table,
)
from allometry.report.theme import LIGHT, Spec, layer

LEAST = 3
"""Sizes a family must have before a line is drawn through it."""


def built(runs: RunsLike) -> list[str]:
    """Families made without any training that are neither counts nor formulas: constructions."""
    done = finished(table(runs))
    names = [str(name) for name in done["family"].unique()]
    known = ("ngram", *fmt.FITTED)
    return [n for n in names if n not in known and counted(done[done["family"] == n])]


def lines(runs: RunsLike) -> dict[str, Allometry]:
    r"""The power law $\text{loss} = a N^{-b}$ of each family of at least three sizes.

    At every size the lowest loss counts, so that trainings of several lengths are one family.
    """
    found = {}
    for name, best in _best(runs).items():
        if len(best) >= LEAST:
            x, y = np.array([[c.N, c.loss.value] for c in best]).T
            found[name] = laws.allometry(x, y)
    return found


def sizes(runs: RunsLike, unit: str, width: int = 720) -> Spec | None:
    """The chart; `None` unless there are both built and trained families.

    Args:
        runs: A study's runs.
        unit: Of the loss.
        width: In pixels.
    """
    best, fits = _best(runs), lines(runs)
    apart = built(runs)
    if not apart or len(apart) == len(best):
        return None
    names = sorted(best, key=lambda n: (n in apart, n))
    labels = {n: _label(n, fits.get(n)) for n in names}
    rows = [
        {
            "name": labels[n],
            "x": c.N,
            "loss": c.loss.value,
            "told": f"{fmt.family(n)}, {c.shape}: {fmt.estimated(c.loss, fmt.loss, unit)}; "
            f"{fmt.count(c.N)} parameters",
        }
        for n in names
        for c in best[n]
    ]
    if not rows:
        return None  # none of them can be placed on a logarithmic axis
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
    marks.append(layer(data, "point", dots, x=x, y=y, color=colour, shape=shape, told="told"))
    height = round(width * (0.5 if width > 500 else 1.0))
    return theme.styled(marks, f"Loss, {unit}", width, height)


def _best(runs: RunsLike) -> dict[str, list[Configuration]]:
    """For each family the configuration of lowest loss at every size, smallest first."""
    found: dict[str, dict[float, Configuration]] = {}
    for c in configurations(table(runs)):
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
