"""Forest plots of the lessons: values with their intervals, one a row."""

import math
from collections.abc import Mapping
from typing import Any

from allometry._core.errors import require
from allometry.course.figure import Figure
from allometry.report import theme
from allometry.report.theme import LIGHT, layer

HUES = ("c1", "c2", "c3", "c4", "c6")


def forest(
    groups: Mapping[str, Mapping[str, Any]],
    *,
    x: str,
    caption: str = "",
    at: Mapping[str, float] | None = None,
    width: int = 420,
    row: int = 19,
) -> Figure:
    """Estimates with their intervals, each in a row of its own.

    Args:
        groups: `{group: {label: Estimate}}`; a group has one colour. Labels differ.
        x: Title of the x axis.
        caption: What the picture shows.
        at: Vertical lines by name, such as a theory or the true value.
        width: Of the axis in pixels.
        row: Height of a row in pixels.

    Example:
        >>> from allometry import Estimate
        >>> from allometry.course.forest import forest
        >>> forest({"": {"first": Estimate(1.0, se=0.1)}}, x="exponent").svg()[:4]
        '<svg'
    """
    rows = [(g, label, e) for g, each in groups.items() for label, e in each.items()]
    require(bool(rows), "forest.groups", "have an estimate", 0)
    order = [label for _, label, _ in rows]
    require(len(set(order)) == len(order), "forest.groups", "have different labels", order)
    # An unknown end of an interval is the value itself: no bar.
    ends = [[v if math.isfinite(v) else e.value for v in e.interval] for _, _, e in rows]
    marks = dict(at or {})
    values = [*(v for pair in ends for v in pair), *(e.value for _, _, e in rows), *marks.values()]
    pad = 0.04 * (max(values) - min(values)) or 0.5
    scale = {"domain": [min(values) - pad, max(values) + pad], "nice": False, "zero": False}
    across = {"field": "x", "type": "quantitative", "scale": scale}
    across["axis"] = {"title": x, "tickCount": 6}
    down = {"field": "label", "type": "nominal", "sort": order}
    down["axis"] = {"title": None, "labelLimit": 260, "ticks": False, "domain": False}
    names = list(groups)
    hues = [LIGHT[HUES[i % len(HUES)]] for i in range(len(names))]
    legend = {"title": None, "symbolType": "circle"} if len(names) > 1 else None
    colour = {"field": "group", "type": "nominal", "sort": names, "legend": legend}
    colour["scale"] = {"domain": names, "range": hues}
    data: dict[str, list[Any]] = {
        "label": order,
        "group": [g for g, _, _ in rows],
        "x": [lo for lo, _ in ends],
        "x2": [hi for _, hi in ends],
    }
    bar = layer(data, "rule", {"strokeWidth": 2, "aria": False}, x=across, y=down, color=colour)
    bar["encoding"] |= {"x2": {"field": "x2"}}
    data = data | {"x": [e.value for _, _, e in rows]}
    look = {"filled": True, "size": 45, "opacity": 1, "aria": False}
    dots = layer(data, "point", look, x=across, y=down, color=colour)
    lines = []
    for i, (name, value) in enumerate(marks.items()):
        dash = {"color": LIGHT["muted"], "strokeDash": theme.DASHES[(i + 1) % 6], "aria": False}
        lines.append(layer({"x": [value]}, "rule", dash, x=across))
        write = {"color": LIGHT["muted"], "fontSize": 11, "baseline": "bottom", "aria": False}
        text = layer({"x": [value], "t": [name]}, "text", write, x=across, text={"field": "t"})
        text["encoding"] |= {"y": {"value": -3}}
        lines.append(text)
    spec = theme.styled([*lines, bar, dots], "", width + 200, row * len(rows) + 60)
    return Figure(spec | {"title": None}, caption)
