"""`allometry report`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.output import say


def report(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; FOLDER/report.html.")
    ] = None,
) -> None:
    """Write the report of a study, finished or not, as one HTML file."""
    from allometry import report as room
    from allometry.study import Runs

    path = room.write(output or folder / "report.html", Runs(folder))
    say(f"Report: {path}")
