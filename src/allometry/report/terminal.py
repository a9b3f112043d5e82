"""The story on a terminal: tables and sentences that `rich` prints."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from allometry.laws import Design, Law, Plan
from allometry.report import formatting as fmt
from allometry.report import likelihood_units, plan_cells, tables
from allometry.report.analysis import Analysis
from allometry.report.prose import doubts, trust
from allometry.report.run_groups import RunsLike
from allometry.report.tables import Cell, Table

MOST_NOTES = 5
"""Doubts shown on a terminal; the page has them all."""
_STYLES = {"good": "green", "bad": "red", "more": "dim"}


def drawn(table: Table, most: int | None = None) -> RenderableType:
    """A table of the story as `rich` draws it, cut at `most` rows."""
    made = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    shown = [i for i, head in enumerate(table.heads) if not head.minor]
    for i in shown:
        head = table.heads[i]
        right = "num" in head.kind.split()
        made.add_column(
            Text(f"{head.text}\n{head.unit}" if head.unit else head.text),
            justify="right" if right else "left",
            no_wrap=right or "tight" in head.kind.split(),
        )
    rows = table.rows if most is None else table.rows[:most]
    for row in rows:
        made.add_row(*(_text(row[i]) for i in shown))
    parts: list[RenderableType] = [Text(table.caption, style="bold"), made]
    if len(rows) < len(table.rows):
        parts.append(Text(f"and {len(table.rows) - len(rows)} more", style="dim"))
    return Group(*parts)


def _text(cell: Cell) -> Text:
    # Text, not markup: names and errors come from outside and may hold brackets.
    style = next((_STYLES[k] for k in cell.kind.split() if k in _STYLES), "")
    text = Text(cell.text, style=style)
    if cell.more:
        text.append(f" {cell.more}", style="dim")
    return text


def runs_table(
    runs: RunsLike, story: Analysis | None = None, most: int | None = 40
) -> RenderableType:
    """The table of runs, best first."""
    return drawn(tables.runs(runs, story), most)


def law_table(law: Law) -> RenderableType:
    """A law's parameters with their intervals, and its doubts."""
    made = tables.law_table(law)
    found = f"{law.starts.agree} of {law.starts.tried} starts agree on this fit."
    said = Text(f"{law.backtest.words()} {found}", style="dim")
    equation = Text(made.equation, style="italic")
    return Group(drawn(made.table), equation, said, *_warned(made.warnings))


def plan_table(plan: Plan, unit: str = "nats", token: str = "token") -> RenderableType:
    """A plan: size, data and loss with their intervals, and what to doubt about it."""
    return Group(drawn(plan_cells.table(plan, unit, token)), *_warned(tuple(plan.warnings)))


def design_table(design: Design) -> RenderableType:
    """The next runs in order of worth, and what the interval becomes after each."""
    heads = (
        tables.Head("N", kind="num"),
        tables.Head("D", kind="num"),
        tables.Head("FLOPs", kind="num"),
        tables.Head("interval after", kind="num"),
    )
    rows = tuple(
        (
            Cell("" if run.N is None else fmt.count(run.N)),
            Cell("" if run.D is None else fmt.count(run.D)),
            Cell(f"{run.compute:.3g}"),
            Cell(f"{run.width:.2%} of the loss"),
        )
        for run in design.runs
    )
    said = f"The interval is now {design.now:.2%} of the loss wide"
    if not rows:
        return Text(f"{said}; no run within the budget would narrow it. {design.why}")
    said += f", and {design.after:.2%} after these runs for {fmt.flops(design.spent)}."
    return Group(drawn(tables.Table("Next runs", heads, rows)), Text(f"{said} {design.why}"))


def closing(story: Analysis) -> RenderableType:
    """The headline, how well the largest sizes were predicted, and what larger budgets reach."""
    parts: list[RenderableType] = [Text(story.headline, style="bold")]
    parts += [Text(trust(f, len(story.families) > 1)) for f in story.families]
    for finding in story.findings:
        parts += [Text(said) for said in finding.words]
        parts += [Padding(drawn(table), (1, 0, 0, 0)) for table in finding.tables]
    for table in (tables.reaches(story), likelihood_units.table(story)):
        parts += [Padding(drawn(table), (1, 0, 0, 0))] if table is not None else []
    if story.unfinished:
        count = fmt.several(len(story.unfinished), "run")
        parts.append(Text(f"{count} did not finish and entered no fit.", style="red"))
    notes = doubts(story)
    said = _warned(tuple(notes[:MOST_NOTES]))
    if len(notes) > MOST_NOTES:
        said.append(Text(f"and {len(notes) - MOST_NOTES} more in the report", style="dim"))
    return Group(*parts, *said)


def _warned(sentences: tuple[str, ...]) -> list[Text]:
    return [Text(f"! {sentence}", style="yellow") for sentence in sentences]
