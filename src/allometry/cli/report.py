"""`allometry report`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.console import say


def report(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file; FOLDER/report.html, or ./NAME-report.html where FOLDER is read-only.",
        ),
    ] = None,
) -> None:
    """Write the report of a study, finished or not, as one HTML file."""
    from allometry import report as room
    from allometry.study import Runs

    runs = Runs(folder)
    place = output or folder / "report.html"
    if output is None and not os.access(folder, os.W_OK):
        place = Path(f"{folder.resolve().name}-report.html")
        say(f"{folder} can't be written to, so the report goes to the working folder.")
    path = room.write(place, runs)
    say(f"Report: {path}")
