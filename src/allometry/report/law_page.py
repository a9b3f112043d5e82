"""The page of one scaling law: planner, numbers, warnings and charts. It loads nothing else."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, final

from allometry._core.files import atomic_write
from allometry.laws import Law, Plan
from allometry.report import formatting as fmt
from allometry.report import law_charts, page_template, plan_cells, theme
from allometry.report import planner_data as planning
from allometry.report.planner_data import NamedLaw, Question
from allometry.report.tables import law_table

_CAPTIONS = {
    "fit": "The runs, and the scaling law with its 95 % interval for one more run.",
    "residuals": "Residuals of the fit. A pattern here means that the form is wrong.",
    "isoflop": "Loss against size at equal compute. The minimum is the compute-optimal size.",
    "backtest": "Forms fitted to the smaller runs only, against the larger runs held out. The "
    "band is the noise and extrapolation error estimated from them.",
    "plan": "Loss against size at the plan's compute, and the plan's size with its interval.",
    "profile": "Profile likelihood of the irreducible loss. Values below the dashed line are in "
    "its 95 % interval.",
}


@final
@dataclass(frozen=True)
class Figure:
    """A drawn chart with its caption."""

    picture: str
    caption: str


def write(
    path: Path | str,
    law: Law,
    plan: Plan | None = None,
    *,
    source: str = "RUNS",
    question: Question | None = None,
    unit: str = "nats",
    token: str = "token",
) -> Path:
    """Write one page with the planner and the law's numbers, warnings and charts.

    Args:
        path: The HTML file.
        law: The law.
        plan: A plan to show; the planner begins with its budget.
        source: The runs, as the command that the planner prints names them.
        question: What the planner shows first. Default: the budget of `plan`.
        unit: Unit of the loss.
        token: Unit of the data.
    """
    named = NamedLaw(law, unit=unit, token=token)
    path = Path(path)
    with atomic_write(path) as file:
        file.write(render(named, plan, source=source, question=question))
    return path


def render(
    named: NamedLaw,
    plan: Plan | None = None,
    *,
    source: str = "RUNS",
    question: Question | None = None,
    live: dict[str, Any] | None = None,
) -> str:
    """The page as HTML.

    Args:
        named: The law with its units.
        plan: A plan to show.
        source: The runs, as the command that the planner prints names them.
        question: What the planner shows first. Default: the budget of `plan`.
        live: What the page of `allometry serve` needs; see `report.live_runs`.
    """
    law = named.law
    shown = law_table(law)
    question = question or Question(compute=None if plan is None else plan.compute)
    planner = planning.planner([named], question, source=source)
    scripts = ("page.js", *(planning.SCRIPTS if planner else ()), *(("live.js",) if live else ()))
    return page_template.fill(
        "law.html",
        planning.STYLE,
        script=scripts,
        connects=live is not None,
        title=f"Scaling law of {fmt.several(law.n, 'run')}",
        why=law.why,
        equation=shown.equation,
        table=shown.table,
        backtest=law.backtest.words(),
        warnings=plan.warnings if plan is not None else law.warnings,
        plan=None if plan is None else plan_cells.table(plan, named.unit, named.token),
        figures=[_figure(name, spec, law) for name, spec in law_charts.charts(law, plan).items()],
        planner=planner,
        live=live,
    )


def _figure(name: str, spec: theme.Spec, law: Law) -> Figure:
    caption = _CAPTIONS[name]
    if name == "plan" and law.allocation.backtested:
        caption += (
            " The curve is the law of all runs; the size comes from the runs near the "
            "compute-optimal frontier."
        )
    return Figure(theme.inline(theme.svg(spec), name, escape(name)), caption)
