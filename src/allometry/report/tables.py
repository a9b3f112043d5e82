"""Tables of the story as plain cells, for the page and the terminal alike."""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from allometry._core.estimate import Estimate
from allometry.laws import Law
from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.guards import identified
from allometry.report.prose import plural
from allometry.report.run_groups import Configuration, RunsLike, about, finished, table

MOST_ROWS = 1000
MOST_SAMPLES = 24
SAMPLE_LENGTH = 700


@final
@dataclass(frozen=True)
class Head:
    """A column's name, its unit, how its cells are set; a minor one is left out where narrow."""

    text: str
    unit: str = ""
    kind: str = ""
    sorted: str = "none"
    minor: bool = False


@final
@dataclass(frozen=True)
class Cell:
    """A cell: its text, a quieter addition, what it sorts by, and how it is set."""

    text: str
    more: str = ""
    order: float | str | None = None
    kind: str = ""


@final
@dataclass(frozen=True)
class Table:
    """A caption, heads and rows of cells."""

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]


@final
@dataclass(frozen=True)
class Sample:
    """A piece of generated text and whose it is."""

    title: str
    under: str
    text: str


@final
@dataclass(frozen=True)
class LawTable:
    """A law's parameters, its equation and its doubts."""

    title: str
    equation: str
    table: Table
    warnings: tuple[str, ...]


def number(x: float | None, write: fmt.Writer) -> Cell:
    """A number that sorts by its value; an em dash where there is none."""
    if x is None or not math.isfinite(x):
        return Cell("—", order="", kind="num")
    return Cell(write(x), order=float(x), kind="num")


def estimate(x: Estimate | None, write: fmt.Writer) -> Cell:
    """A value with its interval."""
    if x is None:
        return Cell("—", order="", kind="num")
    if not math.isfinite(x.value):
        return Cell(fmt.BEYOND, order="", kind="num")
    ends = fmt.span(x, write)
    return Cell(write(x.value), more=f"({ends})", order=float(x.value), kind="num")


def _whole(x: float) -> str:
    return f"{x:,.0f}" if x < 1e5 else fmt.count(x)


def runs(study: RunsLike, story: Analysis | None = None) -> Table:
    """Every run, finished ones by loss; with very many, the best and what failed.

    Args:
        study: The runs.
        story: What they tell, where it is known: the table needs no law fitted.
    """
    frame, total = table(study), len(study.frame())
    said = about(study).get("target") or {}
    unit = story.unit if story is not None else str(said.get("unit") or "nats")
    token = story.token if story is not None else said.get("token")
    token = str(token or unit.partition(" per ")[2] or "token")
    frame = frame.sort_values("loss", na_position="first", kind="stable")
    cut = len(frame) > MOST_ROWS
    if cut:
        # What failed comes first here, so that the cut falls on the worst of the finished.
        frame = frame.head(MOST_ROWS)
    frame = frame.sort_values("loss", na_position="last", kind="stable")
    heads = (
        Head("Family", kind="tight"),
        Head("Shape", kind="tight"),
        Head("Seed", kind="num"),
        Head("N", "parameters", "num"),
        Head("Embedding", "parameters", "num", minor=True),
        Head("D", plural(token), "num"),
        Head("Compute", kind="num"),
        Head("Loss", unit, "num", sorted="ascending"),
        Head("± s.e.", "evaluation", "num", minor=True),
        Head("Time", kind="num"),
        Head("Status", kind="tight"),
        Head("Key", kind="tight", minor=True),
    )
    rows = []
    for row in frame.to_dict("records"):
        good = row["status"] == "done" and math.isfinite(row["loss"])
        rows.append(
            (
                Cell(fmt.family(row["family"]), kind="tight"),
                Cell(_cut(row["shape"], 60), kind="tight"),
                Cell(str(row["seed"]), order=_order(row["seed"]), kind="num"),
                number(row["N"], fmt.count),
                number(row["N_embedding"], fmt.count),
                number(row["D"], fmt.count),
                _compute(row["C"]),
                number(row["loss"], lambda x: fmt.loss(x, 4)),
                number(row["loss_se"], lambda x: fmt.significant(x, 2)),
                number(row["seconds"], fmt.duration),
                Cell(row["status"], kind="tight" if good else "tight bad"),
                Cell(row["key"][:10], kind="tight more"),
            )
        )
    caption = (
        f"All {len(rows)} runs"
        if not cut
        else f"What failed and the best, {MOST_ROWS} of {total} runs"
    )
    return Table(caption, heads, tuple(rows))


