"""Options of laws in any variables, and what `fit`, `plan` and `next` do with them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry.cli.console import out, say, write_json

if TYPE_CHECKING:
    from allometry.laws import VariableLaw

X = Annotated[
    list[str] | None,
    typer.Option(
        "--x",
        help="Column that the law depends on: any number, or labels of groups. Repeat the option "
        "for several; the law is then in these columns. N=params names the variable of a "
        "published form.",
    ),
]
Y = Annotated[str | None, typer.Option("--y", help="Column to predict, with --x. Default: loss.")]
Cost = Annotated[
    str | None,
    typer.Option(help="Column of the cost, or an expression such as '6*N*D', with --x."),
]
Role = Annotated[
    list[str] | None,
    typer.Option(
        help="Role of a column as name=role, with --x: scale, tuned, share, bits, fraction or "
        "group. Default: guessed from names and values."
    ),
]


def is_wanted(x: list[str] | None, form: str) -> bool:
    """Whether a law in any variables is asked for: by columns, or by an expression."""
    return bool(x) or any(mark in form for mark in "+-*/^(")


def pairs(texts: list[str] | None, option: str, example: str) -> dict[str, str]:
    """Options of the shape name=value as a mapping."""
    from allometry import InputError

    found = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise InputError(f"{option} must be such as {example}; got {text!r}.")
        found[name.strip()] = value.strip()
    return found


def fitted(
    runs: Path,
    form: str,
    x: list[str] | None,
    y: str | None,
    cost: str | None,
    role: list[str] | None,
    where: list[str] | None,
    sql: str | None,
    delta: float | None,
    seed: int,
) -> "VariableLaw":
    """The law of a table in the columns of --x, or in those that the expression names."""
    from allometry.laws.multivariate.fitting import fit_variables
    from allometry.runs.importers.raw_columns import load_columns

    columns = load_columns(runs, where=where or (), sql=sql)
    return fit_variables(
        columns,
        form,
        variables=_variables(x or [], columns) or None,
        response=y or "loss",
        cost=cost,
        roles=pairs(role, "--role", "'lr=tuned'"),
        seed=seed,
        delta=delta,
    )


def _variables(x: list[str], columns: dict[str, Any]) -> "list[str] | dict[str, str]":
    """The columns, or for a published form its variables with their columns: N=params."""
    if x and all("=" in text and text not in columns for text in x):
        return pairs(x, "--x", "'N=params'")
    return x


def show(law: "VariableLaw", report: Path | None, save: Path | None, json: bool) -> None:
    """Print a law, or write it to files."""
    from allometry.report import variable_tables

    if report is not None:
        say(f"Charts: {variable_tables.write_page(report, law)}")
    if save is not None:
        say(f"Law: {law.save(save)}")
    if json:
        write_json(law.to_dict())
        return
    from rich.text import Text

    from allometry.report.terminal import drawn

    out.print(drawn(variable_tables.parameters(law)))
    out.print(Text(f"{law.table.response} = {law.equation}", style="italic"))
    out.print(Text(f"{variable_tables.backtest(law)} {variable_tables.roles(law)}", style="dim"))
    for sentence in law.warnings:
        say(f"! {sentence}")


def values_of(texts: list[str] | None, option: str) -> dict[str, Any]:
    """Values of columns from name=value; numbers may have suffixes, as in N=7B."""
    from allometry.runs.importers import number

    out: dict[str, Any] = {}
    for name, text in pairs(texts, option, "'N=7e9'").items():
        value = number(text)
        out[name] = value if value == value else text
    return out


def planned(law: "VariableLaw", budget: float | None, at: list[str] | None, json: bool) -> None:
    """Print the best values of the variables that are not given, within a budget."""
    from allometry.report.terminal import drawn
    from allometry.report.variable_tables import optimum_table

    fixed = values_of(at, "--at")
    over = [name for name in law.table.names if name not in fixed]
    found = law.optimum(over, budget=budget, **fixed)
    if json:
        write_json(found.to_dict())
        return
    out.print(drawn(optimum_table(found, law.table.response)))
    for sentence in (*found.warnings, *law.warnings):
        say(f"! {sentence}")


def target_of(texts: list[str]) -> dict[str, Any]:
    """The rows to predict: a table's file, or one row of name=value."""
    from allometry.runs.importers.raw_columns import load_columns

    if len(texts) == 1 and "=" not in texts[0]:
        return load_columns(texts[0])
    return {name: [value] for name, value in values_of(texts, "--target").items()}
