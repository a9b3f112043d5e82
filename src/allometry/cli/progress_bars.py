"""Progress bars: one for each worker and one for the whole study."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import final

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from allometry.cli.console import duration, err
from allometry.study import Event
from allometry.study.tasks import Task


@final
class StudyProgress:
    """Shows a study's events as progress bars if standard error is a terminal.

    The remaining time is the expected work of unfinished runs divided by the number of workers,
    corrected by the pace so far.
    """

    def __init__(self, tasks: list[Task], workers: int) -> None:
        self.remaining = {task.key: task.work for task in tasks}
        self.whole = sum(self.remaining.values())
        self.workers = max(1, min(workers, len(tasks)))
        self.count, self.done, self.failed = len(tasks), 0, 0
        self.started = time.monotonic()
        self.bars: dict[int, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self.total = self.progress.add_task("all runs", total=1.0, note="")

    def __enter__(self) -> "StudyProgress":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def left(self) -> float:
        """Expected seconds until the study is done."""
        todo = sum(self.remaining.values())
        finished = self.whole - todo
        elapsed = time.monotonic() - self.started
        # Until a tenth is done, the estimate made beforehand is more accurate.
        pace = elapsed / finished if finished > 0.1 * self.whole else 1.0 / self.workers
        return todo * pace

    def __call__(self, event: Event) -> None:
        """Show one event."""
        key = event.task.key
        if event.kind == "started":
            # Building the request is cheap: its target is cached.
            columns = event.task.spec().columns
            name = f"{columns['family']} {columns['shape']}, seed {columns['seed']}"
            if event.worker in self.bars:
                self.progress.remove_task(self.bars[event.worker])
            self.bars[event.worker] = self.progress.add_task(name, total=1.0, note="")
        elif event.kind == "progress":
            share = event.data["step"] / event.data["steps"]
            self.remaining[key] = event.task.work * (1 - share)
            note = f"loss {event.data['loss']:.3f}"
            self.progress.update(self.bars[event.worker], completed=share, note=note)
        elif event.kind in ("done", "failed"):
            self.remaining[key] = 0.0
            self.done += event.kind == "done"
            self.failed += event.kind == "failed"
        note = f"{self.done + self.failed} of {self.count}, about {duration(self.left())} left"
        share = 1 - sum(self.remaining.values()) / max(self.whole, 1e-9)
        self.progress.update(self.total, completed=share, note=note)


def both(*watchers: Callable[[Event], None]) -> Callable[[Event], None]:
    """A watcher that passes each event to all of them in turn."""

    def watch(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    return watch
