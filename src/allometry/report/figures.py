"""Charts of an analysis, as Vega-Lite specifications for the page, a file or a notebook.

In a notebook: `altair.Chart.from_dict(al.report.figures.frontier(runs, analysis))`. Every
function takes the width in pixels, because a chart for a wide page is unreadable on a phone.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allometry._core.files import atomic_write
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.analysis import Analysis, FamilyFit, analyse
from allometry.report.extrapolation import LargerBudget
from allometry.report.law_bands import Series, bands, series
from allometry.report.prose import named, plural
from allometry.report.run_groups import Configuration, RunsLike, curves_of, finished, table
from allometry.report.theme import LIGHT, Spec, layer

AXES = {
    "N": "Parameters",
    "D": "Data seen",
    "C": "Training compute, FLOP",
}
MOST_POINTS = 600
MOST_CURVES = 120
MOST = 1e100
"""The largest number that an axis can show."""
_DOT = {"filled": True, "opacity": 0.92, "stroke": LIGHT["paper"], "strokeWidth": 1}
_SILENT = {"clip": True, "aria": False}
_BAND = {"opacity": 0.15} | _SILENT


def _short_flops(x: float) -> str:
    return fmt.flops(x).removesuffix("FLOP").replace(" ", "")


def _writer(x: str) -> fmt.Writer:
    return _short_flops if x == "C" else fmt.count


def _title(x: str, token: str) -> str:
    return f"{plural(token).capitalize()} seen in training" if x == "D" else AXES[x]


def colours(analysis: Analysis) -> dict[str, str]:
    """The colour of each family: trained ones in order, then baselines."""
    made = {
        f.name: LIGHT[theme.FAMILY_COLOURS[i % len(theme.FAMILY_COLOURS)]]
        for i, f in enumerate(analysis.families)
    }
    return made | {c.family: LIGHT[theme.COUNT_COLOUR] for c in analysis.counted}


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows as named tuples with the columns of `run_groups.table`."""
    yield from frame.itertuples()


def _points(runs: RunsLike, family: FamilyFit, unit: str, token: str) -> pd.DataFrame:
    frame = finished(table(runs))
    frame = frame[frame["family"] == family.name]
    if len(frame) > MOST_POINTS:
        frame = frame.iloc[:: math.ceil(len(frame) / MOST_POINTS)]
    name = fmt.family(family.name)
    tooltip = [
        f"{name}, {row.shape}, seed {row.seed}: {fmt.loss(row.loss)} {unit}; "
        f"{fmt.many(row.N, 'parameter')}, {fmt.many(row.D, token, plural(token))}, "
        f"{fmt.flops(row.C)}"
        for row in _rows(frame)
    ]
    rows = frame[["key", "N", "D", "C", "loss"]].assign(tooltip=tooltip, line="")
    return rows.assign(held_out=rows["N"].isin(family.held_sizes))


def _rule(rival: Configuration, unit: str) -> list[Spec]:
    name = f"{fmt.family(rival.family)} {fmt.loss(rival.loss.value)}"
    tooltip = f"Best {named(rival)}: {fmt.loss(rival.loss.value)} {unit}"
    data = pd.DataFrame({"loss": [rival.loss.value], "name": [name], "tooltip": [tooltip]})
    colour = LIGHT[theme.COUNT_COLOUR]
    line = {"color": colour, "strokeWidth": 1.6, "strokeDash": [5, 3]}
    text = {"color": colour, "align": "left", "baseline": "bottom", "dx": 4, "dy": -3}
    return [
        layer(data, "rule", line, y="loss", tooltip="tooltip"),
        layer(data, "text", text | {"fontSize": 12}, x={"value": 0}, y="loss", text="name"),
    ]


