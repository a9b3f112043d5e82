import io

from rich.console import Console

from allometry.report import terminal
from tests.report.synthetic import analysis, synthetic_runs


def printed(renderable, width=110):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


def test_the_closing_words_are_the_headline():
    text = " ".join(printed(terminal.closing(analysis()), 10_000).split())
    assert text.startswith(analysis().headline)
    assert "The two largest sizes were predicted" in text
    assert "2 runs did not finish and enter no fit." in text


def test_the_table_of_runs_is_cut_and_says_so():
    runs = synthetic_runs()
    text = printed(terminal.runs_table(runs, analysis(), most=5))
    assert "and 13 more" in text
    assert text.index("order 7") < text.index("7 layers")


def test_names_with_brackets_are_not_markup():
    runs = synthetic_runs()
    table = runs.table.assign(shape="[bold]x[/bold]")
    runs.table["shape"] = table["shape"]
    assert "[bold]x[/bold]" in printed(terminal.runs_table(runs, analysis()))


def test_a_law_and_a_plan_show_their_intervals_and_doubts():
    law = analysis().families[0].law
    text = printed(terminal.law_table(law))
    assert "α" in text
    assert f"Fitted to {law.n} runs" in text
    plan = law.plan(compute=1e15)
    text = printed(terminal.plan_table(plan, "nats per character", "character"), 200)
    assert "with 1 PFLOP" in text
    assert "nats per character (95 % interval" in text
    far = law.plan(compute=1e25)
    assert far.warnings[-1] in printed(terminal.plan_table(far), 400)
