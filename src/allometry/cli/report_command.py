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
            help="The HTML file. Default: FOLDER/report.html, or ./NAME-report.html if FOLDER is "
            "read-only.",
        ),
    ] = None,
) -> None:
    """Write the report of a finished or unfinished study as one HTML file."""
    from allometry.report import write
    from allometry.runs import Runs

    runs = Runs(folder)
    path = output or folder / "report.html"
    if output is None and not os.access(folder, os.W_OK):
        path = Path(f"{folder.resolve().name}-report.html")
        say(f"{folder} is read-only, so the report goes to the working folder.")
    say(f"Report: {write(path, runs)}")
