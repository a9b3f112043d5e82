"""A comparison of recipes: its table and a page with charts."""

import html
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from allometry._core.files import atomic_write
from allometry.laws import RecipeComparison
from allometry.laws.comparison.comparison_limits import MULTIPLIED, UNITS
from allometry.laws.comparison.linear_evidence import DECISIVE
from allometry.report import cells, theme
from allometry.report import formatting as fmt
from allometry.report.cells import Cell, Head, Table
from allometry.report.law_charts import assembled, log_axis
from allometry.report.page_template import policy
from allometry.report.theme import DARK, LIGHT, Spec, layer

SAME = 0.01
"""Difference of log scales that is none."""

WIDE, NARROW = 840, 344
"""Widths in pixels of a chart on wide and narrow screens."""

POINTS = 40
"""Scales at which a band is drawn."""

MOST_BAND = 1.5
"""Largest ratio of the axis' ends to the outermost gains."""


def _variables(colours: dict[str, str], warning: str) -> str:
    named = "".join(f"--{name}:{value};" for name, value in colours.items())
    return f":root{{color-scheme:light dark;{named}--warning:{warning}}}"


STYLE = (
    f"{_variables(LIGHT, '#8a5a00')}"
    f"@media(prefers-color-scheme:dark){{{_variables(DARK, '#e0b050')}}}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem;"
    "color:var(--ink);background:var(--paper)}svg{max-width:100%;height:auto}"
    "div{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem 1rem .2rem 0;text-align:left;vertical-align:top}td{white-space:nowrap}"
    "td.num,th.num{text-align:right;padding:.2rem .2rem .2rem 1rem;white-space:nowrap}"
    "td+td,th+th{padding-left:1rem}p.note{font-size:.9rem;opacity:.75}"
    "th small{display:block;font-weight:normal}"
    ".narrow{display:none}@media(max-width:40rem){.wide{display:none}.narrow{display:block}}"
    "figure{margin:2rem 0}figcaption{font-size:.9rem;opacity:.75}li.w{color:var(--warning)}"
    "ul.key{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}"
)

NOTE = (
    "The e-value is the evidence against equal recipes. It may be looked at after every run. "
    "Pairs are runs of both recipes with the same size, data and seed."
)

GAINS = "The gain with its 95 % interval, to the scale asked for"

MOST_COLOURS = len(theme.FAMILY_COLOURS)


def table(found: RecipeComparison) -> Table:
    """Every rival against the leader."""
    unit, needed = UNITS[found.scale], DECISIVE * len(found.rivals)
    # At the largest scale measured, both columns would be the same.
    beyond = any(abs(math.log(found.at / rival.measured_at)) > SAME for rival in found.rivals)
    inside = (Head("largest measured", kind="num"),) if beyond else ()
    heads = (
        Head(f"against {found.leader}"),
        Head("verdict", kind="tight"),
        Head(f"times the {MULTIPLIED[found.scale]}", f"at {found.at:.3g} {unit}", "num"),
        *inside,
        Head("trend", minor=True),
        Head("e-value", f"{needed:g} decides", "num"),
        Head("pairs", kind="num", minor=True),
    )
    rows = tuple(
        (
            Cell(rival.name),
            Cell("worse" if rival.decided else "undecided"),
            cells.estimate(rival.multiplier, fmt.significant),
            *((cells.estimate(rival.measured, fmt.significant),) if beyond else ()),
            Cell(rival.trend),
            Cell(_evidence(rival.e_value), kind="num"),
            Cell(str(rival.pairs), kind="num"),
        )
        for rival in found.rivals
    )
    return Table("Recipes, the closest first", heads, rows)


def _evidence(value: float) -> str:
    """An e-value; beyond a million its size no longer matters."""
    if value >= 1e6:
        return "> 1 million"
    return f"{value:,.0f}" if value >= 1000 else fmt.significant(value)


def losses(found: RecipeComparison, width: int = WIDE) -> Spec:
    """The losses of the runs against scale, by recipe."""
    runs = found.runs
    layers = []
    for i, name in enumerate(runs.names):
        rows = np.flatnonzero(runs.recipe == i)
        dots = {
            "x": np.exp(runs.x[rows]),
            "y": np.exp(runs.y[rows]),
            "tooltip": [f"{name}: loss {math.exp(y):.4g}" for y in runs.y[rows]],
        }
        look = {"filled": True, "opacity": 0.75, "size": 40, "color": _colour(i)}
        layers.append(layer(dots, "point", look, x="x", y="y", tooltip="tooltip"))
    xs = log_axis("x", np.exp(runs.x), fmt.count, UNITS[found.scale], _ticks(width))
    ys = log_axis("y", np.exp(runs.y), fmt.significant, None, 7)
    return assembled(layers, xs, ys, "Loss", width, _height(width), False)


