"""`allometry demo`."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[Path, typer.Option("--folder", "-o", help="Where runs and report go.")] = (
        Path("demo")
    ),
    workers: Annotated[int | None, typer.Option(help="Processes; one per core.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what it costs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """The embedded job, end to end, with a report: a few minutes on two cores."""
    from allometry.cli.run import carry_out, claimed
    from allometry.study import demo_study, local

    with claimed(folder, dry_run=dry_run):
        carry_out(demo_study(), folder, local(workers), dry_run=dry_run, json=json)
