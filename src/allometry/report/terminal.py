"""The analysis on a terminal: tables and sentences that `rich` prints."""

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from allometry.laws import Law, Plan
from allometry.laws.hardware import Hardware
from allometry.report import formatting as fmt
from allometry.report import likelihood_units, plan_cells, plan_cost_cells, tables
from allometry.report.analysis import Analysis
from allometry.report.cells import Cell, Table
from allometry.report.prose import doubts, trust
from allometry.report.run_groups import RunsLike

if TYPE_CHECKING:  # a fit needs neither
    from allometry.laws import Design, RecipeComparison

MOST_NOTES = 5
"""Notes shown on a terminal; the page has them all."""
_STYLES = {"good": "green", "bad": "red", "more": "dim"}


def drawn(table: Table, most: int | None = None) -> RenderableType:
    """The table for `rich`, cut at `most` rows."""
    rich_table = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    shown = [i for i, head in enumerate(table.heads) if not head.minor]
    for i in shown:
        head = table.heads[i]
        right = "num" in head.kind.split()
        rich_table.add_column(
            Text(f"{head.text}\n{head.unit}" if head.unit else head.text),
            justify="right" if right else "left",
            no_wrap=right or "tight" in head.kind.split(),
        )
    rows = table.rows if most is None else table.rows[:most]
    for row in rows:
        rich_table.add_row(*(_text(row[i]) for i in shown))
    parts: list[RenderableType] = [Text(table.caption, style="bold"), rich_table]
    if len(rows) < len(table.rows):
        parts.append(Text(f"and {len(table.rows) - len(rows)} more", style="dim"))
    return Group(*parts)


def _text(cell: Cell) -> Text:
    # Text, not markup: names and errors may contain brackets.
    style = next((_STYLES[k] for k in cell.kind.split() if k in _STYLES), "")
    text = Text(cell.text, style=style)
    if cell.more:
        text.append(f" {cell.more}", style="dim")
    return text


def runs_table(
    runs: RunsLike, analysis: Analysis | None = None, most: int | None = 40
) -> RenderableType:
    """The table of runs, best first."""
    return drawn(tables.runs(runs, analysis), most)


def law_table(law: Law) -> RenderableType:
    """A law's parameters with their intervals, its backtests and its warnings."""
    shown = tables.law_table(law)
    starts = f"{law.starts.agree} of {law.starts.tried} optimiser starts agree on this fit."
    notes = Text(f"{law.backtest.words()} {starts}", style="dim")
    equation = Text(shown.equation.replace(" · ", "\n"), style="italic")
    return Group(drawn(shown.table), equation, notes, *_warnings(shown.warnings))


def plan_table(plan: Plan, unit: str = "nats", token: str = "token") -> RenderableType:
    """A plan: size, data and loss with their intervals, and its warnings."""
    return Group(drawn(plan_cells.table(plan, unit, token)), *_warnings(tuple(plan.warnings)))


def design_table(
    design: "Design", budget: float, hardware: Hardware | None = None
) -> RenderableType:
    """The next runs in order of benefit, with the width of the interval after each."""
    text = Text(plan_cost_cells.next_sentence(design, budget, hardware))
    table = plan_cost_cells.next_table(design, hardware)
    return text if table is None else Group(drawn(replace(table, caption="Next runs")), text)


def comparison_table(found: "RecipeComparison") -> RenderableType:
    """The verdict, every rival against the leader, and warnings."""
    from allometry.report import comparison

    verdict = Text(found.verdict, style="bold")
    return Group(verdict, drawn(comparison.table(found)), *_warnings(found.warnings))


def closing(analysis: Analysis) -> RenderableType:
    """The headline, the test on held-out sizes, larger budgets, other units and notes."""
    parts: list[RenderableType] = [Text(analysis.headline, style="bold")]
    parts += [Text(trust(f, len(analysis.families) > 1)) for f in analysis.families]
    for finding in analysis.findings:
        parts += [Text(sentence) for sentence in finding.words]
        parts += [Padding(drawn(table), (1, 0, 0, 0)) for table in finding.tables]
    for table in (tables.reaches(analysis), likelihood_units.table(analysis)):
        parts += [Padding(drawn(table), (1, 0, 0, 0))] if table is not None else []
    if analysis.unfinished:
        count = fmt.several(len(analysis.unfinished), "run")
        verb = "enters" if len(analysis.unfinished) == 1 else "enter"
        parts.append(Text(f"{count} did not finish and {verb} no fit.", style="red"))
    notes = doubts(analysis)
    parts += _warnings(tuple(notes[:MOST_NOTES]))
    if len(notes) > MOST_NOTES:
        parts.append(Text(f"and {len(notes) - MOST_NOTES} more in the report", style="dim"))
    return Group(*parts)


def _warnings(sentences: tuple[str, ...]) -> list[Text]:
    return [Text(f"! {sentence}", style="yellow") for sentence in sentences]
