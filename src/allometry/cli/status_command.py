"""`allometry status`."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry._core.errors import require
from allometry.cli.console import duration, out, say, write_json

if TYPE_CHECKING:
    from allometry.runs import Runs


def status(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh until no process is running the study.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between refreshes.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Show a study's progress: finished, failed and waiting runs, and the running process."""
    from allometry.report import terminal
    from allometry.runs import Runs

    require(0 < every < math.inf, "every", "be seconds above 0 and finite", every)
    require(not (watch and json), "json", "be asked for without --watch", "both")
    runs = Runs(folder)
    if watch:
        _watch(runs, every)
        return
    state = _state(runs)
    if json:
        write_json(state)
        return
    out.print(terminal.runs_table(runs))
    say(_sentence(state))


def _watch(runs: "Runs", every: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from allometry.report.progress import rungs

    with Live(console=out, auto_refresh=False) as live:
        while True:
            state = _state(runs)
            live.update(Group(rungs(runs.journal.latest()), Text(_sentence(state))), refresh=True)
            if state["at_work"] is None:
                return
            time.sleep(every)


def _state(runs: "Runs") -> dict[str, Any]:
    from allometry._core.process import available_cores
    from allometry.runs.lock import holder

    at_work = holder(runs.folder)
    return runs.state() | {"at_work": at_work, "seconds_left": runs.left(available_cores())}


def _sentence(state: dict[str, Any]) -> str:
    counts = (f"{state[name]} {name}" for name in ("done", "failed", "diverged", "waiting"))
    seconds = state["seconds_left"]
    left = f"; about {duration(seconds)} of work left" if seconds else ""
    return f"{', '.join(counts)}; {state['at_work'] or 'no process'} is running{left}."