def gains(found: RecipeComparison, width: int = WIDE) -> Spec:
    """The multiplier of every rival against scale, with 95 % bands."""
    low = min(rival.gain.low for rival in found.rivals)
    high = max(math.log(found.at), *(rival.gain.high for rival in found.rivals), low + 0.1)
    x = np.linspace(low, high, POINTS)
    layers = [layer({"y": [1.0]}, "rule", {"color": LIGHT["muted"], "aria": False}, y="y")]
    values = [1.0]
    for rival in found.rivals[:MOST_COLOURS]:
        made = [rival.multiplier_at(float(v)) for v in x]
        ends = [tuple(min(max(e, 1e-3), 1e3) for e in m.interval) for m in made]
        middle = [min(max(m.value, 1e-3), 1e3) for m in made]
        line = {
            "x": np.exp(x), "mid": middle, "lo": [e[0] for e in ends], "hi": [e[1] for e in ends]
        }  # fmt: skip
        colour = _colour(found.runs.names.index(rival.name))
        look = {"color": colour, "opacity": 0.15, "clip": True, "aria": False}
        layers.append(layer(line, "area", look, x="x", y="lo", y2="hi"))
        look = {"color": colour, "strokeWidth": 2, "clip": True, "aria": False}
        layers.append(layer(line, "line", look, x="x", y="mid"))
        # A band that is much wider than the gains is cut, so that these stay visible.
        most, least = MOST_BAND * max(*middle, 1.0), min(*middle, 1.0) / MOST_BAND
        values += [min(max(e, least), most) for pair in ends for e in pair]
    xs = log_axis("x", np.exp(x), fmt.count, UNITS[found.scale], _ticks(width))
    ys = log_axis("y", values, fmt.significant, None, 7)
    title = f"Times the {MULTIPLIED[found.scale]} of {found.leader} for the same loss"
    return assembled(layers, xs, ys, title, width, _height(width), False)


def _ticks(width: int) -> int:
    return 7 if width >= WIDE else 4


def _height(width: int) -> int:
    return width // 2 if width >= WIDE else round(0.8 * width)


def html_table(table: Table) -> str:
    """A table in HTML."""
    units = (f"<small>{html.escape(h.unit)}</small>" if h.unit else "" for h in table.heads)
    head = "".join(
        f"<th{_kind(h)}>{html.escape(h.text)}{unit}</th>"
        for h, unit in zip(table.heads, units, strict=True)
    )
    rows = (
        "".join(f"<td{_kind(c)}>{html.escape(f'{c.text} {c.more}'.strip())}</td>" for c in row)
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div><table><tr>{head}</tr>{body}</table></div>"


def _kind(cell: Head | Cell) -> str:
    return " class=num" if "num" in cell.kind.split() else ""


def _colour(i: int) -> str:
    return LIGHT[_colour_name(i)]


def _colour_name(i: int) -> str:
    return theme.FAMILY_COLOURS[i % MOST_COLOURS]


def _pictures(
    found: RecipeComparison, draw: Callable[[RecipeComparison, int], Spec], caption: str, i: int
) -> str:
    """The chart for wide and for narrow screens."""
    label = html.escape(caption)
    return "".join(
        f"<div class={size}>"
        f"{theme.inline(theme.svg(draw(found, width)), f'f{i}-{size}', label)}</div>"
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )


def write(path: Path | str, found: RecipeComparison) -> Path:
    """Write one page with the verdict, the table and the charts; it loads nothing else."""
    title = "Comparison of recipes"
    key = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="5" '
        f'fill="var(--{_colour_name(i)})"/></svg> {html.escape(name)}</li>'
        for i, name in enumerate(found.runs.names)
    )
    captions = {"Losses of the runs": losses, GAINS: gains}
    figures = "".join(
        f"<figure>{_pictures(found, draw, caption, i)}"
        f"<figcaption>{html.escape(caption)}.</figcaption></figure>"
        for i, (caption, draw) in enumerate(captions.items())
    )
    warnings = "".join(f"<li class=w>{html.escape(w)}</li>" for w in found.warnings)
    parts = [
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f'<meta http-equiv="Content-Security-Policy" content="{policy(STYLE)}">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1><p><strong>{html.escape(found.verdict)}</strong></p>",
        f"{html_table(table(found))}<p class=note>{NOTE}</p><ul>{warnings}</ul>",
        f"<ul class=key>{key}</ul>{figures}",
    ]
    path = Path(path)
    with atomic_write(path) as file:
        file.write("\n".join(parts))
    return path
