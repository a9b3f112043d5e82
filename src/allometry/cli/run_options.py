"""Options of reading runs that `fit`, `plan` and `next` share; a saved law in place of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry._core.errors import InputError

if TYPE_CHECKING:
    from allometry.laws import Law
    from allometry.runs.importers import Imported

NFrom = Annotated[
    str | None,
    typer.Option("--n-from", help="Parameters from columns, such as '12 * depth * width^2'."),
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
Remember = Annotated[
    bool,
    typer.Option(
        "--remember", help="Save the columns of this command in allometry.toml for the next time."
    ),
]

Save = Annotated[
    Path | None,
    typer.Option(help="Write the law to this JSON file; `fit`, `plan` and `next` read it."),
]

_FLAGS = {"N": "n", "D": "d", "C": "c", "unit": "loss-unit"}
"""Options by the name of the library's argument, if they differ."""


def saved_law(path: Path, **options: Any) -> "tuple[Law, Imported] | None":
    """The law in a file that `--save` or `law.save` wrote and its runs; `None` for other files.

    Args:
        path: What stands in place of runs.
        **options: Options of reading and fitting, which a fitted law does not take.
    """
    from allometry.laws.law_files import is_saved_law, load_with_facts

    if not is_saved_law(path):
        return None
    from allometry.laws import Law
    from allometry.runs.importers import Imported

    given = [name for name, value in options.items() if value not in (None, (), 0, "auto")]
    if given:
        flag = _FLAGS.get(given[0], given[0].replace("_", "-"))
        raise InputError(
            f"{path} must be given without --{flag}: it holds a fitted law. Fit the runs again to "
            "change it."
        )
    law, about = load_with_facts(path)
    if not isinstance(law, Law):
        raise InputError(
            f"{path} must be a law in N, D and C; got one in {', '.join(law.variables)}. Use it "
            "in Python: al.laws.load(path).optimum(over=[...])."
        )
    columns = {name: law.table.column(name) for name in ("loss", *sorted(law.table.given))}
    facts: dict[str, Any] = {k: v for k, v in about.items() if k in ("rows", "unit", "counted_in")}
    return law, Imported(columns, {"law": str(path)}, source="saved law", **facts)


def require_sizes(law: Any, command: str) -> None:
    """Refuse a law of an expression, which has no allocation of compute to N and D."""
    from allometry.laws import Law

    if not isinstance(law, Law):
        raise InputError(
            f"{command} must be given a form by name, such as chinchilla; got an expression in "
            f"{', '.join(law.variables)}. In Python its law has law.optimum(over=[...])."
        )