def frontier(runs: RunsLike, analysis: Analysis, width: int = 720, *, paper: bool = False) -> Spec:
    """Loss against compute: runs, laws with 95 % bands, the best baseline, larger budgets.

    Families differ in colour and in the shape of their dots.
    """
    hue = colours(analysis)
    layers: list[Spec] = []
    losses: list[float] = []
    computes: list[float] = []
    several = len(analysis.families) > 1
    for i, family in enumerate(analysis.families):
        points = _points(runs, family, analysis.unit, analysis.token)
        losses += points["loss"].tolist()
        computes += points["C"].tolist()
        if family.frontier is not None:
            layers += _law(family, hue[family.name], 0.07 if several else 0.15)
            computes += family.frontier.C.tolist()
            losses += family.frontier.mid.tolist()
        ends = family.reaches if i == 0 else ()
        losses += [x for r in ends for x in (r.loss.value, r.loss.interval[0])]
        dots = _DOT | {"color": hue[family.name], "size": 70 if width > 500 else 44}
        dots |= {"shape": theme.SHAPES[i % len(theme.SHAPES)]}
        layers.append(layer(points, "point", dots, x="C", y="loss", tooltip="tooltip"))
    if analysis.rival is not None:
        layers += _rule(analysis.rival, analysis.unit)
        losses.append(analysis.rival.loss.value)
    # Predictions of several families would clutter the chart: only the best one has them.
    for family in analysis.families[:1]:
        layers += _crossing(family)
        layers += _reaches(family, analysis.unit, hue[family.name])
    layers += _legend(analysis) if several else []
    x = theme.extent(computes, 0.03)
    y = theme.extent(losses, 0.08)
    height = round(width * (0.5 if width > 500 else 0.95)) + (40 if several else 0)
    return _assembled(layers, x, y, "C", analysis, width, height, paper)


def _legend(analysis: Analysis) -> list[Spec]:
    """The colour and shape of each family."""
    names = [fmt.family(f.name) for f in analysis.families]
    hue = colours(analysis)
    shapes = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(names))]
    field = {"field": "name", "type": "nominal", "sort": names}
    legend = {"title": None, "symbolOpacity": 1, "symbolStrokeWidth": 0}
    scale = {"domain": names, "range": [hue[f.name] for f in analysis.families]}
    shape = field | {"scale": {"domain": names, "range": shapes}, "legend": legend}
    fill = field | {"scale": scale, "legend": legend}
    data = pd.DataFrame({"name": names})
    return [layer(data, "point", {"opacity": 0, "aria": False}, fill=fill, shape=shape)]


def _assembled(
    layers: list[Spec],
    x: tuple[float, float],
    y: tuple[float, float],
    axis: str,
    analysis: Analysis,
    width: int,
    height: int,
    paper: bool,
) -> Spec:
    most = 8 if width > 500 else 5
    corner = pd.DataFrame({"x": [x[0]], "y": [y[0]]})
    # One invisible layer has the scales, so that every other layer may leave them out.
    scales = layer(
        corner,
        "point",
        {"opacity": 0, "color": LIGHT["paper"], "aria": False},
        x=theme.log_axis("x", *x, _writer(axis), _title(axis, analysis.token), most),
        y=theme.log_axis("y", *y, fmt.significant, None, 7),
    )
    unit = f"Loss, {analysis.unit}"
    return theme.styled([scales, *layers], unit, width, height, paper=paper)


def _law(family: FamilyFit, colour: str, opacity: float) -> list[Spec]:
    line = family.frontier
    assert line is not None
    largest = max(c.C for c in family.configurations)
    data = pd.DataFrame({"x": line.C, "lo": line.lo, "mid": line.mid, "hi": line.hi})
    inside = data[data["x"] <= largest * (1 + 1e-9)]
    # The dotted part starts where the solid one ends.
    beyond = data[data["x"] >= inside["x"].max()]
    stroke = {"color": colour, "strokeWidth": 2} | _SILENT
    return [
        layer(data, "area", _BAND | {"color": colour, "opacity": opacity}, x="x", y="lo", y2="hi"),
        layer(inside, "line", stroke, x="x", y="mid"),
        layer(beyond, "line", stroke | {"strokeDash": [2, 3]}, x="x", y="mid"),
    ]


def _reaches(family: FamilyFit, unit: str, colour: str) -> list[Spec]:
    if not family.reaches:
        return []
    name = fmt.family(family.name)

    def row(r: LargerBudget) -> dict[str, Any]:
        interval = fmt.estimated(r.loss, fmt.loss, unit)
        lo, hi = r.loss.interval
        tooltip = f"{name}, {r.label}, {fmt.flops(r.C)}: {interval}"
        label = r.label if "×" in r.label else "plan"
        return {
            "x": r.C,
            "loss": r.loss.value,
            "lo": lo,
            "hi": hi,
            "label": label,
            "tooltip": tooltip,
        }

    data = pd.DataFrame([row(r) for r in family.reaches])
    rule = {"color": colour, "strokeWidth": 1.6, "clip": True, "aria": False}
    mark = {"shape": "diamond", "size": 90, "filled": True, "fill": LIGHT["paper"]}
    mark |= {"stroke": colour, "strokeWidth": 2, "opacity": 1}
    text = {"color": LIGHT["ink"], "dx": -6, "dy": 2, "fontSize": 12, "baseline": "bottom"}
    text |= {"align": "right"}
    return [
        layer(data, "rule", rule, x="x", y="lo", y2="hi"),
        layer(data, "point", mark, x="x", y="loss", tooltip="tooltip"),
        layer(data, "text", text, x="x", y="lo", text="label"),
    ]


