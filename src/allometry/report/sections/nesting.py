"""Bracket networks: which network depth recalls which nesting depth."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from allometry.report import theme
from allometry.report.analysis import Analysis
from allometry.report.cells import Cell, Head, Table
from allometry.report.content import Chart, Part, Section
from allometry.report.run_groups import RunsLike, finished, table
from allometry.report.theme import LIGHT, Spec, layer

NEEDED = ("kind", "layers", "nesting", "recalled", "recalled_longer")


def _means(runs: RunsLike) -> pd.DataFrame | None:
    """Means over seeds for each kind, number of layers and nesting; `None` for other studies."""
    done = finished(table(runs))
    if not set(NEEDED) <= set(done) or done.empty:
        return None
    values = [str(n) for n in done if str(n).startswith(("recalled", "closing"))]
    groups = done.groupby(["kind", "layers", "nesting"], sort=False)
    means = groups[values].mean().reset_index()
    means["seeds"] = groups.size().to_numpy()
    # One seed has the measurement error only; several also have a spread.
    spread = np.nan_to_num(groups["recalled"].std().to_numpy(float))
    means["se"] = np.hypot(spread / np.sqrt(means["seeds"]), means["recalled_se"])
    means["name"] = [
        _name(kind, layers) for kind, layers in zip(means.kind, means.layers, strict=True)
    ]
    # The construction first, then the families by depth.
    order = means["kind"].ne("construction") * 1000 + means["layers"]
    return means.assign(order=order).sort_values(["order", "kind"], kind="stable")


def _name(kind: str, layers: float) -> str:
    return f"{kind}, {layers:.0f} layer{'s' if layers > 1 else ''}"


def nesting(runs: RunsLike) -> Table | None:
    """Share of brackets recalled: one row per network, one column per nesting depth."""
    means = _means(runs)
    if means is None:
        return None
    depths = sorted(int(d) for d in means["nesting"].unique())
    rows = []
    for kind in means["kind"].unique():
        part = means[means["kind"] == kind]
        for layers in sorted(part["layers"].unique()):
            cells = [Cell(_name(str(kind), float(layers)), kind="tight")]
            for depth in depths:
                found = part[(part["layers"] == layers) & (part["nesting"] == depth)]
                cells.append(_cell(found))
            rows.append(tuple(cells))
    heads = (Head("Network", kind="tight"), *(Head(f"nesting {d}", "", "num") for d in depths))
    caption = (
        "Share of brackets recalled: how often the type of the open bracket is predicted when it "
        "is not the last symbol read (± standard error; in brackets, on inputs four times as long "
        "as in training)"
    )
    return Table(caption, heads, tuple(rows))


def _cell(found: pd.DataFrame) -> Cell:
    if found.empty or not math.isfinite(found["recalled"].iloc[0]):
        return Cell("—", kind="num")
    first = found.iloc[0]
    return Cell(
        f"{first['recalled']:.3f} ± {first['se']:.3f}",
        more=f"({first['recalled_longer']:.3f})",
        order=float(first["recalled"]),
        kind="num",
    )


def depth_against_nesting(runs: RunsLike, width: int = 720) -> Spec | None:
    """Brackets recalled on longer inputs against the nesting depth, one line per network."""
    means = _means(runs)
    if means is None:
        return None
    data = means[["name", "kind", "nesting", "recalled_longer", "layers"]].copy()
    data["tooltip"] = [
        f"{r.name_}, nesting {r.nesting:.0f}: {r.recalled_longer:.3f}"
        for r in data.rename(columns={"name": "name_"}).itertuples()
    ]
    names = list(dict.fromkeys(data["name"]))
    kinds = list(dict.fromkeys(data["kind"]))
    hue = {k: LIGHT[theme.FAMILY_COLOURS[i % 5]] for i, k in enumerate(kinds)}
    of = data.drop_duplicates("name").set_index("name")
    field = {"field": "name", "type": "nominal", "sort": names, "legend": {"title": None}}
    colour = field | {"scale": {"domain": names, "range": [hue[of.kind[n]] for n in names]}}
    ranks = {n: sorted(of[of.kind == of.kind[n]].layers).index(of.layers[n]) for n in names}
    dashes = [theme.DASHES[ranks[n] % 6] for n in names]
    dash = field | {"scale": {"domain": names, "range": dashes}}
    x = {"field": "nesting", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    x |= {"axis": {"title": "Nesting depth", "values": sorted(data["nesting"].unique().tolist())}}
    y = {"field": "recalled_longer", "type": "quantitative", "scale": {"zero": False}}
    y |= {"axis": {"title": None, "tickCount": 6}}
    marks = [
        layer(data, "line", {"strokeWidth": 2}, x=x, y=y, color=colour, strokeDash=dash),
        layer(
            data, "point", {"filled": True, "size": 46}, x=x, y=y, color=colour, tooltip="tooltip"
        ),
    ]
    title = "Share of brackets recalled, inputs four times as long as in training"
    return theme.styled(marks, title, width, round(width * (0.5 if width > 500 else 1.1)))


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = nesting(runs)
    if table is not None:
        chart = Chart(
            "depth-against-nesting",
            lambda width: depth_against_nesting(runs, width),
            "How well networks of several depths recall open brackets, against the nesting "
            "depth. The construction has two layers and the exact next-symbol distribution at "
            "every nesting depth.",
        )
        yield Part("nesting", "Depth against nesting", (chart, table))


SECTION = Section(lambda runs, analysis: not analysis.findings, _parts)
