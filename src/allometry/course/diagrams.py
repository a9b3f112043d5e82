"""Diagrams of the lessons: boxes with arrows, graphical models, tables of shaded cells."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from allometry._core.errors import require
from allometry.course.figure import Figure
from allometry.report import theme
from allometry.report.theme import LIGHT, Spec, layer

Place = tuple[float, float]


def graph(
    nodes: Mapping[str, Place],
    edges: Sequence[tuple[str, str]],
    *,
    caption: str = "",
    labels: Mapping[str, str] | None = None,
    shaded: Sequence[str] = (),
    plates: Mapping[str, Sequence[str]] | None = None,
    circles: bool = False,
    box: tuple[float, float] = (1.6, 0.6),
    scale: float = 80,
) -> Figure:
    """Nodes at their places with arrows between them.

    Args:
        nodes: The centre of each node by name; y grows upwards.
        edges: Arrows, each from one name to another.
        caption: What the picture shows.
        labels: Text of a node; default: its name. A line break starts a second line.
        shaded: Names of shaded nodes, such as observed variables.
        plates: Frames around nodes: `{label: names}`.
        circles: Circles, as in graphical models, instead of boxes.
        box: Width and height of a box, or the diameter of a circle twice.
        scale: Pixels per unit.

    Example:
        >>> from allometry.course import diagrams
        >>> figure = diagrams.graph({"z": (0, 1), "x": (0, 0)}, [("z", "x")], circles=True)
        >>> figure.svg()[:4]
        '<svg'
    """
    require(bool(nodes), "graph.nodes", "have a node", len(nodes))
    unknown = sorted({n for edge in edges for n in edge} - set(nodes))
    require(not unknown, "graph.edges", "join known nodes", unknown)
    at = {k: np.array(v, float) for k, v in nodes.items()}
    half = np.array((0.3, 0.3) if circles else box) / (1.0 if circles else 2.0)
    pad = half + (0.35 if plates else 0.1)
    low = np.min(list(at.values()), 0) - pad
    high = np.max(list(at.values()), 0) + pad
    axes = {c: _hidden(c, low[i], high[i]) for i, c in enumerate("xy")}
    layers = []
    for label, members in (plates or {}).items():
        layers += _plate(label, [at[m] for m in members], half, axes)
    layers += _arrows(edges, at, half, circles, axes)
    corner = 999 if circles else 5  # rounded by half of a side at most
    for name, place in at.items():
        fill = LIGHT["rule"] if name in shaded or not circles else LIGHT["paper"]
        look = {"color": fill, "stroke": LIGHT["muted"], "cornerRadius": corner, "aria": False}
        layers.append(_rect(place - half, place + half, look, axes))
        layers += _text((labels or {}).get(name, name), place, scale, axes)
    wide, tall = (math.ceil(scale * (high[i] - low[i])) for i in (0, 1))
    return Figure(theme.styled(layers, "", wide, tall) | {"title": None}, caption)


def tree(root: Any, *, caption: str = "", scale: float = 78) -> Figure:
    """A tree, such as a parse: nodes have a `label` and `children`, leaves are strings.

    Example:
        >>> from allometry.course import diagrams
        >>> from allometry.targets import Grammar
        >>> parse = Grammar("S -> 'a' S 'b' | 'a' 'b'").parse("aabb")
        >>> diagrams.tree(parse).svg()[:4]
        '<svg'
    """
    nodes: dict[str, Place] = {}
    labels: dict[str, str] = {}
    edges: list[tuple[str, str]] = []

    def place(node: Any, depth: int) -> str:
        below = [place(child, depth + 1) for child in getattr(node, "children", ())]
        name = str(len(nodes))
        leaves = sum(not hasattr(n, "children") for n in seen)
        across = float(np.mean([nodes[b][0] for b in below])) if below else float(leaves)
        seen.append(node)
        nodes[name] = (across, -0.8 * depth)
        labels[name] = getattr(node, "label", node)
        edges.extend((name, b) for b in below)
        return name

    seen: list[Any] = []
    place(root, 0)
    leaves = [name for name in nodes if not any(a == name for a, _ in edges)]
    return graph(
        nodes, edges, caption=caption, labels=labels, shaded=leaves, box=(0.86, 0.36), scale=scale
    )


def matrix(
    values: Mapping[str, Mapping[str, float]],
    *,
    caption: str = "",
    text: Callable[[float], str] | Mapping[str, Mapping[str, str]] = "{:.2g}".format,
    signed: bool = False,
    cell: tuple[int, int] = (84, 20),
) -> Figure:
    """A table whose cells are shaded by their values: `{row: {column: value}}`.

    Args:
        values: Darkest at the largest absolute value; NaN leaves a cell empty.
        caption: What the picture shows.
        text: What a cell shows, as a function of its value or as a table of its own.
        signed: Negative values in a second colour.
        cell: Width and height of a cell in pixels.

    Example:
        >>> from allometry.course import diagrams
        >>> diagrams.matrix({"a": {"p": 1.0, "q": 0.5}}).svg()[:4]
        '<svg'
    """
    rows, columns = list(values), list(next(iter(values.values())))
    top = max((abs(v) for row in values.values() for v in row.values() if v == v), default=1.0)
    data: dict[str, list[Any]] = {k: [] for k in ("row", "column", "shade", "colour", "text")}
    for r, each in values.items():
        for c, v in each.items():
            good = v == v
            data["row"].append(r)
            data["column"].append(c)
            data["shade"].append(0.55 * abs(v) / (top or 1.0) if good else 0.0)
            data["colour"].append(LIGHT["c2"] if signed and good and v < 0 else LIGHT["c1"])
            shown = text(v) if callable(text) else text[r][c]
            data["text"].append(shown if good or not callable(text) else "")
    axis = {"title": None, "domain": False, "ticks": False, "labelColor": LIGHT["ink"]}
    across = {"field": "column", "type": "nominal", "sort": columns}
    across["axis"] = axis | {"orient": "top", "labelAngle": 0, "labelLimit": cell[0] + 20}
    down = {"field": "row", "type": "nominal", "sort": rows}
    down["axis"] = axis | {"labelLimit": 300}
    fill = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    shade = {"field": "shade", "type": "quantitative", "scale": None, "legend": None}
    look = {"aria": False, "stroke": LIGHT["paper"], "strokeWidth": 1.5}
    cells = layer(data, "rect", look, x=across, y=down, color=fill, fillOpacity=shade)
    write = {"color": LIGHT["ink"], "fontSize": 11, "aria": False}
    labels = layer(data, "text", write, x=across, y=down, text={"field": "text"})
    longest = max(len(r) for r in rows)
    wide = len(columns) * cell[0] + min(300, round(7.4 * longest)) + 24
    spec = theme.styled([cells, labels], "", wide, len(rows) * cell[1] + 30)
    return Figure(spec | {"title": None}, caption)


def _hidden(name: str, low: float, high: float) -> Spec:
    scale = {"domain": [float(low), float(high)], "nice": False, "zero": False}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": None}


def _rect(low: Any, high: Any, look: Spec, axes: dict[str, Spec]) -> Spec:
    data = {"x": [low[0]], "y": [low[1]], "x2": [high[0]], "y2": [high[1]]}
    each = layer(data, "rect", look, **axes)
    each["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return each


def _text(text: str, at: Any, scale: float, axes: dict[str, Spec]) -> list[Spec]:
    lines = text.split("\n")
    out = []
    for i, line in enumerate(lines):
        up = ((len(lines) - 1) / 2 - i) * 15 / scale
        look = {"color": LIGHT["ink"], "fontSize": 12 if i == 0 else 11, "aria": False}
        out.append(
            layer(
                {"x": [at[0]], "y": [at[1] + up], "t": [line]},
                "text",
                look,
                text={"field": "t"},
                **axes,
            )
        )
    return out


def _plate(label: str, places: list[Any], half: Any, axes: dict[str, Spec]) -> list[Spec]:
    low, high = np.min(places, 0) - half - 0.22, np.max(places, 0) + half + 0.22
    look = {"color": "transparent", "stroke": LIGHT["muted"], "cornerRadius": 6, "aria": False}
    write = {"color": LIGHT["muted"], "fontSize": 11, "align": "right", "aria": False}
    data = {"x": [high[0] - 0.06], "y": [low[1] + 0.1], "t": [label]}
    return [
        _rect(low, high, look, axes),
        layer(data, "text", write, text={"field": "t"}, **axes),
    ]


def _arrows(
    edges: Sequence[tuple[str, str]],
    at: Mapping[str, Any],
    half: Any,
    circles: bool,
    axes: dict[str, Spec],
) -> list[Spec]:
    """Lines from edge to edge of the nodes, with heads."""
    out = []
    for a, b in edges:
        way = at[b] - at[a]
        length = float(np.hypot(*way)) or 1.0
        # The distance from a centre to the border along this direction.
        with np.errstate(divide="ignore"):
            reach = half[0] if circles else float(np.min(half / np.abs(way / length)))
        start, end = at[a] + way / length * reach, at[b] - way / length * (reach + 0.06)
        data = {"x": [start[0]], "y": [start[1]], "x2": [end[0]], "y2": [end[1]]}
        line = layer(data, "rule", {"color": LIGHT["muted"], "aria": False}, **axes)
        line["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
        look = {"shape": "triangle", "filled": True, "size": 50, "opacity": 1, "aria": False}
        look |= {"color": LIGHT["muted"], "angle": float(np.degrees(np.arctan2(way[0], way[1])))}
        out += [line, layer({"x": [end[0]], "y": [end[1]]}, "point", look, **axes)]
    return out
