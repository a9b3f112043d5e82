"""One page for all families of a job: measures against compute, a law each, the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.estimate import Estimate
from allometry.laws import FamilyChoice
from allometry.laws.family_choice import FamilyForecast
from allometry.report import cells, page_template, sample_grid, theme
from allometry.report import formatting as fmt
from allometry.report.cells import Cell, Head, Table
from allometry.report.law_charts import assembled, log_axis
from allometry.report.png_images import address, png
from allometry.report.theme import LIGHT, Spec, layer

POINTS = 40
"""Budgets at which a law is drawn."""

UNTUNED = (
    "Every family has its recipe's own batch, learning rate and shape, and its size follows from "
    "the budget by one rule. None was tuned on this target: a close result may turn with tuning."
)
"""What readers of the comparison must know."""


@final
@dataclass(frozen=True)
class MeasureChart:
    """One measure of which less is better.

    Args:
        name: Of the section in the page.
        title: The measure, with its unit.
        choice: Laws and rankings.
        kinds: What the measure is for a family, such as `bound`.
        reference: The value of real data, if known.
        bounded: Whether no model can be below the reference, as below an entropy.
    """

    name: str
    title: str
    choice: FamilyChoice
    kinds: Mapping[str, str] = field(default_factory=dict)
    reference: float | None = None
    bounded: bool = False


@final
@dataclass(frozen=True)
class FamilySamples:
    """Samples of one family, by budget.

    Args:
        name: The family.
        images: Addresses of pictures; empty where there is none.
        texts: Excerpts of generated text.
    """

    name: str
    images: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


def colours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The colour and the shape of dots of each family; both together are distinct."""
    hues, shapes = theme.FAMILY_COLOURS, theme.SHAPES
    return {
        name: (LIGHT[hues[i % len(hues)]], shapes[(i + i // len(hues)) % len(shapes)])
        for i, name in enumerate(names)
    }


def chart(part: MeasureChart, names: Sequence[str], width: int = 720) -> Spec:
    """The measure of the runs against compute, with each family's law as far as the budgets."""
    looks = colours(names)
    shown = [f for f in part.choice.forecasts if len(f.y)]
    layers: list[Spec] = []
    xs = np.concatenate([f.C for f in shown])
    ys = np.concatenate([f.y for f in shown])
    top = max([float(xs.max()), *(r.C for r in part.choice.rankings)])
    values = list(ys)
    for f in shown:
        hue, shape = looks[f.name]
        if f.law is not None:
            drawn, mid = _line(f, hue, top, part.reference if part.bounded else None)
            layers += drawn
            values += [float(mid.min())]
        dots = {"filled": True, "opacity": 0.85, "size": 55, "color": hue, "shape": shape}
        data = {"x": f.C, "y": f.y, "tooltip": [f"{f.name}: {y:.4g}" for y in f.y]}
        layers.append(layer(data, "point", dots, x="x", y="y", tooltip="tooltip"))
    if part.reference is not None and part.reference > 0:
        rule = {"color": LIGHT["muted"], "strokeDash": [5, 3], "aria": False}
        text = {"color": LIGHT["muted"], "align": "left", "baseline": "bottom", "dx": 4, "dy": -3}
        name = "entropy" if part.bounded else "real data"
        data = {"y": [part.reference], "name": [name]}
        layers.append(layer(data, "rule", rule, y="y"))
        layers.append(layer(data, "text", text, x={"value": 0}, y="y", text="name"))
        values.append(part.reference)
    layers += _legend([name for name in names if name in {f.name for f in shown}], looks)
    axes = (
        log_axis("x", [*xs, top], short_flops, "Training compute, FLOP", 7),
        log_axis("y", values, fmt.significant, None, 7),
    )
    return assembled(layers, *axes, part.title, width, round(width * 0.62), False)


def _line(
    f: FamilyForecast, hue: str, top: float, least: float | None
) -> tuple[list[Spec], ndarray]:
    """The law with a faint band, no lower than any model can be; dotted beyond the runs."""
    assert f.law is not None
    largest = float(f.C.max())
    x = np.unique(np.append(np.geomspace(float(f.C.min()), top, POINTS), largest))
    lo, mid, hi = f.law.log_band({"C": np.log(x)})
    ends = np.maximum(np.exp([lo, mid, hi]), 0.0 if least is None else least)
    data = {"x": x} | dict(zip(("lo", "mid", "hi"), ends, strict=True))
    quiet = {"color": hue, "clip": True, "aria": False}
    inside, beyond = x <= largest, x >= largest
    parts = [
        layer(data, "area", quiet | {"opacity": 0.06}, x="x", y="lo", y2="hi"),
        layer(theme.take(data, inside), "line", quiet | {"strokeWidth": 2}, x="x", y="mid"),
        layer(
            theme.take(data, beyond),
            "line",
            quiet | {"strokeWidth": 2, "strokeDash": [2, 3]},
            x="x",
            y="mid",
        ),
    ]
    return parts, data["mid"]


def _legend(names: Sequence[str], looks: Mapping[str, tuple[str, str]]) -> list[Spec]:
    one = {"field": "name", "type": "nominal", "sort": list(names)}
    legend = {"title": None, "symbolOpacity": 1, "symbolStrokeWidth": 0}
    hues = {"domain": list(names), "range": [looks[n][0] for n in names]}
    shapes = {"domain": list(names), "range": [looks[n][1] for n in names]}
    return [
        layer(
            {"name": list(names)},
            "point",
            {"opacity": 0, "aria": False},
            fill=one | {"scale": hues, "legend": legend},
            shape=one | {"scale": shapes, "legend": legend},
        )
    ]


def by_rank(choice: FamilyChoice) -> list[FamilyForecast]:
    """The families that have a law, the most probable best at the first budget first."""
    order = list(choice.rankings[0].probabilities) if choice.rankings else []
    known = [f for f in choice.forecasts if f.law is not None]
    return sorted(known, key=lambda f: order.index(f.name) if f.name in order else len(order))


def table(part: MeasureChart) -> Table:
    """Predictions and probabilities by family and budget, the best at the first budget first."""
    rankings = part.choice.rankings
    heads = [Head("family")]
    if part.kinds:
        heads.append(Head("likelihood"))
    for r in rankings:
        heads.append(Head(f"at {short_flops(r.C)} FLOP", kind="num"))
        heads.append(Head("probability to be best", kind="num"))
    rows = []
    for f in by_rank(part.choice):
        row = [Cell(f.name)]
        if part.kinds:
            row.append(Cell(part.kinds.get(f.name, "")))
        for r, p in zip(rankings, f.predictions, strict=True):
            ranked = r.probabilities.get(f.name)
            row += [
                Cell("uncertain") if ranked is None else cells.estimate(p, fmt.significant),
                Cell("—" if ranked is None else f"{ranked:.2f}", kind="num"),
            ]
        rows.append(tuple(row))
    return Table(part.title, tuple(heads), tuple(rows))


def measure_table(
    measured: Mapping[str, Mapping[str, Estimate]], seconds: Mapping[str, float]
) -> Table:
    """The common measures of each family at its largest budget, and the cost of sampling."""
    heads = (
        Head("family"),
        Head("sliced Wasserstein", kind="num"),
        Head("KID", kind="num"),
        Head("precision", kind="num"),
        Head("recall", kind="num"),
        Head("copying", kind="num"),
        Head("1,000 samples", kind="num"),
    )
    names = ("sliced_wasserstein", "kid", "precision", "recall", "copying")
    rows = tuple(
        (
            Cell(family),
            *(cells.number(_value(found.get(name)), fmt.significant) for name in names),
            Cell(fmt.duration(seconds[family]) if family in seconds else "—", kind="num"),
        )
        for family, found in measured.items()
    )
    caption = (
        "Means over seeds. Precision is the share of samples near real data, recall the share of "
        "real data near samples. Copying is the probability that a sample is nearer to the "
        "training data than a held-out example: above 0.5 the model memorises. The last column is "
        "processor time."
    )
    return Table(caption, heads, rows)


def _value(x: Estimate | None) -> float | None:
    return None if x is None else x.value


def picture(values: ndarray | None, levels: int | None) -> str:
    """Samples as a data address of a PNG image; empty if they can't be shown."""
    shown = None if values is None else sample_grid.sheet(values, levels)
    return "" if shown is None else address(png(shown), "image/png")


def write(
    path: Path | str,
    title: str,
    parts: Sequence[MeasureChart],
    *,
    answer: Sequence[str],
    notes: Sequence[str] = (),
    measures: Table | None = None,
    samples: Sequence[FamilySamples] = (),
    budgets: Sequence[float] = (),
) -> Path:
    """Write the page; it loads nothing else."""
    names = list(dict.fromkeys(f.name for part in parts for f in part.choice.forecasts))
    drawn = [_part(part, names) for part in parts if any(len(f.y) for f in part.choice.forecasts)]
    page = page_template.fill(
        "families.html",
        title=title,
        answer=list(answer),
        notes=[*notes, UNTUNED],
        parts=drawn,
        measures=measures,
        samples=list(samples),
        budgets=[f"{short_flops(C)} FLOP" for C in budgets],
    )
    return page_template.save(page_template.html_path(path, "family_chart"), page)


def _part(part: MeasureChart, names: Sequence[str]) -> dict[str, Any]:
    picture = theme.inline(theme.svg(chart(part, names)), part.name, part.title)
    caption = (
        "Each dot is a run. Lines are the families' laws, dotted beyond the runs; bands are 95 % "
        "intervals of one more run."
    )
    return {
        "name": part.name,
        "title": part.title,
        "picture": picture,
        "caption": caption,
        "table": table(part),
    }


def short_flops(x: float) -> str:
    """FLOPs without the unit: 2.9e9."""
    return f"{x:.2g}".replace("e+0", "e").replace("e+", "e")
