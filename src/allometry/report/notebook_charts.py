"""Which charts a law, a plan or runs have in a notebook, as Vega-Lite specifications.

`law.plot()`, `plan.plot()` and `runs.plot()` make Altair charts of them (`_core/notebook.py`).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from allometry._core.errors import InputError
from allometry.laws import Law, Plan, VariableLaw
from allometry.report import formatting as fmt
from allometry.report import law_charts, theme
from allometry.report.theme import LIGHT, Spec, layer
from allometry.runs import Imported, Runs

Charts = dict[str, Callable[[], Spec | None]]

_COLOUR = LIGHT[theme.FAMILY_COLOURS[0]]
_DOT = {"filled": True, "opacity": 0.8, "stroke": LIGHT["paper"], "strokeWidth": 0.7, "size": 40}
_AXES = {"C": "Training compute, FLOP", "N": "Parameters", "D": "Data seen"}


def specification(thing: Any, kind: str | None = None) -> Spec:
    """The chart of a law, a plan or runs.

    Args:
        thing: A `Law`, `VariableLaw`, `Plan`, `Runs` or `Imported`.
        kind: Name of the chart. Default: the first that can be drawn.

    Raises:
        InputError: There is no such chart, or these runs do not allow it.
    """
    found = _charts(thing)
    if kind is not None and kind not in found:
        raise InputError(f"plot.kind must be one of {', '.join(found)}; got {kind!r}.")
    for name in found if kind is None else [kind]:
        spec = found[name]()
        if spec is not None:
            return spec
    raise InputError(
        f"plot.kind must be a chart that these runs allow; got {kind or 'none that they do'!r}. "
        f"Charts: {', '.join(found)}."
    )


def _charts(thing: Any) -> Charts:
    if isinstance(thing, Law):
        return {
            "fit": lambda: law_charts.fit(thing, paper=True),
            "residuals": lambda: law_charts.residuals(thing, 480, paper=True),
            "isoflop": lambda: law_charts.isoflop(thing, 480, paper=True),
            "backtest": lambda: law_charts.backtest(thing, 480, paper=True),
        }
    if isinstance(thing, VariableLaw):
        return {"effects": lambda: effects(thing), "fit": lambda: predicted(thing)}
    if isinstance(thing, Plan):
        law = thing.law
        if law is None:
            raise InputError("plan must come from law.plan to be plotted; got one without a law.")
        return {
            "size": lambda: law_charts.planned(law, thing, 480, paper=True),
            "fit": lambda: law_charts.fit(law, plan=thing, paper=True),
        }
    if isinstance(thing, Imported):
        return {"loss": lambda: imported(thing)}
    if isinstance(thing, Runs):
        return {"frontier": lambda: _frontier(thing)}
    raise InputError(f"plot must be given a law, a plan or runs; got {type(thing).__name__}.")


def _frontier(runs: Runs) -> Spec:
    from allometry.report import analyse, figures

    return figures.frontier(runs, analyse(runs), paper=True)


def imported(runs: Imported, width: int = 560) -> Spec:
    """The losses of imported runs against compute, or against size or data."""
    columns = runs.columns
    found = dict(columns)
    if "C" not in found and {"N", "D"} <= set(found):
        found["C"] = 6 * found["N"] * found["D"]
    x = next((name for name in _AXES if name in found), None)
    if x is None:
        raise InputError("runs must have N, D or C to be plotted; got none of them.")
    known = [name for name in _AXES if name in found]
    rows = theme.sample({"x": found[x], "loss": found["loss"]} | {n: found[n] for n in known}, 600)
    write = {"C": fmt.flops}
    tooltip = [
        ", ".join(f"{name} {write.get(name, fmt.count)(float(row[name]))}" for name in known)
        + f": loss {row['loss']:.4g}"
        for row in theme.records(rows)
    ]
    xs = theme.log_axis("x", *theme.extent(rows["x"]), write.get(x, fmt.count), _AXES[x])
    ys = theme.log_axis("loss", *theme.extent(rows["loss"]), fmt.significant, None)
    dots = layer(
        dict(rows) | {"tooltip": tooltip},
        "point",
        _DOT | {"color": _COLOUR},
        x=xs,
        y=ys,
        tooltip="tooltip",
    )
    return theme.styled([dots], "Loss", width, width // 2, paper=True)


def effects(law: VariableLaw, width: int = 260) -> Spec:
    """Partial effects: the response along each variable, with its 95 % band."""
    panels = []
    config: Spec = {}
    for name, found in law.effects().items():
        fine = np.isfinite(found["lower"]) & np.isfinite(found["upper"])
        line = {k: v[fine] for k, v in found.items()}
        log = bool(fine.any() and (line["x"] > 0).all() and line["x"].max() > 8 * line["x"].min())
        x: Spec = {"field": "x", "type": "quantitative", "scale": {"zero": False}}
        x["axis"] = {"title": name, "tickCount": 5}
        if log:
            ends = float(line["x"].min()), float(line["x"].max())
            write = fmt.count if ends[0] >= 1 else fmt.significant
            x = theme.log_axis("x", *ends, write, name, 4)
        y: Spec = {"field": "lower", "type": "quantitative", "scale": {"zero": False}}
        y["axis"] = {"title": law.table.response}
        band = {"color": _COLOUR, "opacity": 0.15}
        middle = y | {"field": "value"}
        layers = [
            layer(line, "area", band, x=x, y=y, y2="upper"),
            layer(line, "line", {"color": _COLOUR}, x=x, y=middle),
        ]
        panel = theme.styled(layers, "", width, width, paper=True)
        config = panel.pop("config")
        panels.append({k: v for k, v in panel.items() if k in ("layer", "width", "height")})
    columns = math.ceil(math.sqrt(len(panels)))
    return {"concat": panels, "columns": columns, "config": config, "background": LIGHT["paper"]}


def predicted(law: VariableLaw, width: int = 400) -> Spec:
    """Measured against fitted response of every run."""
    labels = [label.split("\x1f") for label in law.table.groups]
    at: dict[str, Any] = dict(zip(law.table.names, law.table.X, strict=True))
    for i, name in enumerate(law.table.by):
        at[name] = [labels[g][i] for g in law.table.group]
    rows = theme.sample({"fitted": law(**at), "measured": law.table.y}, 600)
    low = float(min(np.min(rows["fitted"]), np.min(rows["measured"])))
    high = float(max(np.max(rows["fitted"]), np.max(rows["measured"])))
    axis = {"type": "quantitative", "scale": {"domain": [low, high], "zero": False}}
    x = axis | {"field": "fitted", "axis": {"title": f"Fitted {law.table.response}"}}
    y = axis | {"field": "measured", "axis": {"title": None}}
    line = {"fitted": [low, high], "measured": [low, high]}
    rule = {"color": LIGHT["muted"], "strokeDash": [4, 3]}
    layers = [
        layer(line, "line", rule, x=x, y=y),
        layer(rows, "point", _DOT | {"color": _COLOUR}, x=x, y=y),
    ]
    title = f"Measured {law.table.response}"
    return theme.styled(layers, title, width, width, paper=True)