def _crossing(family: FamilyFit) -> list[Spec]:
    met = family.crossing
    if met is None or met.C is None or not math.isfinite(met.C.value) or family.frontier is None:
        return []
    lo, hi = met.C.interval
    bottom, top = float(family.frontier.C[0]), float(family.frontier.C[-1])
    tooltip = (
        f"Predicted crossover of the {fmt.family(family.name)} with the "
        f"{fmt.family(met.rival.family)}: {fmt.estimated(met.C, fmt.flops)}"
    )
    row = {"x": met.C.value, "loss": met.rival.loss.value, "tooltip": tooltip}
    row |= {"lo": max(lo, bottom), "hi": min(hi, top)}
    data = pd.DataFrame([row])
    ink = LIGHT["ink"]
    bar = {"color": ink, "strokeWidth": 3, "opacity": 0.6} | _SILENT
    ring = {"fill": LIGHT["paper"], "stroke": ink, "size": 90, "strokeWidth": 2, "opacity": 1}
    return [
        layer(data, "rule", bar, x="lo", x2="hi", y="loss"),
        layer(
            data,
            "point",
            ring | {"filled": True, "clip": True},
            x="x",
            y="loss",
            tooltip="tooltip",
        ),
    ]


def against(
    runs: RunsLike,
    analysis: Analysis,
    x: str,
    width: int = 344,
    *,
    family: FamilyFit | None = None,
    paper: bool = False,
) -> Spec | None:
    """One family's loss against N, D or C with the law fitted without the held-out sizes.

    Held-out runs are crosses. If sizes were trained on several amounts of data, lines differ in
    dash and shape. The default family is the best one. `None` if `x` did not vary.
    """
    if family is None:
        if not analysis.families:
            return None
        family = analysis.families[0]
    points = _points(runs, family, analysis.unit, analysis.token).assign(x=lambda p: p[x])
    points = points[points["x"] > 0]
    found = series(family.configurations, x, analysis.token)
    for name, keys in found.lines.items():
        points.loc[points["key"].isin(keys), "line"] = name
    law = family.law_without if family.law_without is not None else family.law
    drawn = pd.DataFrame({"line": [], "mid": [], "x": []})
    if law is not None:
        drawn = bands(law, family.configurations, x, analysis.token).assign(x=lambda b: b[x])
    values = [*drawn["x"], *points["x"]]
    losses = [*drawn["mid"], *points["loss"]]
    if len(set(values)) < 2:
        return None
    layers = _panel(points, drawn, found, colours(analysis)[family.name])
    if analysis.rival is not None:
        layers += _rule(analysis.rival, analysis.unit)
        losses.append(analysis.rival.loss.value)
    edges = theme.extent(values, 0.05), theme.extent(losses, 0.08)
    rows = math.ceil(len(found.lines) / 6) if len(found.lines) > 1 else 0
    extra = 24 + 18 * min(rows, 2) if rows else 0  # for the legend
    return _assembled(layers, *edges, x, analysis, width, round(width * 0.92) + extra, paper)


