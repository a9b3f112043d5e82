"""Tables of an analysis, for the page and the terminal alike."""

import math
from typing import Any

import numpy as np

from allometry._core.estimate import Estimate
from allometry.laws import Law
from allometry.laws.averages import carried, estimates
from allometry.laws.selection import display_name
from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.cells import Cell, Head, Table, estimate, number, shorten
from allometry.report.content import LawTable, Sample
from allometry.report.guards import identified
from allometry.report.prose import plural
from allometry.report.run_groups import Configuration, RunsLike, about, finished, table

MOST_ROWS = 1000
MOST_SAMPLES = 24
SAMPLE_LENGTH = 700


def runs(study: RunsLike, analysis: Analysis | None = None) -> Table:
    """Every run, sorted by loss; of very many, the failed ones and the best.

    Args:
        study: The runs.
        analysis: Their analysis, if known; without it units come from the study, and no law is
            fitted.
    """
    frame, total = table(study), len(study.frame())
    target = about(study).get("target") or {}
    unit = analysis.unit if analysis is not None else str(target.get("unit") or "nats")
    token = analysis.token if analysis is not None else target.get("token")
    token = str(token or unit.partition(" per ")[2] or "token")
    frame = frame.sort_values("loss", na_position="first", kind="stable")
    cut = len(frame) > MOST_ROWS
    if cut:
        # Failed runs come first here, so that only the worst of the finished ones are cut.
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
                Cell(shorten(row["shape"], 60), kind="tight"),
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
    caption = f"All {fmt.several(total, 'run')}" if total > 1 else "The run"
    if cut:
        caption = f"Failed runs and the best others, {MOST_ROWS} of {total} runs"
    return Table(caption, heads, tuple(rows))


def _compute(x: float) -> Cell:
    return number(x, fmt.flops) if x > 0 else Cell("none", order=0.0, kind="num")


def _order(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def held_out(analysis: Analysis) -> Table | None:
    """The held-out configurations: predicted and measured loss, error, coverage."""
    several = len(analysis.families) > 1
    rows = []
    for family in analysis.families:
        for test in family.held_out:
            c = test.configuration
            inside = "covers" if test.covered else "misses"
            rows.append(
                (
                    *((Cell(fmt.family(family.name), kind="tight"),) if several else ()),
                    number(c.N, fmt.count),
                    number(c.D, fmt.count),
                    number(c.C, fmt.flops),
                    estimate(test.predicted, fmt.loss),
                    Cell(fmt.loss(c.loss.value), more=_spread(c), kind="num"),
                    Cell(f"{100 * test.error:+.2f} %".replace("-", "−"), kind="num"),
                    Cell(inside, kind="tight good" if test.covered else "tight bad"),
                )
            )
    if not rows:
        return None
    heads = (
        *((Head("Family"),) if several else ()),
        Head("N", "parameters", "num"),
        Head("D", plural(analysis.token), "num"),
        Head("Compute", kind="num"),
        Head("Predicted loss", "with 95 % interval", "num"),
        Head("Measured loss", "± s.e. between seeds", "num"),
        Head("Error", "of the prediction", "num"),
        Head("95 % interval"),
    )
    return Table(
        "Held-out sizes, predicted by the scaling law fitted without them", heads, tuple(rows)
    )


def _spread(c: Configuration) -> str:
    return "(one seed)" if c.spread is None else f"± {fmt.significant(c.spread, 2)}"


def families(analysis: Analysis) -> Table | None:
    """The best of every family side by side; `None` with fewer than two trained families."""
    bests = [f.best for f in analysis.families] + list(analysis.counted)
    if len(analysis.families) < 2:
        return None
    heads = (
        Head("Family", kind="tight"),
        Head("Best shape", kind="tight"),
        Head("N", "parameters or counts", "num"),
        Head("Compute", kind="num"),
        Head("Loss", f"{analysis.unit}, 95 % interval", "num"),
        Head("10× compute", "predicted, 95 % interval", "num"),
    )
    ten = {f.name: r.loss for f in analysis.families for r in f.reaches if r.label == "10×"}
    rows = tuple(
        (
            Cell(fmt.family(c.family), kind="tight"),
            Cell(shorten(c.shape, 60), kind="tight"),
            number(c.N, fmt.count),
            _compute(c.C),
            estimate(c.loss, fmt.loss),
            estimate(ten.get(c.family), fmt.loss),
        )
        for c in sorted(bests, key=lambda c: c.loss.value)
    )
    return Table("The best run of each family, lowest loss first", heads, rows)


def reaches(analysis: Analysis) -> Table | None:
    """Predictions for larger budgets."""
    several = len(analysis.families) > 1
    rows = []
    for family in analysis.families:
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
        Head("Budget", "relative to the largest run"),
        Head("Compute", kind="num"),
        Head("Loss", f"{analysis.unit}, 95 % interval", "num"),
        Head("N", "parameters", "num"),
        Head("D", plural(analysis.token), "num"),
        Head("Passes", "over the data", "num"),
    )
    return Table(
        "Predictions for larger budgets, by the scaling law of all finished runs",
        heads,
        tuple(rows),
    )


