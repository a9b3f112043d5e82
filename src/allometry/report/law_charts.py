"""Charts of one scaling law: fit, residuals, isoFLOP curves, backtests, plan and profile.

Each function returns a Vega-Lite specification; `write` puts them on one page with the numbers.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from allometry._core.errors import InputError, require
from allometry.laws import Law, Plan, profile
from allometry.laws.calibration import BARE
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.theme import LIGHT, Columns, Spec, layer, take

_TITLES = {"N": "Parameters", "D": "Data seen", "C": "Training compute, FLOP", "S": "Steps"}
_DOT = {"filled": True, "opacity": 0.8, "stroke": LIGHT["paper"], "strokeWidth": 0.7, "size": 40}
_COLOUR = LIGHT[theme.FAMILY_COLOURS[0]]
_OTHER = LIGHT[theme.COUNT_COLOUR]
_LINE = {"color": _COLOUR, "strokeWidth": 2, "clip": True, "aria": False}
_BAND = {"color": _COLOUR, "opacity": 0.15, "clip": True, "aria": False}
MOST_DOTS = 600
"""Runs drawn in a chart."""

BEYOND = math.log(30.0)
"""How far the chart of the fit extends beyond the largest run, in e-folds, at most."""


def _write(name: str) -> fmt.Writer:
    if name == "C":
        return lambda x: fmt.flops(x).removesuffix("FLOP").replace(" ", "")
    return fmt.count


def along(law: Law) -> str:
    """The x axis of the chart of the fit: the law's one variable, or compute."""
    if law.variables in (("N",), ("D",)):
        return law.variables[0]
    return "C" if "C" in law.table.logs else law.variables[0]


def assembled(
    layers: list[Spec], x: Spec, y: Spec, title: str, width: int, height: int, paper: bool
) -> Spec:
    """Layers on common axes."""
    corner = {"x": [x["scale"]["domain"][0]], "y": [y["scale"]["domain"][0]]}
    look = {"opacity": 0, "color": LIGHT["paper"], "aria": False}
    scales = layer(corner, "point", look, x=x, y=y)
    return theme.styled([scales, *layers], title, width, height, paper=paper)


def log_axis(field: str, values: Any, write: fmt.Writer, title: str | None, most: int) -> Spec:
    """A logarithmic axis that covers the values."""
    return theme.log_axis(field, *theme.extent(values), write, title, most)


