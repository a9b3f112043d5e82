"""`allometry demo`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.run_command import DryRun, Json, Workers


def demo(
    folder: Annotated[Path, typer.Option("--folder", "-o", help="Folder of runs and report.")] = (
        Path("demo")
    ),
    workers: Workers = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Run the embedded text study end to end; takes a few minutes on two cores."""
    from allometry.cli.study_run import StudyRun
    from allometry.study import demo_study, local

    StudyRun(demo_study(), folder, local(workers), dry_run, json).execute()