def _planned(x: Estimate | None) -> Cell:
    """A planned size or amount of data; without an interval, the cell says where it comes from."""
    if x is not None and not identified(x):
        return Cell(fmt.UNKNOWN, order="", kind="num")
    if x is None or x.lo is not None or not math.isfinite(x.value):
        return estimate(x, fmt.count)
    how = "on path" if "path" in x.method else "trend" if "trend" in x.method else "no interval"
    return Cell(fmt.count(x.value), more=f"({how})", kind="num")


def failed(analysis: Analysis) -> Table:
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
            Cell(shorten(u.error, 600), kind="wide-text"),
        )
        for u in analysis.unfinished[:MOST_ROWS]
    )
    return Table("Runs that diverged or failed", heads, rows)


def samples(study: RunsLike, analysis: Analysis) -> tuple[Sample, ...]:
    """One generated text for each family and size that has one, smallest first."""
    texts = study.samples()
    frame = finished(table(study))
    frame = frame[frame["key"].isin(list(texts))].sort_values(["N", "D"], kind="stable")
    # Samples of other seeds or amounts of data at one size look alike.
    frame = frame.drop_duplicates(["family", "N"], keep="last")
    if len(frame) > MOST_SAMPLES:
        frame = frame.iloc[np.linspace(0, len(frame) - 1, MOST_SAMPLES).round().astype(int)]
    trained = {f.name for f in analysis.families}
    frame = frame.assign(baseline=~frame["family"].isin(trained))
    frame = frame.sort_values(["baseline", "family", "N"], kind="stable")
    found = []
    for row in frame.to_dict("records"):
        noun = "count" if row["baseline"] else "parameter"
        title = f"{fmt.family(row['family'])}, {fmt.many(row['N'], noun)}"
        under = f"{row['shape']} · {fmt.loss(row['loss'])} {analysis.unit}"
        found.append(Sample(title, under, shorten(texts[row["key"]], SAMPLE_LENGTH)))
    return tuple(found)


_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}


def laws(analysis: Analysis) -> tuple[LawTable, ...]:
    """The parameters of each family's law, fitted to all runs and without the held-out ones."""
    return tuple(
        law_table(family.law, family.law_without, fmt.family(family.name))
        for family in analysis.families
        if family.law is not None
    )


def law_table(law: Law, without: Law | None = None, name: str = "law") -> LawTable:
    """The parameters of a law, beside those of the law fitted without the held-out sizes."""
    if without is None and not carried(law.members):
        return _average_table(law, name)
    compare = without is not None and set(without.params) == set(law.params)
    heads = [Head("Parameter"), Head("All runs" if compare else "Value", "95 % interval", "num")]
    heads += [Head("Without held-out sizes", "95 % interval", "num")] if compare else []
    rows = []
    for letter, value in law.params.items():
        cells = [Cell(_equation(letter)), estimate(value, _parameter)]
        if compare and without is not None:
            cells.append(estimate(without.params[letter], _parameter))
        rows.append(tuple(cells))
    warnings = list(law.warnings)
    if without is not None and without.shape.equation != law.shape.equation:
        warnings.append(
            "Without the held-out sizes another form fits best: "
            f"{_equation(without.shape.equation)}."
        )
    caption = f"Fitted to {fmt.several(law.n, 'run')}. {law.why}"
    title = f"{name[:1].upper()}{name[1:]}: {law.form}"
    table = Table(caption, tuple(heads), tuple(rows))
    return LawTable(title, _equation(law.shape.equation), table, tuple(warnings))


def _average_table(law: Law, name: str) -> LawTable:
    """Each form of an average with its weight and its own parameters."""
    heads = (
        Head("Form"),
        Head("Weight", kind="num"),
        Head("Parameter"),
        Head("Value", "95 % interval", "num"),
    )
    rows = []
    for member in law.members:
        first = (Cell(display_name(member.form)), Cell(fmt.percent(member.weight)))
        for letter, value in estimates(member, law.n).items():
            rows.append((*first, Cell(_equation(letter)), estimate(value, _parameter)))
            first = (Cell(""), Cell(""))
    equations = [f"{display_name(m.form)}: {_equation(m.form.equation)}" for m in law.members]
    caption = f"Fitted to {fmt.several(law.n, 'run')}. {law.why}"
    title = f"{name[:1].upper()}{name[1:]}: average of {fmt.several(len(law.members), 'form')}"
    # A parameter belongs to its form: the average of forms has no E, A or alpha of its own.
    text = " · ".join(equations)
    return LawTable(title, text, Table(caption, heads, tuple(rows)), tuple(law.warnings))


def _equation(text: str) -> str:
    for name, letter in _GREEK.items():
        text = text.replace(name, letter)
    return text


def _parameter(x: float) -> str:
    if x != 0 and not 1e-3 <= abs(x) < 1e5:
        return fmt.power_of_ten(x, 3)
    return fmt.significant(x, 3, trim=False)
