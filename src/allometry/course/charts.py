"""Charts of the lessons: lines, points, bars, histograms, heat maps, fields, panels.

Every function returns a `Figure`, which a notebook shows and a page embeds. Colours are those of
the reports, so that a picture can follow a light or a dark page.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from allometry._core.errors import require
from allometry.course.figure import Figure
from allometry.course.raster import alpha_png
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.theme import LIGHT, Spec, layer

HUES = ("c1", "c2", "c3", "c4", "c6", "c5", "c7")
WIDE, TALL = 640, 320
Curves = Mapping[str, tuple[Any, Any]]


def lines(
    curves: Curves,
    *,
    x: str,
    y: str,
    caption: str = "",
    points: Curves | None = None,
    log: str = "",
    width: int = WIDE,
    height: int = TALL,
) -> Figure:
    """Curves by name, and optional points over them.

    Args:
        curves: `{name: (x values, y values)}`.
        x: Title of the x axis.
        y: Title of the y axis.
        caption: What the picture shows.
        points: Points by name, in the colours after those of the curves.
        log: Axes with a logarithmic scale: `""`, `"x"`, `"y"` or `"xy"`.
        width: In pixels.
        height: In pixels.

    Example:
        >>> from allometry.course import charts
        >>> t = [0.0, 1.0, 2.0]
        >>> charts.lines({"square": (t, [0, 1, 4])}, x="t", y="value").svg()[:4]
        '<svg'
    """
    points = points or {}
    names = [*curves, *points]
    require(bool(names), "lines.curves", "have a curve or points", names)
    data = {k: _pair(v) for k, v in {**curves, **points}.items()}
    axes = _axes(list(data.values()), x, log, margin=0.02 if points else 0.0)
    layers = [_scale_layer(axes, names, curves)]
    for i, name in enumerate(names):
        hue, (u, v) = LIGHT[HUES[i % len(HUES)]], data[name]
        if name in curves:
            look = {"strokeWidth": 2, "color": hue, "strokeDash": theme.DASHES[i % 6]}
            look |= {"clip": True, "aria": False}
            each = layer({"x": u, "y": v, "i": np.arange(len(u))}, "line", look, **axes)
            each["encoding"] |= {"order": {"field": "i"}}
        else:
            each = layer({"x": u, "y": v}, "point", _dot(hue, 40, 0.85), **axes)
        layers.append(each)
    return Figure(theme.styled(layers, y, width, height), caption)


def scatter(
    groups: Mapping[str, Any],
    *,
    x: str = "first coordinate",
    y: str = "second coordinate",
    caption: str = "",
    box: tuple[float, float, float, float] | None = None,
    size: int = 12,
    most: int = 700,
    width: int = 400,
    height: int = 360,
) -> Figure:
    """Points (n, 2) by name, at most `most` of each; `box` gives the limits of both axes."""
    data = {k: np.asarray(v, float) for k, v in groups.items()}
    edges = _box(list(data.values())) if box is None else box
    axes = {"x": _linear("x", edges[0], edges[1], x), "y": _linear("y", edges[2], edges[3])}
    layers = [_scale_layer(axes, list(data), {})]
    for i, rows in enumerate(data.values()):
        few = rows[:: max(1, math.ceil(len(rows) / most))]
        inside = _inside(few, edges)
        look = _dot(LIGHT[HUES[i % len(HUES)]], size, 0.6)
        layers.append(layer({"x": inside[:, 0], "y": inside[:, 1]}, "point", look, **axes))
    return Figure(theme.styled(layers, y, width, height), caption)


def bars(
    heights: Mapping[str, Mapping[Any, float]],
    *,
    x: str,
    y: str,
    caption: str = "",
    width: int = WIDE,
    height: int = TALL,
) -> Figure:
    """Bars side by side: `{series: {category: height}}`."""
    names, first = list(heights), next(iter(heights.values()))
    order = [str(c) for c in first]
    rows = [(n, str(c), float(h)) for n, each in heights.items() for c, h in each.items()]
    data: dict[str, list[Any]] = {
        "name": [r[0] for r in rows],
        "category": [r[1] for r in rows],
        "height": [r[2] for r in rows],
    }
    hues = [LIGHT[HUES[i % len(HUES)]] for i in range(len(names))]
    field = {"field": "name", "type": "nominal", "sort": names}
    legend = {"title": None} if len(names) > 1 else None
    colour = field | {"scale": {"domain": names, "range": hues}, "legend": legend}
    axis = {"title": x, "labelAngle": 0 if len(order) <= 12 else -40}
    place = {"field": "category", "type": "nominal", "sort": order, "axis": axis}
    tall = {"field": "height", "type": "quantitative", "axis": {"title": None}}
    shift = {"xOffset": {"field": "name", "sort": names}} if len(names) > 1 else {}
    look = {"opacity": 0.85, "aria": False}
    marks = layer(data, "bar", look, x=place, y=tall, color=colour, **shift)
    return Figure(theme.styled([marks], y, width, height), caption)


def histogram(
    draws: Mapping[str, Any],
    density: Mapping[str, Callable[[ndarray], ndarray]] | None = None,
    *,
    x: str,
    caption: str = "",
    bins: int = 60,
    limits: tuple[float, float] | None = None,
    width: int = WIDE,
    height: int = TALL,
) -> Figure:
    """Histograms of draws, scaled as densities, with exact densities as lines over them."""
    rows = {k: np.asarray(v, float).ravel() for k, v in draws.items()}
    every = np.concatenate(list(rows.values()))
    low, high = limits or (float(every.min()), float(every.max()))
    edges = np.linspace(low, high, bins + 1)
    grid = np.linspace(low, high, 300)
    heights = {k: np.histogram(v, edges)[0] / len(v) / np.diff(edges) for k, v in rows.items()}
    curves = {k: np.asarray(f(grid), float) for k, f in (density or {}).items()}
    top = 1.06 * max(float(v.max()) for v in (*heights.values(), *curves.values()))
    axes = {"x": _linear("x", low, high, x), "y": _linear("y", 0.0, top)}
    names = [*rows, *curves]
    layers = [_scale_layer(axes, names, curves)]
    for i, name in enumerate(names):
        hue = LIGHT[HUES[i % len(HUES)]]
        if name in rows:
            data = {"x": edges[:-1], "x2": edges[1:], "y": heights[name], "y2": np.zeros(bins)}
            look = {"color": hue, "opacity": 0.35, "aria": False, "clip": True}
            layers.append(layer(data, "rect", look, x2="x2", y2="y2", **axes))
        else:
            look = {"strokeWidth": 2, "color": hue, "clip": True, "aria": False}
            look |= {"strokeDash": theme.DASHES[i % 6]}
            layers.append(layer({"x": grid, "y": curves[name]}, "line", look, **axes))
    return Figure(theme.styled(layers, "density", width, height), caption)


def heat(
    values: Shaped[ndarray, "h w"],
    box: tuple[float, float, float, float] = (0, 1, 0, 1),
    *,
    x: str = "first coordinate",
    y: str = "second coordinate",
    caption: str = "",
    signed: bool = False,
    points: Mapping[str, Any] | None = None,
    width: int = 400,
    height: int = 360,
    size: int = 8,
) -> Figure:
    """A heat map, darkest at the largest value; row 0 is at the bottom.

    Args:
        values: Values on a grid, rows along y.
        box: Limits of x, then of y.
        x: Title of the x axis.
        y: Title of the y axis.
        caption: What the picture shows.
        signed: Negative values in one colour, positive ones in another.
        points: Points (n, 2) by name, drawn over it.
        width: In pixels.
        height: In pixels.
        size: Area of a point in square pixels.
    """
    axes = {"x": _linear("x", box[0], box[1], x), "y": _linear("y", box[2], box[3])}
    rows = np.asarray(values, float)[::-1]
    # Viewers smooth between pixels: the cells of a small matrix are made of several.
    cells = 12 if max(rows.shape) <= 32 else 1
    picture = alpha_png(np.kron(rows, np.ones((cells, cells))), signed=signed)
    ends = {"x": [box[0]], "x2": [box[1]], "y": [box[2]], "y2": [box[3]], "url": [picture]}
    look = {"aspect": False, "aria": False, "width": width, "height": height}
    image = layer(ends, "image", look, url={"field": "url", "type": "nominal"}, **axes)
    image["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    image["mark"] = {"type": "image", "aspect": False, "aria": False}
    groups = {k: np.asarray(v, float) for k, v in (points or {}).items()}
    layers = [_scale_layer(axes, list(groups), {}), image]
    for i, rows in enumerate(groups.values()):
        inside = _inside(rows[:: max(1, math.ceil(len(rows) / 400))], box)
        look = _dot(LIGHT[HUES[(i + 1) % len(HUES)]], size, 0.8)
        layers.append(layer({"x": inside[:, 0], "y": inside[:, 1]}, "point", look, **axes))
    if groups:
        _recolour(layers[0], list(groups))
    return Figure(theme.styled(layers, y, width, height), caption)


def field(
    at: Float[ndarray, "n 2"],
    velocity: Float[ndarray, "n 2"],
    paths: Mapping[str, Any] | None = None,
    *,
    x: str,
    y: str,
    caption: str = "",
    width: int = 440,
    height: int = 400,
) -> Figure:
    """A vector field as arrows from `at`, and paths (m, 2) through it by name."""
    at, velocity = np.asarray(at, float), np.asarray(velocity, float)
    edges = _box([at])
    step = min(edges[1] - edges[0], edges[3] - edges[2]) / max(2.0, math.sqrt(len(at)))
    longest = float(np.linalg.norm(velocity, axis=1).max()) or 1.0
    tips = at + 0.85 * step * velocity / longest
    axes = {"x": _linear("x", edges[0], edges[1], x), "y": _linear("y", edges[2], edges[3])}
    ways = {k: np.asarray(v, float) for k, v in (paths or {}).items()}
    shaft = {"x": at[:, 0], "y": at[:, 1], "x2": tips[:, 0], "y2": tips[:, 1]}
    rule = layer(shaft, "rule", {"color": LIGHT["muted"], "aria": False}, **axes)
    rule["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    heads = _dot(LIGHT["muted"], 8, 1.0)
    layers = [_scale_layer(axes, list(ways), ways), rule]
    layers.append(layer({"x": tips[:, 0], "y": tips[:, 1]}, "point", heads, **axes))
    for i, way in enumerate(ways.values()):
        look = {"strokeWidth": 2, "color": LIGHT[HUES[i % len(HUES)]], "clip": True}
        look |= {"strokeDash": theme.DASHES[i % 6], "aria": False}
        data = {"x": way[:, 0], "y": way[:, 1], "i": np.arange(len(way))}
        each = layer(data, "line", look, **axes)
        each["encoding"] |= {"order": {"field": "i"}}
        layers.append(each)
    return Figure(theme.styled(layers, y, width, height), caption)


def images(
    pictures: Shaped[ndarray, "n h w"], columns: int = 10, *, caption: str = "", scale: int = 5
) -> Figure:
    """Grey images in rows of `columns`, each scaled to its own range."""
    pictures = np.asarray(pictures, float)
    n, h, w = pictures.shape
    rows = -(-n // columns)
    sheet = np.zeros((rows * (h + 1), columns * (w + 1)))
    for i, picture in enumerate(pictures):
        top, left = (i // columns) * (h + 1), (i % columns) * (w + 1)
        low = min(0.0, float(picture.min()))
        sheet[top : top + h, left : left + w] = (picture - low) / (np.ptp(picture) or 1.0)
    high, wide = sheet.shape[0] * scale, sheet.shape[1] * scale
    look = {"type": "image", "aspect": False, "width": wide, "height": high, "aria": False}
    values = [{"url": alpha_png(np.kron(sheet, np.ones((scale, scale))))}]
    mark = {"data": {"values": values}, "mark": look,
            "encoding": {"url": {"field": "url", "type": "nominal"}}}  # fmt: skip
    return Figure(theme.styled([mark], "", wide, high) | {"title": None}, caption)


def panels(
    figures: Mapping[str, Figure], *, columns: int = 3, caption: str = "", width: int = 680
) -> Figure:
    """Figures side by side, each under its name."""
    require(bool(figures), "panels.figures", "have a figure", len(figures))
    each = max(120, width // min(columns, len(figures)) - 56)
    parts = []
    for name, figure in figures.items():
        spec = figure.spec
        text = (spec.get("title") or {}).get("text", "")
        tall = round(each * spec["height"] / spec["width"])
        title = {"text": name, "subtitle": text, "subtitleColor": LIGHT["muted"]}
        title |= {
            "color": LIGHT["ink"],
            "anchor": "start",
            "fontSize": 12.5,
            "subtitleFontSize": 11.5,
        }
        parts.append({"layer": spec["layer"], "title": title, "width": each, "height": tall})
    whole = next(iter(figures.values())).spec
    kept = {k: whole[k] for k in ("config", "background", "padding")}
    entries = min(theme.legend_grid(f.spec["layer"], each)[0] for f in figures.values())
    legend = whole["config"]["legend"] | {"columns": entries, "labelLimit": each}
    kept["config"] = whole["config"] | {"legend": legend}
    own = ("color", "fill", "stroke", "shape", "strokeDash")
    share = {"scale": dict.fromkeys(own, "independent")}
    spec = {"concat": parts, "columns": columns, "resolve": share, "spacing": 24}
    return Figure(kept | spec, caption)


def _pair(given: tuple[Any, Any]) -> tuple[ndarray, ndarray]:
    u, v = (np.asarray(a, float).ravel() for a in given)
    require(len(u) == len(v), "A curve", "have as many x as y values", (len(u), len(v)))
    return u, v


def _linear(name: str, low: float, high: float, title: str | None = None) -> Spec:
    scale = {"domain": [float(low), float(high)], "nice": False, "zero": False}
    axis = {"title": title, "tickCount": 5}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def _axes(
    data: Sequence[tuple[ndarray, ndarray]], x: str, log: str, *, margin: float
) -> dict[str, Spec]:
    """Both axes; `margin` is that of x, so that points at its ends are not cut."""
    axes = {}
    for k, name in enumerate("xy"):
        values = np.concatenate([pair[k] for pair in data])
        values = values[np.isfinite(values)]
        title = x if name == "x" else None
        if name in log:
            low, high = theme.extent(values, 0.03)
            axes[name] = theme.log_axis(name, low, high, _short, title)
        else:
            low, high = float(values.min()), float(values.max())
            pad = (0.04 if name == "y" else margin) * (high - low)
            pad = pad or (0.5 if name == "y" else 0.0)
            axes[name] = _linear(name, low - pad, high + pad, title)
    return axes


def _short(value: float) -> str:
    """A tick label: powers of ten outside 0.001 to 100,000."""
    if 1e-3 <= value < 1e5:
        return fmt.significant(value)
    digits, power = f"{value:.1e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def _box(groups: Sequence[ndarray]) -> tuple[float, float, float, float]:
    rows = np.concatenate(list(groups))
    low, high = rows.min(0), rows.max(0)
    pad = 0.06 * (high - low)
    return (
        float(low[0] - pad[0]), float(high[0] + pad[0]),
        float(low[1] - pad[1]), float(high[1] + pad[1]),
    )  # fmt: skip


def _inside(rows: ndarray, box: Sequence[float]) -> ndarray:
    keep = (rows[:, 0] >= box[0]) & (rows[:, 0] <= box[1])
    return rows[keep & (rows[:, 1] >= box[2]) & (rows[:, 1] <= box[3])]


def _dot(colour: str, size: int, opacity: float) -> Spec:
    return {"filled": True, "size": size, "opacity": opacity, "color": colour} | {
        "clip": True,
        "aria": False,
    }


def _scale_layer(axes: dict[str, Spec], names: Sequence[str], dashed: Mapping[str, Any]) -> Spec:
    """One invisible layer with the scales and the legend of all others."""
    corner = {c: [axes[c]["scale"]["domain"][0]] * max(1, len(names)) for c in "xy"}
    look = {"opacity": 0, "aria": False}
    if len(names) < 2:
        return layer(corner, "point", look, **axes)
    data = corner | {"name": list(names)}
    hues = [LIGHT[HUES[i % len(HUES)]] for i in range(len(names))]
    base = {"field": "name", "type": "nominal", "sort": list(names)}
    # A line in the legend for a curve, a dot for points.
    signs = ["M-1.3,0L1.3,0" if n in dashed else "circle" for n in names]
    dashes = [theme.DASHES[i % 6] if n in dashed else [1, 0] for i, n in enumerate(names)]
    legend = {"title": None, "symbolOpacity": 1, "symbolSize": 130}
    legend |= {"symbolFillColor": None} if not set(names) - set(dashed) else {}
    encoding = {
        "stroke": base | {"scale": {"domain": list(names), "range": hues}, "legend": legend},
        "shape": base | {"scale": {"domain": list(names), "range": signs}, "legend": legend},
        "strokeDash": base | {"scale": {"domain": list(names), "range": dashes}, "legend": legend},
    }
    if not dashed:
        encoding.pop("strokeDash")
        legend |= {"symbolStrokeColor": "transparent"}
        fill = {"scale": {"domain": list(names), "range": hues}, "legend": legend}
        encoding = {"fill": base | fill, "shape": encoding["shape"]}
    return layer(data, "point", look, **axes, **encoding)


def _recolour(spec: Spec, names: list[str]) -> None:
    """The legend of points over a heat map starts at the second colour, as the points do."""
    fill = spec["encoding"].get("fill")
    if fill is not None:
        fill["scale"]["range"] = [LIGHT[HUES[(i + 1) % len(HUES)]] for i in range(len(names))]
