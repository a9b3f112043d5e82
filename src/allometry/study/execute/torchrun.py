"""One model in several processes, by torchrun."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import final

from allometry._core.errors import require
from allometry._core.process import available_cores
from allometry.study.execute.driver import Event, drive
from allometry.study.execute.executors import Executor, longest_first
from allometry.study.execute.processes import WorkerProcesses
from allometry.study.tasks import Bundle, Task, alone
from allometry.train.device import DeviceSettings


@final
class torchrun(Executor):  # noqa: N801 - reads as `executor=torchrun()`
    """One run after another, each by several processes that torchrun starts.

    For models that one process or device is too small or too slow for. Every process takes its
    share of each batch, so the batch must be a multiple of their number; the run ends in the same
    loss as in one process, up to the order in which sums are taken. Runs that can't be split (see
    `Request.splits`) are carried out by the first process alone.

    Args:
        processes: On this machine.
        shard: Share out weights, gradients and optimiser (FSDP2) instead of copying them (DDP).
        threads: Of each; as for `local` if not given.
        on: As for `local`.
        options: Of torchrun, for several machines: `["--nnodes=2", "--node-rank=0",
            "--master-addr=HOST", "--master-port=29500"]`. On the other machines, which must see
            the study's folder at the same path, start `torchrun` with the same ones, their own
            rank, `--nproc-per-node` and `-m allometry.study.execute.torchrun_worker [--shard]`. By
            default all processes are on this machine and nobody else can reach them.
    """

    def __init__(
        self,
        processes: int = 2,
        *,
        shard: bool = False,
        threads: int | None = None,
        on: DeviceSettings | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.on = on or DeviceSettings()
        self.on.resolved()  # refuses a device that is not there
        require(processes >= 1, "torchrun.processes", "be at least 1", processes)
        self.processes, self.shard, self.options = processes, shard, tuple(options)
        share = 1 if self.on.deterministic else max(1, available_cores() // processes)
        self._threads = share if threads is None else threads
        require(self._threads >= 1, "torchrun.threads", "be at least 1", threads)

    @property
    def workers(self) -> int:
        """One run at a time."""
        return 1

    @property
    def threads(self) -> int:
        """Of each process."""
        return self._threads

    @property
    def packs(self) -> bool:
        """It is for models that are large, and large models gain nothing."""
        return False

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first."""
        runs = [] if isinstance(tasks, deque) else list(tasks)
        runs = [t for b in runs for t in ([b] if isinstance(b, Task) else b.tasks)]
        module = (
            "torch.distributed.run"
            if self.options
            else "allometry.study.execute.torchrun_launcher"
        )
        command = (sys.executable, "-m", module, *self.options)
        command += (
            f"--nproc-per-node={self.processes}",
            "-m",
            "allometry.study.execute.torchrun_worker",
        )
        command += ("--shard",) if self.shard else ()
        pool = WorkerProcesses(folder, self._threads, self.on, command)
        waiting = tasks if isinstance(tasks, deque) else [alone(task) for task in runs]
        yield from drive(pool, longest_first(waiting), 1)
