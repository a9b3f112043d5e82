"""`allometry schema`."""

from typing import Annotated

import typer

from allometry._core.errors import require
from allometry.cli.console import out, write_json
from allometry.cli.schemas import SCHEMAS
from allometry.cli.schemas import schema as schema_of


def schema(
    name: Annotated[
        str | None, typer.Argument(help="A command, or error. Default: list the names.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the names as JSON.")] = False,
) -> None:
    """Print the JSON schema of what a command prints with --json."""
    if name is not None:
        require(name in SCHEMAS, "name", f"be one of {', '.join(SCHEMAS)}", name)
        write_json(schema_of(name))
    elif json:
        write_json({name: title for name, (title, _) in SCHEMAS.items()})
    else:
        for each, (title, _) in SCHEMAS.items():
            out.print(f"{each:<10} {title}", markup=False)
