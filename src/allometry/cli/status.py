"""`allometry status`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.output import out, say, write_json


def status(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """How far a study is: what is done, what failed, who is at work."""
    from allometry.report import terminal
    from allometry.study import Runs
    from allometry.study.lock import holder

    runs = Runs(folder)
    state = runs.state() | {"at_work": holder(runs.folder)}
    if json:
        write_json(state)
        return
    out.print(terminal.runs_table(runs))
    words = f"{state['done']} done, {state['failed']} failed, {state['diverged']} diverged, "
    words += f"{state['waiting']} waiting"
    say(f"{words}; {state['at_work'] or 'nobody'} is at work.")
