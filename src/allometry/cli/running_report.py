"""Keep the page of a running study up to date, from the first loss to the report."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, final

from allometry._core.errors import AllometryError
from allometry.cli.console import duration

if TYPE_CHECKING:
    from allometry.cli.progress_bars import StudyProgress
    from allometry.report.running_page import RunSoFar
    from allometry.study import Event, Study

EVERY = 3.0
"""Seconds between two pages, at least."""

SHARE = 0.02
"""Largest share of the time for writing pages: the driver dispatches no run meanwhile."""


@final
class RunningReport:
    """Writes the page of a running study after its events.

    A finished report in the folder stays until its successor is written. A page that can't be
    written does not stop the study.

    Args:
        folder: The study's.
        study: It.
        progress: Knows the remaining time.
    """

    def __init__(self, folder: Path, study: "Study", progress: "StudyProgress") -> None:
        from allometry.report.running_page import replaceable

        self.path = folder / "report.html"
        self.study, self.progress = study, progress
        self.runs: dict[str, RunSoFar] = {}
        self.active, self.next = replaceable(self.path), 0.0

    def __call__(self, event: "Event") -> None:
        """Take note of one event, and write the page if it is time."""
        if not self.active:
            return
        run = self._run(event)
        if event.kind == "progress":
            run.add(event.data["step"] / max(1, event.data["steps"]), event.data["loss"])
        elif event.kind == "done":
            run.status, run.loss = "done", event.data["columns"].get("loss")
        elif event.kind == "failed":
            run.status = event.data.get("status", "failed")
        if event.kind != "started" and time.monotonic() >= self.next:
            self.write()

    def _run(self, event: "Event") -> "RunSoFar":
        from allometry.report.running_page import RunSoFar

        key = event.task.key
        if key not in self.runs or event.kind == "started":
            request = event.task.spec()
            columns, budget = request.columns, request.budget()
            names = (str(columns.get(name, "")) for name in ("family", "shape"))
            family, shape = names
            seed = columns.get("seed", 0)
            self.runs[key] = RunSoFar(family, shape, seed, float(budget.N), float(budget.D))
        return self.runs[key]

    def write(self, *, stopped: bool = False) -> None:
        """Write the page."""
        from allometry.report import running_page

        if not self.active or not self.runs:
            return
        about = self.study.target.describe()
        started = time.monotonic()
        try:
            running_page.write(
                self.path,
                self.runs,
                target=self.study.target.name,
                unit=self.study.unit or str(about.get("unit") or "loss"),
                token=str(about.get("token") or "token"),
                total=self.progress.count,
                left="" if stopped else f"about {duration(self.progress.left())}",
                stopped=stopped,
            )
        except (AllometryError, OSError):
            self.active = False
        ended = time.monotonic()
        self.next = ended + max(EVERY, (ended - started) / SHARE)