def _compute(x: float) -> Cell:
    return number(x, fmt.flops) if x > 0 else Cell("none", order=0.0, kind="num")


def _order(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def held_out(story: Analysis) -> Table | None:
    """The held-out configurations: predicted, measured, error, covered."""
    several = len(story.families) > 1
    rows = []
    for family in story.families:
        for held in family.held_out:
            c = held.configuration
            inside = "inside" if held.covered else "outside"
            rows.append(
                (
                    *((Cell(fmt.family(family.name), kind="tight"),) if several else ()),
                    number(c.N, fmt.count),
                    number(c.D, fmt.count),
                    number(c.C, fmt.flops),
                    estimate(held.predicted, fmt.loss),
                    Cell(fmt.loss(c.loss.value), more=_spread(c), kind="num"),
                    Cell(f"{100 * held.error:+.2f} %".replace("-", "−"), kind="num"),
                    Cell(inside, kind="tight good" if held.covered else "tight bad"),
                )
            )
    if not rows:
        return None
    heads = (
        *((Head("Family"),) if several else ()),
        Head("N", "parameters", "num"),
        Head("D", plural(story.token), "num"),
        Head("Compute", kind="num"),
        Head("Predicted loss", "with 95 % interval", "num"),
        Head("Measured loss", "± s.e. between seeds", "num"),
        Head("Error", "of the prediction", "num"),
        Head("Interval"),
    )
    return Table("Held-out sizes, predicted by the law fitted without them", heads, tuple(rows))


def _spread(c: Configuration) -> str:
    return "(one seed)" if c.spread is None else f"± {fmt.significant(c.spread, 2)}"


def families(story: Analysis) -> Table | None:
    """The best of every family side by side; nothing to compare with one family alone."""
    bests = [f.best for f in story.families] + list(story.counted)
    if len(story.families) < 2:
        return None
    heads = (
        Head("Family", kind="tight"),
        Head("Best shape", kind="tight"),
        Head("N", "parameters or counts", "num"),
        Head("Compute", kind="num"),
        Head("Loss", f"{story.unit}, 95 % interval", "num"),
        Head("10× compute", "by its law, 95 % interval", "num"),
    )
    ten = {f.name: r.loss for f in story.families for r in f.reaches if r.label == "10×"}
    rows = tuple(
        (
            Cell(fmt.family(c.family), kind="tight"),
            Cell(_cut(c.shape, 60), kind="tight"),
            number(c.N, fmt.count),
            _compute(c.C),
            estimate(c.loss, fmt.loss),
            estimate(ten.get(c.family), fmt.loss),
        )
        for c in sorted(bests, key=lambda c: c.loss.value)
    )
    return Table("The best of each family at this budget, lowest loss first", heads, rows)


def reaches(story: Analysis) -> Table | None:
    """What larger budgets would reach."""
    several = len(story.families) > 1
    rows = []
    for family in story.families:
        for r in family.reaches:
            passes = "—" if r.passes is None else fmt.significant(r.passes, 2)
            rows.append(
                (
                    *((Cell(fmt.family(family.name), kind="tight"),) if several else ()),
                    Cell(r.label, kind="tight"),
                    Cell(fmt.flops(r.C), kind="num"),
                    estimate(r.loss, fmt.loss),
                    _planned(r.N),
                    _planned(r.D),
                    Cell(passes, kind="num bad" if r.repeats else "num"),
                )
            )
    if not rows:
        return None
    heads = (
        *((Head("Family"),) if several else ()),
        Head("Budget", "of the largest run"),
        Head("Compute", kind="num"),
        Head("Loss", f"{story.unit}, 95 % interval", "num"),
        Head("N", "parameters", "num"),
        Head("D", plural(story.token), "num"),
        Head("Passes", "over the data", "num"),
    )
    return Table(
        "What larger budgets would reach, by the law of all finished runs", heads, tuple(rows)
    )


def _planned(x: Estimate | None) -> Cell:
    """A planned size, whose lack of an interval is explained by where it comes from."""
    if x is not None and not identified(x):
        return Cell(fmt.UNKNOWN, order="", kind="num")
    if x is None or x.lo is not None or not math.isfinite(x.value):
        return estimate(x, fmt.count)
    how = "on path" if "path" in x.method else "trend" if "trend" in x.method else "no interval"
    return Cell(fmt.count(x.value), more=f"({how})", kind="num")


def failed(story: Analysis) -> Table:
    """Runs that diverged or failed, with the reason."""
    heads = (
        Head("Family"),
        Head("Shape"),
        Head("Seed", kind="num"),
        Head("N", "parameters", "num"),
        Head("Status"),
        Head("Reason"),
    )
    rows = tuple(
        (
            Cell(fmt.family(u.family), kind="tight"),
            Cell(u.shape),
            Cell(str(u.seed), kind="num"),
            number(u.N, fmt.count),
            Cell(u.status, kind="tight bad"),
            Cell(_cut(u.error, 600), kind="wide-text"),
        )
        for u in story.unfinished[:MOST_ROWS]
    )
    return Table("Runs without a result", heads, rows)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def samples(study: RunsLike, story: Analysis) -> tuple[Sample, ...]:
    """One piece of text for each configuration that gave one, smallest first."""
    texts = study.samples()
    frame = finished(table(study))
    frame = frame[frame["key"].isin(list(texts))].sort_values(["N", "D"], kind="stable")
    # Several seeds or amounts of data at one size would say the same thing again.
    frame = frame.drop_duplicates(["family", "N"], keep="last")
    if len(frame) > MOST_SAMPLES:
        frame = frame.iloc[np.linspace(0, len(frame) - 1, MOST_SAMPLES).round().astype(int)]
    trained = {f.name for f in story.families}
    frame = frame.assign(later=~frame["family"].isin(trained))
    frame = frame.sort_values(["later", "family", "N"], kind="stable")
    made = []
    for row in frame.to_dict("records"):
        kept = "counts" if row["later"] else "parameters"
        title = f"{fmt.family(row['family'])}, {fmt.count(row['N'])} {kept}"
        under = f"{row['shape']} · {fmt.loss(row['loss'])} {story.unit}"
        made.append(Sample(title, under, _cut(texts[row["key"]], SAMPLE_LENGTH)))
    return tuple(made)


_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}


