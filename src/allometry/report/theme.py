"""The style of every chart: colours, fonts, logarithmic axes, and rendering to SVG and PNG.

Charts are Vega-Lite specifications as plain mappings. `altair.Chart.from_dict` shows them in a
notebook; rendering without Altair's validation takes a fifth of the time.

A chart has the colours of the light scheme as plain values, so that a saved picture stands alone.
Inside the page each value becomes a CSS variable that follows the colour scheme. The hues are
those of Okabe and Ito, darkened for white paper and lightened for dark. Colour never carries a
distinction alone: shape, dash or label repeats it.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from allometry.report import formatting as fmt

if TYPE_CHECKING:
    import pandas as pd

LIGHT = {
    "ink": "#1d2228",
    "muted": "#5d6670",
    "rule": "#e3e2dc",
    "paper": "#fdfcfa",
    "c1": "#0a62a6",
    "c2": "#b9500b",
    "c3": "#0b7a5c",
    "c4": "#8a4a9c",
    "c5": "#756300",
    "c6": "#b02a5b",
    "c7": "#6b4a33",
    "s1": "#c9a227",
    "s2": "#8fae3f",
    "s3": "#4aa564",
    "s4": "#2a9384",
    "s5": "#2f7a93",
    "s6": "#3d5d92",
    "s7": "#46327e",
}
DARK = {
    "ink": "#e9e6df",
    "muted": "#9ba4ae",
    "rule": "#2d3238",
    "paper": "#15181b",
    "c1": "#6db5f2",
    "c2": "#f0a05a",
    "c3": "#4fc7a1",
    "c4": "#cf9ce2",
    "c5": "#d3c04c",
    "c6": "#f28bb0",
    "c7": "#c9a68a",
    "s1": "#8d6fd1",
    "s2": "#6d8fdc",
    "s3": "#52aacb",
    "s4": "#4cc0a8",
    "s5": "#7bcf7d",
    "s6": "#b9d75f",
    "s7": "#f5e05a",
}
FAMILY_COLOURS = ("c1", "c3", "c4", "c5", "c6", "c7")
COUNT_COLOUR = "c2"
STEPS = tuple(f"s{i}" for i in range(1, 8))
SHAPES = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "triangle-right"),
    *("triangle-left", "M0,-1L0.95,-0.31L0.59,0.81L-0.59,0.81L-0.95,-0.31Z"),
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 4])
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_BY_VALUE = {value: name for name, value in LIGHT.items()}
_COLOUR = re.compile("|".join(map(re.escape, LIGHT.values())))
_STEPS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 4, 6), (1, 2, 5), (1, 3), (1,))
Spec = dict[str, Any]


Columns = Mapping[str, Sequence[Any] | ndarray]
"""The data of a chart: columns of equal length."""


def take(data: Columns, rows: ndarray) -> Columns:
    """The rows with these positions, or those where a mask is true."""
    return {name: np.asarray(values)[rows] for name, values in data.items()}


def sample(data: Columns, most: int) -> Columns:
    """At most so many rows, drawn at random: thousands of dots overlap and are slow to draw."""
    n = len(next(iter(data.values())))
    if n <= most:
        return data
    return take(data, np.random.RandomState(0).choice(n, most, replace=False))


def records(data: "Columns | pd.DataFrame") -> list[Spec]:
    """The rows as mappings, with NaN for values that are not finite."""
    if not isinstance(data, Mapping):
        rows = data.replace([np.inf, -np.inf], np.nan).to_dict("records")
        return [{str(name): value for name, value in row.items()} for row in rows]

    def plain(values: Sequence[Any] | ndarray) -> list[Any]:
        array = np.asarray(values)
        array = np.where(np.isinf(array), np.nan, array) if array.dtype.kind == "f" else array
        return array.tolist()

    columns = {name: plain(values) for name, values in data.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def layer(data: "Columns | pd.DataFrame", mark: str, look: Spec, **encoding: Any) -> Spec:
    """One layer of a chart; an encoding given as a string is a field of the data.

    `tooltip` is a field too: it becomes the tooltip and the accessible label of each mark.
    """
    channels: Spec = {}
    for channel, given in encoding.items():
        if channel == "tooltip":
            channels["description"] = channels["tooltip"] = {"field": given, "type": "nominal"}
        elif isinstance(given, str):
            kind = "quantitative" if channel in ("x", "y", "x2", "y2") else "nominal"
            channels[channel] = {"field": given} | ({} if "2" in channel else {"type": kind})
        else:
            channels[channel] = given
    return {"data": {"values": records(data)}, "mark": {"type": mark} | look, "encoding": channels}


def log_ticks(lo: float, hi: float, most: int = 6) -> list[float]:
    """Round numbers from `lo` to `hi`, evenly spread on a log axis, at most about `most`."""
    decades = math.log10(hi / lo)
    if decades >= 2.5:
        stride = max(1, math.ceil(decades / most))
        exponents = range(math.ceil(math.log10(lo) - 1e-9), math.floor(math.log10(hi) + 1e-9) + 1)
        return [10.0**e for e in exponents if e % stride == 0]
    start = math.floor(math.log10(lo))
    for steps, least in zip(_STEPS, (3, 3, 3, 2, 2), strict=True):
        grid = [m * 10.0**e for e in range(start, start + 5) for m in steps]
        inside = [x for x in grid if lo * (1 - 1e-9) <= x <= hi * (1 + 1e-9)]
        if least <= len(inside) <= most:
            return inside
    # Less than a third of a decade: even steps of 1, 2 or 5 such that about `most` fit.
    inside = []
    while len(inside) < 2:
        raw = (hi - lo) / most
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw * (1 - 1e-9))
        first = math.ceil(lo / step - 1e-9)
        inside = [i * step for i in range(first, math.floor(hi / step + 1e-9) + 1)]
        most += 1
    return inside


def tick_labels(ticks: list[float], write: fmt.Writer) -> str:
    """A Vega expression that gives each tick its text."""
    expression = "''"
    for tick in reversed(ticks):
        label = json.dumps(write(tick), ensure_ascii=False)
        expression = f"abs(datum.value / {tick!r} - 1) < 1e-6 ? {label} : {expression}"
    return expression


def log_axis(
    field: str, lo: float, hi: float, write: fmt.Writer, title: str | None, most: int = 6
) -> Spec:
    """The encoding of a logarithmic channel with its scale and axis."""
    ticks = log_ticks(lo, hi, most)
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log", "domain": [lo, hi], "nice": False},
        "axis": {"values": ticks, "labelExpr": tick_labels(ticks, write), "title": title},
    }


def extent(values: Any, margin: float = 0.06) -> tuple[float, float]:
    """The least and largest positive finite value, with a margin in logarithms."""
    array = np.asarray(values, float)
    array = array[np.isfinite(array) & (array > 0)]
    if not len(array):
        return 1.0, 10.0
    lo, hi = math.log(array.min()), math.log(array.max())
    pad = max(margin * (hi - lo), 0.02)
    return math.exp(lo - pad), math.exp(hi + pad)


LETTER = 7.6
"""Largest width in pixels of a letter in a legend; readers' fonts are wider than vl-convert's."""


def legend_grid(layers: list[Spec], width: int) -> tuple[int, int, int]:
    """Columns and rows of a legend whose entries do not overlap, and its longest label."""
    labels: list[str] = []
    for each in layers:
        for channel in each.get("encoding", {}).values():
            if not isinstance(channel, dict) or channel.get("legend", {}) is None:
                continue
            names = (channel.get("scale") or {}).get("domain") or []
            if all(isinstance(name, str) for name in names):
                labels = max(labels, [str(name) for name in names], key=len)
    longest = max(map(len, labels), default=10)
    columns = max(1, int((width - 20) // (LETTER * longest + 36)))
    return columns, -(-len(labels) // columns), longest


def styled(
    layers: list[Spec], title: str, width: int, height: int, *, paper: bool = False
) -> Spec:
    """The chart with the page's fonts, grid and margins; `title` names the y axis."""
    muted, ink = LIGHT["muted"], LIGHT["ink"]
    columns, rows, longest = legend_grid(layers, width)
    height += 19 * max(0, rows - 2)
    quiet = {"labelColor": muted, "titleColor": muted, "titleFontWeight": "normal"}
    return {
        "layer": layers,
        "width": width,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": {"left": 2, "right": 10, "top": 4, "bottom": 2},
        "background": LIGHT["paper"] if paper else "transparent",
        "title": {"text": title, "anchor": "start", "frame": "bounds", "fontSize": 12,
                  "fontWeight": "normal", "color": muted, "offset": 8},
        "config": {
            "font": _FONT,
            "view": {"stroke": None},
            "axis": quiet | {
                "titleFontSize": 12, "labelFontSize": 11.5, "gridColor": LIGHT["rule"],
                "domain": False, "ticks": False, "labelPadding": 6, "titlePadding": 8,
                "labelFlush": False,
            },
            "axisX": {"grid": False, "domain": True, "domainColor": muted, "domainOpacity": 0.5,
                      "ticks": True, "tickColor": muted, "tickSize": 4},
            "legend": quiet | {
                "labelColor": ink, "labelFontSize": 12, "titleFontSize": 12, "orient": "bottom",
                "direction": "horizontal", "symbolStrokeWidth": 2,
                "columnPadding": 14 + round(0.2 * LETTER * longest),
                "columns": columns, "rowPadding": 3,
                "labelLimit": width - 40, "offset": 10, "padding": 0,
            },
        },
    }  # fmt: skip


def svg(chart: Spec) -> str:
    """The chart as SVG."""
    import vl_convert  # a large library, which analyses without charts do not need

    return vl_convert.vegalite_to_svg(chart)


def png(chart: Spec, scale: float = 2.0) -> bytes:
    """The chart as PNG."""
    import vl_convert

    return vl_convert.vegalite_to_png(chart, scale=scale)


def on_paper(picture: str) -> str:
    """A picture from `svg` with the light scheme's background, to be saved as a file."""
    return picture.replace('fill="transparent"', f'fill="{LIGHT["paper"]}"', 1)


def inline(picture: str, name: str, label: str) -> str:
    """A picture from `svg` for use inside a page, with colours that follow the scheme.

    Args:
        picture: The SVG text.
        name: Prefix that makes the ids in this picture unique on the page.
        label: Accessible label of the chart, already escaped.
    """
    picture = _COLOUR.sub(lambda m: f"var(--{_BY_VALUE[m.group()]})", picture)
    picture = re.sub(r'(id="|url\(#)', rf"\g<1>{name}-", picture)
    picture = re.sub(r'(<svg\b[^>]*?) width="[\d.]+" height="[\d.]+"', r"\1", picture, count=1)
    return picture.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
