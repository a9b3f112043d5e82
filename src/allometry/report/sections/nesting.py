"""Trained twins of the bracket networks: which depth of network knows which depth of nesting."""

import math

import numpy as np
import pandas as pd

from allometry.report import theme
from allometry.report.run_groups import RunsLike, finished, table
from allometry.report.tables import Cell, Head, Table
from allometry.report.theme import LIGHT, Spec, layer

NEEDED = ("kind", "layers", "nesting", "recalled", "recalled_longer")


def _twins(runs: RunsLike) -> pd.DataFrame | None:
    """Means over seeds for each kind, number of layers and nesting; `None` for other studies."""
    done = finished(table(runs))
    if not set(NEEDED) <= set(done) or done.empty:
        return None
    values = [str(n) for n in done if str(n).startswith(("recalled", "closing"))]
    groups = done.groupby(["kind", "layers", "nesting"], sort=False)
    made = groups[values].mean().reset_index()
    made["seeds"] = groups.size().to_numpy()
    # Of one seed there is only the error of the measurement; of several their spread too.
    spread = np.nan_to_num(groups["recalled"].std().to_numpy(float))
    made["se"] = np.hypot(spread / np.sqrt(made["seeds"]), made["recalled_se"])
    made["name"] = [
        _name(kind, layers) for kind, layers in zip(made.kind, made.layers, strict=True)
    ]
    # The construction first, then families as they come, by depth.
    order = made["kind"].ne("construction") * 1000 + made["layers"]
    return made.assign(order=order).sort_values(["order", "kind"], kind="stable")


def _name(kind: str, layers: float) -> str:
    return f"{kind}, {layers:.0f} layer{'s' if layers > 1 else ''}"


def nesting(runs: RunsLike) -> Table | None:
    """A row for each network, a column for each nesting: brackets recalled."""
    made = _twins(runs)
    if made is None:
        return None
    depths = sorted(int(d) for d in made["nesting"].unique())
    rows = []
    for kind in made["kind"].unique():
        part = made[made["kind"] == kind]
        for layers in sorted(part["layers"].unique()):
            cells = [Cell(_name(str(kind), float(layers)), kind="tight")]
            for depth in depths:
                found = part[(part["layers"] == layers) & (part["nesting"] == depth)]
                cells.append(_cell(found))
            rows.append(tuple(cells))
    heads = (Head("Network", kind="tight"), *(Head(f"nesting {d}", "", "num") for d in depths))
    caption = (
        "Brackets recalled: where the open bracket is not the symbol just read, how often its "
        "type is known (± standard error; in brackets on inputs four times as long as in training)"
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
    """Brackets recalled on longer inputs against the nesting depth, a line for each network."""
    made = _twins(runs)
    if made is None:
        return None
    data = made[["name", "kind", "nesting", "recalled_longer", "layers"]].copy()
    data["told"] = [
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
        layer(data, "point", {"filled": True, "size": 46}, x=x, y=y, color=colour, told="told"),
    ]
    title = "Share of brackets recalled, inputs four times as long as in training"
    return theme.styled(marks, title, width, round(width * (0.5 if width > 500 else 1.1)))
