"""Executors carry out runs. `local()` uses processes on this machine."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast, final

import torch

from allometry._core.errors import require
from allometry._core.process import available_cores
from allometry.study.execute import child_processes
from allometry.study.execute.driver import Event, drive
from allometry.study.execute.processes import WorkerProcesses
from allometry.study.tasks import Bundle, Task, single
from allometry.train.device import DeviceSettings

MOST = 1024
"""Largest number of processes on one machine, and of threads of each."""

MANY = 3
"""Bundles of each worker above which the shortest one goes first."""


class Executor(ABC):
    """Carries out tasks and reports events; it never writes the journal."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """Number of bundles that are carried out at once."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of each worker."""

    on: DeviceSettings
    """Device and precision of the runs."""

    @property
    def packs(self) -> bool:
        """Whether runs can be bundled, as a schedule says."""
        return True

    @abstractmethod
    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Events of all `tasks`, as they happen. Closing the iterator stops the workers."""


@final
class LocalExecutor(Executor):
    """Worker processes on this machine; see `local`."""

    def __init__(
        self,
        workers: int | None = None,
        threads: int | None = None,
        on: DeviceSettings | None = None,
    ) -> None:
        self.on = on or DeviceSettings()
        self.on.resolved()  # refuses a device that does not exist
        cores = available_cores()
        self._workers = usual_workers(self.on, cores) if workers is None else workers
        require(self._workers >= 1, "local.workers", "be at least 1", workers)
        require(self._workers <= MOST, "local.workers", f"be at most {MOST}", workers)
        # Deterministic results must not depend on the number of cores per worker.
        share = 1 if self.on.deterministic else max(1, cores // self._workers)
        self._threads = share if threads is None else threads
        require(self._threads >= 1, "local.threads", "be at least 1", threads)
        require(self._threads <= MOST, "local.threads", f"be at most {MOST}", threads)

    def __repr__(self) -> str:
        return f"local(workers={self.workers}, threads={self.threads}, on={self.on!r})"

    def warm_up(self) -> None:
        """Start to import what the first worker needs, while this process does something else."""
        child_processes.warm_up(self.threads, self.on.resolved().device)

    @property
    def workers(self) -> int:
        """Processes."""
        return self._workers

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return self._threads

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first, so that workers end at about the same time; see `longest_first`."""
        waiting = longest_first(tasks, self.workers)
        processes = WorkerProcesses(folder, self.threads, self.on)
        yield from drive(processes, waiting, self.workers, self.workers * self.threads)


def local(
    workers: int | None = None, threads: int | None = None, on: DeviceSettings | None = None
) -> LocalExecutor:
    """Worker processes on this machine.

    The number of threads affects the rounding of sums, so it stays the same during a study: a
    resumed run ends with the same digits as an uninterrupted one.

    Args:
        workers: Processes. Default: one per core, or one per GPU.
        threads: Threads of each. Default: an equal share of the cores; 1 for deterministic runs.
        on: Device and precision. Default: the best available device, in float32.
    """
    return LocalExecutor(workers, threads, on)


def usual_workers(on: DeviceSettings, cores: int) -> int:
    """Number of workers on this machine: one per core, or one per GPU that they use."""
    device = on.resolved().device
    if device == "cpu":
        return cores
    spread = device.startswith("cuda") and ":" not in on.device
    return torch.cuda.device_count() if spread else 1


def longest_first(tasks: Iterable[Task | Bundle], workers: int | None = None) -> deque[Bundle]:
    """Bundles, longest first; a queue keeps its own order.

    If there are many for each of `workers`, the shortest one precedes them: its result is there
    within seconds, and the others can still be balanced.
    """
    if isinstance(tasks, deque):
        return cast("deque[Bundle]", tasks)
    bundles = [single(task) if isinstance(task, Task) else task for task in tasks]
    waiting = deque(sorted(bundles, key=lambda bundle: -bundle.work))
    if workers is not None and len(waiting) > MANY * workers:
        waiting.rotate(1)
    return waiting