def _panel(points: pd.DataFrame, drawn: pd.DataFrame, found: Series, colour: str) -> list[Spec]:
    lines = list(found.lines)
    shape = {}
    if len(lines) > 1:
        # Many lines repeat their shapes, but then only six are drawn (see `bands`).
        signs = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(lines))]
        legend = {"title": found.title, "columns": 6, "values": lines[:12]}
        legend |= {"symbolFillColor": colour, "symbolStrokeColor": colour}
        shape = {"field": "line", "type": "nominal", "sort": lines, "legend": legend}
        shape = {"shape": shape | {"scale": {"domain": lines, "range": signs}}}
    layers: list[Spec] = []
    for name, line in drawn.groupby("line", sort=False):
        dash = theme.DASHES[lines.index(str(name)) % 6]
        stroke = {"color": colour, "strokeWidth": 1.8, "strokeDash": dash} | _SILENT
        band = _BAND | {"color": colour, "opacity": 0.15 if len(lines) < 4 else 0.07}
        layers.append(layer(line, "area", band, x="x", y="lo", y2="hi"))
        layers.append(layer(line, "line", stroke, x="x", y="mid"))
    seen, held = points[~points["held_out"]], points[points["held_out"]]
    dot = _DOT | {"color": colour, "size": 44}
    layers.append(layer(seen, "point", dot, x="x", y="loss", tooltip="tooltip", **shape))
    if len(held):
        held = held.assign(tooltip="held out of the fit: " + held["tooltip"])
        cross = {"color": LIGHT["ink"], "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 60}
        cross |= {"strokeWidth": 2, "opacity": 1, "filled": False}
        layers.append(layer(held, "point", cross, x="x", y="loss", tooltip="tooltip"))
    return layers


def curves(
    runs: RunsLike, analysis: Analysis, width: int = 720, *, paper: bool = False
) -> Spec | None:
    """Validation loss during training, one line per run, coloured by size; `None` if none."""
    lines = curves_of(runs, MOST_CURVES)
    if not len(lines):
        return None
    frame = table(runs)
    lines = lines.merge(frame[["key", "family", "shape", "N", "seed", "status"]], on="key")
    lines = lines[lines["tokens"].between(0, MOST, inclusive="neither")]
    lines = lines[lines["loss"].between(0, MOST, inclusive="neither")]
    if not len(lines):
        return None
    lines = _thinned(lines.sort_values(["key", "tokens"]))
    names = {N: fmt.count(N) for N in sorted(lines["N"].unique())}
    order = list(dict.fromkeys(names.values()))
    palette = [LIGHT[theme.STEPS[round(i)]] for i in np.linspace(0, 6, len(order))]
    tooltip = [
        f"{fmt.family(r.family)}, {r.shape}, seed {r.seed}"
        + ("" if r.status == "done" else f" ({r.status})")
        for r in _rows(lines)
    ]
    done = lines[lines["status"] == "done"]
    data = lines[["key", "tokens", "loss", "status"]].assign(
        size=lines["N"].map(names), tooltip=tooltip
    )
    scale = {"domain": order, "range": palette}
    finished_or_not = {
        "condition": {"test": "datum.status == 'done'", "value": [1, 0]},
        "value": [3, 3],
    }
    stroke = layer(
        data,
        "line",
        {"strokeWidth": 1.5, "clip": True, "opacity": 0.9},
        x="tokens",
        y="loss",
        detail="key",
        color={"field": "size", "type": "nominal", "scale": scale, "sort": order,
               "title": "Parameters"},
        strokeDash=finished_or_not,
        tooltip="tooltip",
    )  # fmt: skip
    x = theme.extent(lines["tokens"], 0.02)
    # The first steps lie far above the rest and would flatten the curves: the frame cuts them.
    shown = (done if len(done) else lines)["loss"]
    y = theme.extent(shown[shown <= shown.quantile(0.92)], 0.06)
    height = round(width * (0.46 if width > 500 else 1.1))
    return _assembled([stroke], x, y, "D", analysis, width, height, paper)


def _thinned(lines: pd.DataFrame, most: int = 60) -> pd.DataFrame:
    """At most `most` points of each curve, evenly spread over its recorded points."""
    rank = lines.groupby("key").cumcount()
    length = lines.groupby("key")["key"].transform("size")
    stride = np.ceil(length / most).astype(int)
    return lines[(rank % stride == 0) | (rank == length - 1)].copy()


def save(
    path: Path | str, runs: RunsLike, analysis: Analysis | None = None, width: int = 760
) -> Path:
    """Save the chart of loss against compute as `.svg` and `.png`.

    Args:
        path: The file, with either ending or none.
        runs: A study's runs.
        analysis: Their analysis. Default: computed here.
        width: In pixels; the PNG has twice as many.

    Returns:
        The path of the SVG file.
    """
    path = Path(path).with_suffix("")
    chart = frontier(runs, analysis or analyse(runs), width, paper=True)
    with atomic_write(path.with_suffix(".svg")) as file:
        file.write(theme.svg(chart))
    with atomic_write(path.with_suffix(".png"), "wb") as file:
        file.write(theme.png(chart))
    return path.with_suffix(".svg")
