"""Options of reading runs that `fit`, `plan` and `next` share, and what a plan needs of them."""

from typing import TYPE_CHECKING, Annotated

import typer

from allometry._core.errors import InputError

if TYPE_CHECKING:
    from allometry.runs.importers import Imported

NFrom = Annotated[
    str | None,
    typer.Option("--n-from", help="Parameters from columns, such as '12*depth*width^2'."),
]
DFrom = Annotated[
    str | None, typer.Option("--d-from", help="Tokens from columns, such as 'step*524288'.")
]
Config = Annotated[
    str | None,
    typer.Option(help="YAML, TOML, JSON or CSV file with further settings of the runs."),
]
Sql = Annotated[
    str | None, typer.Option(help="Query of the runs, if RUNS is a SQLite or DuckDB database.")
]
Rows = Annotated[
    str,
    typer.Option(
        help="What a row is: runs, or points along trainings. Default: auto, recognised by run "
        "names, steps and sizes."
    ),
]
LossUnit = Annotated[
    str | None,
    typer.Option(help="Unit of the loss: nats, bits or perplexity. Default: by its name."),
]


def require_several_runs(imported: "Imported", command: str) -> None:
    """Refuse to plan from the learning curve of one run, or from data counted in steps."""
    if imported.rows == "points":
        count = len(imported.columns["loss"])
        raise InputError(
            f"{command} must be given several runs of different size; got {count} evaluations of "
            "one run. Add the logs of at least three runs, better five sizes and three lengths "
            "(`fit` fits the learning curve)."
        )
    if imported.counted_in != "tokens" and "N" in imported.columns:
        raise InputError(
            f"{command} must know the number of tokens; got D counted in {imported.counted_in}. "
            "Give it with --d, or --d-from 'step*batch_size*sequence_length'."
        )
