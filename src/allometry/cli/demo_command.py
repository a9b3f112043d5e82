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
    """Run the embedded text study end to end; takes one to two minutes on two cores."""
    from allometry._core.process import available_cores
    from allometry.cli.study_run import StudyRun
    from allometry.study.execute import child_processes

    if not dry_run and (workers is None or workers > 0):
        # Both this process and the workers need torch: import it at the same time.
        cores = available_cores()
        child_processes.warm_up(max(1, cores // (workers or cores)))
    from allometry.study import demo_study, local

    StudyRun(demo_study(), folder, local(workers), dry_run, json).execute()