def _linear(field: str, lo: float, hi: float, title: str | None, form: str) -> Spec:
    axis = {"title": title, "format": form, "tickCount": 6}
    scale = {"domain": [lo, hi], "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _runs(law: Law, x: str) -> Columns:
    logs = law.table.logs
    columns = {name: np.exp(value) for name, value in logs.items()}
    names = [n for n in ("N", "D", "C") if n in columns]
    columns["loss"] = np.exp(law.table.y)
    tooltip = [
        ", ".join(f"{n} {_write(n)(float(row[n]))}" for n in names) + f": loss {row['loss']:.4g}"
        for row in theme.records(columns)
    ]
    return theme.sample(columns | {"tooltip": tooltip, "x": columns[x]}, MOST_DOTS)


def fit(law: Law, width: int = 720, *, plan: Plan | None = None, paper: bool = False) -> Spec:
    """Loss of the runs, and the law with its 95 % band, to some way beyond the largest run.

    With a plan it extends to the planned budget, which is marked. A law in N and D is drawn at
    the compute-optimal allocation.
    """
    x = along(law)
    runs = _runs(law, x)
    low, high = float(law.table.logs[x].min()), float(law.table.logs[x].max())
    end = high + min(BEYOND, 0.6 * (high - low) + 1)
    goal = _goal(x, plan)
    end = end if goal is None else max(end, math.log(goal) + 0.03 * (math.log(goal) - low))
    at = np.linspace(low, end, 80)
    points: dict[str, Any] = {x: np.exp(at)}
    if x == "C" and {"N", "D"} <= set(law.variables) and law.path is None:
        from allometry.laws.inverse import best_size

        best = best_size(law, at)
        points = {"N": np.exp(best), "C": np.exp(at)}
    lo, mid, hi = law.band(**points)
    line = {"x": np.exp(at), "lo": lo, "mid": mid, "hi": hi}
    inside, beyond = take(line, at <= high + 1e-9), take(line, at >= high - (at[1] - at[0]))
    layers = [
        layer(line, "area", _BAND, x="x", y="lo", y2="hi"),
        layer(inside, "line", _LINE, x="x", y="mid"),
        layer(beyond, "line", _LINE | {"strokeDash": [2, 3]}, x="x", y="mid"),
        layer(runs, "point", _DOT | {"color": _COLOUR}, x="x", y="loss", tooltip="tooltip"),
    ]
    losses = [*runs["loss"], *mid]
    if goal is not None and plan is not None:
        lower, upper = plan.loss.interval
        mark = {"x": [goal], "y": [plan.loss.value], "lo": [lower], "hi": [upper]}
        mark |= {"tooltip": [f"Plan: loss {fmt.loss(plan.loss.value)}"]}
        bar = {"color": _OTHER, "strokeWidth": 2, "clip": True}
        dot = _DOT | {"color": _OTHER, "size": 90}
        layers.append(layer(mark, "rule", bar, x="x", y="lo", y2="hi"))
        layers.append(layer(mark, "point", dot, x="x", y="y", tooltip="tooltip"))
        losses.append(plan.loss.value)
    xs = log_axis("x", [*runs["x"], *line["x"]], _write(x), _TITLES[x], 7)
    return assembled(
        layers,
        xs,
        log_axis("y", losses, fmt.significant, None, 7),
        "Loss",
        width,
        width // 2,
        paper,
    )


def _goal(x: str, plan: Plan | None) -> float | None:
    """The position of the plan on the axis, if it has one."""
    if plan is None:
        return None
    if x == "C":
        return plan.compute
    amount = plan.N if x == "N" else plan.D if x == "D" else None
    known = amount is not None and math.isfinite(amount.value)
    return amount.value if known and amount is not None else None


def residuals(law: Law, width: int = 344, *, paper: bool = False) -> Spec:
    """Relative residual of each run in percent, against size or compute."""
    x = along(law)
    value = law(**{v: np.exp(law.table.logs[v]) for v in law.variables})
    away = 100 * np.expm1(law.table.y - np.log(value))
    tooltip = [f"{a:+.2f} % from the law" for a in away]
    columns = {"x": np.exp(law.table.logs[x]), "away": away, "tooltip": tooltip}
    frame = theme.sample(columns, MOST_DOTS)
    most = 1.1 * float(np.abs(away).max()) + 1e-6
    zero = {"y": [0.0]}
    rule = {"color": LIGHT["muted"], "strokeWidth": 1, "aria": False}
    layers = [
        layer(zero, "rule", rule, y="y"),
        layer(frame, "point", _DOT | {"color": _COLOUR}, x="x", y="away", tooltip="tooltip"),
    ]
    xs = log_axis("x", frame["x"], _write(x), _TITLES[x], 5)
    ys = _linear("y", -most, most, None, "+.2~f")
    return assembled(layers, xs, ys, "Residual, %", width, round(0.8 * width), paper)


def isoflop(law: Law, width: int = 344, *, paper: bool = False) -> Spec | None:
    """Loss against size at each compute with several sizes; `None` if fewer than two have them."""
    logs = law.table.logs
    if not {"N", "C"} <= set(logs) or not {"N", "D"} <= set(law.variables):
        return None
    order = np.argsort(logs["C"])
    # Budgets as they are; if compute varies continuously, bins of a third of an e-fold.
    groups = np.split(order, np.flatnonzero(np.diff(logs["C"][order]) > 0.15) + 1)
    if max(float(np.ptp(logs["C"][g])) for g in groups) > 0.5:
        bins = np.floor(logs["C"] * 3).astype(int)
        groups = [np.flatnonzero(bins == b) for b in np.unique(bins)]
    groups = [g for g in groups if len(np.unique(np.round(logs["N"][g], 6))) >= 4]
    if len(groups) < 2:
        return None
    groups = [groups[i] for i in np.unique(np.linspace(0, len(groups) - 1, 6).astype(int))]
    colours = [LIGHT[theme.STEPS[i]] for i in range(len(theme.STEPS))][-len(groups) :]
    layers: list[Spec] = []
    losses: list[float] = []
    sizes: list[float] = []
    for g, colour in zip(groups, colours, strict=True):
        c = float(logs["C"][g].mean())
        n = np.linspace(logs["N"][g].min(), logs["N"][g].max(), 40)
        line = {"x": np.exp(n), "loss": law(N=np.exp(n), C=np.full(40, np.exp(c)))}
        measured = np.exp(law.table.y[g])
        tooltip = [f"{fmt.flops(math.exp(c))}: loss {loss:.4g}" for loss in measured]
        dots = {"x": np.exp(logs["N"][g]), "loss": measured, "tooltip": tooltip}
        layers.append(layer(line, "line", _LINE | {"color": colour}, x="x", y="loss"))
        look = _DOT | {"color": colour}
        layers.append(layer(dots, "point", look, x="x", y="loss", tooltip="tooltip"))
        losses += [*dots["loss"], *line["loss"]]
        sizes += [*dots["x"]]
    xs = log_axis("x", sizes, fmt.count, "Parameters, one line per compute", 5)
    ys = log_axis("y", losses, fmt.significant, None, 6)
    return assembled(layers, xs, ys, "Loss", width, round(0.8 * width), paper)


def backtest(law: Law, width: int = 344, *, paper: bool = False) -> Spec | None:
    """Errors of the law's forms, fitted to smaller runs, on larger ones; `None` without folds."""
    if not law.folds:
        return None
    away = [100 * math.expm1(float(e)) for fold in law.folds for e in fold.error]
    trained = [fold.trained for fold in law.folds for _ in fold.error]
    tooltip = [f"fitted to {n} runs: {a:+.2f} %" for n, a in zip(trained, away, strict=True)]
    x = np.concatenate([fold.distance for fold in law.folds])
    frame = theme.sample({"x": x, "away": away, "tooltip": tooltip}, MOST_DOTS)
    reach = max(float(np.max(frame["x"])), 0.1)
    at = np.linspace(0, reach, 40)
    from allometry.laws.intervals import half_width

    half = half_width(np.full(40, 0.0), law.noise, law.dof, at, law.extrapolation_error)
    band = {"x": at, "lo": 100 * np.expm1(-half), "hi": 100 * np.expm1(half)}
    most = 1.1 * max(float(np.abs(frame["away"]).max()), float(band["hi"].max()))
    zero = {"y": [0.0]}
    layers = [
        layer(band, "area", _BAND, x="x", y="lo", y2="hi"),
        layer(zero, "rule", {"color": LIGHT["muted"], "strokeWidth": 1, "aria": False}, y="y"),
        layer(frame, "point", _DOT | {"color": _COLOUR}, x="x", y="away", tooltip="tooltip"),
    ]
    xs = _linear("x", 0.0, reach * 1.05, "Distance beyond the fitted runs, e-folds", ".1~f")
    ys = _linear("y", -most, most, None, "+.2~f")
    return assembled(
        layers, xs, ys, "Measured minus predicted, %", width, round(0.8 * width), paper
    )


def profiled(law: Law, letter: str, width: int = 344, *, paper: bool = False) -> Spec:
    """Profile likelihood of one parameter, with the threshold of its 95 % interval."""
    made = profile(law, letter)
    rows = np.flatnonzero(np.isfinite(made.value) & (made.rise <= 12))
    rows = rows[np.argsort(made.value[rows], kind="stable")]
    frame = take({"x": made.value, "rise": made.rise}, rows)
    require(len(rows) > 2, "profiled.letter", "have a profile that is finite", letter)
    rule = {"y": [3.84]}
    dash = {"color": _OTHER, "strokeDash": [4, 3], "aria": False}
    layers = [
        layer(rule, "rule", dash, y="y"),
        layer(frame, "line", _LINE, x="x", y="rise"),
    ]
    low, high = float(np.min(frame["x"])), float(np.max(frame["x"]))
    xs = _linear("x", low, high, letter, ".3~g")
    ys = _linear("y", 0.0, 12.0, None, ".0f")
    title = "Increase of the deviance"
    return assembled(layers, xs, ys, title, width, round(0.8 * width), paper)


def planned(law: Law, plan: Plan, width: int = 344, *, paper: bool = False) -> Spec | None:
    """Loss against size at the plan's compute, with the plan's size and its interval."""
    if plan.N is None or not {"N", "D"} <= set(law.variables):
        return None
    lo, hi = plan.N.interval
    n = np.linspace(math.log(plan.N.value) - 2.5, math.log(plan.N.value) + 2.5, 60)
    low, mid, high = law.band(N=np.exp(n), C=np.full(60, plan.compute))
    line = {"x": np.exp(n), "lo": low, "mid": mid, "hi": high}
    best = {"x": [plan.N.value], "loss": [plan.loss.value], "lo": [lo], "hi": [hi]}
    best |= {"tooltip": [f"{fmt.count(plan.N.value)} parameters, loss {plan.loss.value:.4g}"]}
    ends = {"color": _OTHER, "strokeWidth": 2, "clip": True}
    layers = [
        layer(line, "area", _BAND, x="x", y="lo", y2="hi"),
        layer(line, "line", _LINE, x="x", y="mid"),
        layer(best, "rule", ends, x="lo", x2="hi", y="loss"),
        layer(
            best, "point", _DOT | {"color": _OTHER, "size": 90}, x="x", y="loss", tooltip="tooltip"
        ),
    ]
    title = f"Parameters, at {fmt.flops(plan.compute)}"
    xs = log_axis("x", [*line["x"], lo, hi], fmt.count, title, 5)
    ys = log_axis("y", [*low, *high], fmt.significant, None, 6)
    return assembled(layers, xs, ys, "Loss", width, round(0.8 * width), paper)


def charts(law: Law, plan: Plan | None = None) -> dict[str, Spec]:
    """All charts that the law and the plan allow, by name."""
    made: dict[str, Spec | None] = {
        "fit": fit(law, plan=plan),
        "residuals": residuals(law),
        "isoflop": isoflop(law),
        "backtest": backtest(law),
        "plan": None if plan is None else planned(law, plan),
    }
    bare = law.form in BARE
    floor = next((k for k in ("E", "a", "eps_inf") if k in law.params and not bare), "")
    if floor and len(law.members[0].draws):
        try:
            made["profile"] = profiled(law, floor)
        except InputError:  # runs without noise: every other value is infinitely worse
            made["profile"] = None
    return {name: spec for name, spec in made.items() if spec is not None}


def write(path: Path | str, law: Law, plan: Plan | None = None) -> Path:
    """Write one page with the law's planner, numbers, warnings and charts."""
    from allometry.report import law_page

    return law_page.write(path, law, plan)
