"""Who carries the runs out. `local()` does it in processes on this machine."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast, final

from allometry._core.errors import require
from allometry._core.process import available_cores
from allometry.study.execute.driver import Event, drive
from allometry.study.execute.processes import WorkerProcesses
from allometry.study.tasks import Bundle, Task, alone
from allometry.train.device import DeviceSettings


class Executor(ABC):
    """Carries tasks out and tells what happens; it never writes the journal."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many runs, or bundles of them, are carried out at once."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of each."""

    on: DeviceSettings
    """Where and in which precision runs train; those that are packed stay on the processor."""

    @property
    def packs(self) -> bool:
        """Whether runs may go together, as a schedule says."""
        return True

    @abstractmethod
    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Events of all `tasks`, as they happen. Closing the iterator stops the workers."""


MOST = 1024
"""Processes, or threads of each, that are ever started on one machine."""


@final
class local(Executor):  # noqa: N801 - reads as `executor=local()`
    """Worker processes on this machine, one thread each unless told otherwise.

    The threads of a worker are part of how a sum is rounded, so they do not change while a study
    goes on: a resumed run ends in the same digits as an undisturbed one.

    Args:
        workers: Processes; one per core if not given.
        threads: Threads of each; if not given the cores shared out evenly, or one where runs are
            to be deterministic.
        on: Where and in which precision runs train; the best device there is, in float32, if not
            given. What is packed stays on the processor.
    """

    def __init__(
        self,
        workers: int | None = None,
        threads: int | None = None,
        on: DeviceSettings | None = None,
    ) -> None:
        self.on = on or DeviceSettings()
        self.on.resolved()  # refuses a device that is not there
        cores = available_cores()
        self._workers = cores if workers is None else workers
        require(self._workers >= 1, "local.workers", "be at least 1", workers)
        require(self._workers <= MOST, "local.workers", f"be at most {MOST}", workers)
        # Digits that must repeat can't hang on how many cores there are for each worker.
        share = 1 if self.on.deterministic else max(1, cores // self._workers)
        self._threads = share if threads is None else threads
        require(self._threads >= 1, "local.threads", "be at least 1", threads)
        require(self._threads <= MOST, "local.threads", f"be at most {MOST}", threads)

    @property
    def workers(self) -> int:
        """Processes."""
        return self._workers

    @property
    def threads(self) -> int:
        """Of each."""
        return self._threads

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first, so that no worker ends much later than the others."""
        waiting = longest_first(tasks)
        pool = WorkerProcesses(folder, self.threads, self.on)
        yield from drive(pool, waiting, self.workers, self.workers * self.threads)


def longest_first(tasks: Iterable[Task | Bundle]) -> deque[Bundle]:
    """Bundles in the order in which they should be begun; a queue has its own already."""
    if isinstance(tasks, deque):
        return cast("deque[Bundle]", tasks)
    bundles = [alone(task) if isinstance(task, Task) else task for task in tasks]
    return deque(sorted(bundles, key=lambda bundle: -bundle.work))
