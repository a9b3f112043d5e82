"""Tables and the page of a law in any variables."""

import math
from html import escape
from pathlib import Path
from typing import Any

from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write
from allometry.laws import PoolDesign, Replay, VariableLaw
from allometry.report import formatting as fmt
from allometry.report import notebook_charts, page_template, theme
from allometry.report.cells import Cell, Head, Table, estimate
from allometry.report.law_page import Figure


def parameters(law: VariableLaw) -> Table:
    """The parameters of the form with the largest weight."""
    rows = tuple((Cell(k), estimate(v, fmt.significant)) for k, v in law.params.items())
    heads = (Head("Parameter"), Head("Value", "95 % interval", "num"))
    return Table(f"Fitted to {fmt.several(law.n, 'run')}. {law.why}", heads, rows)


def backtest(law: VariableLaw) -> str:
    """What the backtests found, in a sentence."""
    found = law.backtest
    if not found["folds"]:
        return "The runs are too few to backtest the law."
    return (
        f"In {found['folds']} backtests on larger runs the mean error was {found['error']:.2%}, "
        f"and 95 % intervals covered {found['coverage']:.0%} of the runs."
    )


def roles(law: VariableLaw) -> str:
    """The variables with their roles, in a sentence."""
    return "Roles: " + ", ".join(f"{name} {role}" for name, role in law.roles.items()) + "."


def optimum_table(found: Any, response: str) -> Table:
    """The best values with intervals, and what half and twice of each gives up."""
    heads = (
        Head("Variable"),
        Head("Best", "95 % interval", "num"),
        Head("At half", kind="num"),
        Head("At twice", kind="num"),
    )

    def shown(value: float | None) -> Cell:
        fine = value is not None and math.isfinite(value)
        return Cell(f"{value:+.2%}" if fine else "—", kind="num")

    rows = []
    for name, value in found.at.items():
        half, twice = found.given_up.get(name, (None, None))
        rows.append((Cell(name), _value(value), shown(half), shown(twice)))
    rows.append((Cell(response), _value(found.response), Cell(""), Cell("")))
    return Table("", heads, tuple(rows))


def _value(value: Estimate) -> Cell:
    big = abs(value.value) >= 1e5 or 0 < abs(value.value) < 1e-3
    return estimate(value, (lambda x: f"{x:.3g}") if big else fmt.significant)


def design_table(design: PoolDesign, pool: dict[str, Any], variables: list[str]) -> Table:
    """The rows of a pool to run next, in order."""
    heads = (
        Head("Row", kind="num"),
        *(Head(name, kind="num") for name in variables),
        Head("Cost", kind="num"),
        Head("Interval after", kind="num"),
    )
    rows = []
    for row, cost, width in zip(design.rows, design.costs, design.widths, strict=True):
        values = (_cell(pool[name][row]) for name in variables)
        rows.append((Cell(str(row + 1)), *values, _cell(cost), Cell(f"± {width:.2%}")))
    return Table("Next runs", heads, tuple(rows))


def _cell(value: Any) -> Cell:
    return Cell(value if isinstance(value, str) else f"{value:.4g}", kind="num")


def replay_table(found: Replay) -> Table:
    """The steps of a simulated campaign."""
    heads = (
        Head("Cost", "share", "num"),
        Head("Runs", kind="num"),
        Head("Error", "at the targets", "num"),
        Head("Interval", kind="num"),
        Head("Covered", kind="num"),
        Head("R2", kind="num"),
    )
    rows = tuple(
        (
            Cell(f"{step.share:.1%}"),
            Cell(str(step.runs)),
            Cell(f"{step.error:.2%}"),
            Cell(f"± {step.width:.2%}"),
            Cell(f"{step.coverage:.0%}"),
            Cell(f"{step.r2:.3f}" if math.isfinite(step.r2) else "—"),
        )
        for step in found.steps
    )
    return Table("Simulated campaign", heads, rows)


def write_page(path: Path | str, law: VariableLaw) -> Path:
    """Write one page with the law's numbers, warnings, partial effects and fit."""
    captions = {
        "effects": "The response along each variable, the others at their centre, with the 95 % "
        "interval of one more run.",
        "fit": "Measured against fitted response of every run.",
    }
    specs = {"effects": notebook_charts.effects(law), "fit": notebook_charts.predicted(law)}
    figures = [
        Figure(theme.inline(theme.svg(spec), name, escape(name)), captions[name])
        for name, spec in specs.items()
        if spec.get("concat") or spec.get("layer")
    ]
    page = page_template.fill(
        "law.html",
        script=("page.js",),
        title=f"Law of {law.table.response} in {', '.join(law.variables)}",
        why=law.why,
        equation=f"{law.table.response} = {law.equation}",
        table=parameters(law),
        backtest=f"{backtest(law)} {roles(law)}",
        warnings=law.warnings,
        plan=None,
        figures=figures,
        planner=None,
        live=None,
    )
    path = Path(path)
    with atomic_write(path) as file:
        file.write(page)
    return path