def laws(story: Analysis) -> tuple[LawTable, ...]:
    """Each family's law: parameters with intervals, on all runs and without the held-out ones."""
    return tuple(
        law_table(family.law, family.law_without, fmt.family(family.name))
        for family in story.families
        if family.law is not None
    )


def law_table(law: Law, without: Law | None = None, name: str = "law") -> LawTable:
    """A law's parameters with intervals, beside those of the law fitted without some sizes."""
    compare = without is not None and set(without.params) == set(law.params)
    heads = [Head("Parameter"), Head("All runs" if compare else "Value", "95 % interval", "num")]
    heads += [Head("Without the held-out", "95 % interval", "num")] if compare else []
    rows = []
    for letter, value in law.params.items():
        cells = [Cell(_equation(letter)), estimate(value, _parameter)]
        if compare and without is not None:
            cells.append(estimate(without.params[letter], _parameter))
        rows.append(tuple(cells))
    warnings = list(law.warnings)
    if without is not None and without.shape.equation != law.shape.equation:
        warnings.append(
            "Without the held-out sizes another form was chosen: "
            f"{_equation(without.shape.equation)}."
        )
    caption = f"Fitted to {fmt.several(law.n, 'run')}. {law.why}"
    title = f"{name[:1].upper()}{name[1:]}: {law.form}"
    table = Table(caption, tuple(heads), tuple(rows))
    return LawTable(title, _equation(law.shape.equation), table, tuple(warnings))


def _equation(text: str) -> str:
    for name, letter in _GREEK.items():
        text = text.replace(name, letter)
    return text


def _parameter(x: float) -> str:
    if x != 0 and not 1e-3 <= abs(x) < 1e5:
        return fmt.power_of_ten(x, 3)
    return fmt.significant(x, 3, trim=False)
