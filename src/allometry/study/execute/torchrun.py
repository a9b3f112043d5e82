"""One model in several processes, started by torchrun."""

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
from allometry.study.tasks import Bundle, Task, single
from allometry.train.device import DeviceSettings


@final
class TorchrunExecutor(Executor):
    """One run after another, each in several processes; see `torchrun`."""

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
        self.on.resolved()  # refuses a device that does not exist
        require(processes >= 1, "torchrun.processes", "be at least 1", processes)
        self.processes, self.shard, self.options = processes, shard, tuple(options)
        share = 1 if self.on.deterministic else max(1, available_cores() // processes)
        self._threads = share if threads is None else threads
        require(self._threads >= 1, "torchrun.threads", "be at least 1", threads)

    def __repr__(self) -> str:
        return f"torchrun({self.processes}, shard={self.shard}, threads={self.threads})"

    @property
    def workers(self) -> int:
        """One run at a time."""
        return 1

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return self._threads

    @property
    def packs(self) -> bool:
        """Large models gain nothing from vectorisation."""
        return False

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first."""
        launcher = "allometry.study.execute.torchrun_launcher"
        module = "torch.distributed.run" if self.options else launcher
        command = (sys.executable, "-m", module, *self.options)
        command += (f"--nproc-per-node={self.processes}",)
        command += ("-m", "allometry.study.execute.torchrun_worker")
        command += ("--shard",) if self.shard else ()
        processes = WorkerProcesses(folder, self._threads, self.on, command)
        if not isinstance(tasks, deque):
            runs = [t for b in tasks for t in ([b] if isinstance(b, Task) else b.tasks)]
            tasks = [single(task) for task in runs]
        yield from drive(processes, longest_first(tasks), 1)


def torchrun(
    processes: int = 2,
    *,
    shard: bool = False,
    threads: int | None = None,
    on: DeviceSettings | None = None,
    options: Sequence[str] = (),
) -> TorchrunExecutor:
    """One run after another, each in several processes that torchrun starts.

    For models that are too large or too slow for one process or device. Every process takes its
    share of each batch, so the batch size must be a multiple of their number. The loss equals that
    of one process up to the order of summation. The first process alone carries out runs that
    can't be split (see `Request.splits`).

    Args:
        processes: On this machine.
        shard: Shard weights, gradients and optimiser state (FSDP2) instead of replicating (DDP).
        threads: Of each process. Default: as for `local`.
        on: As for `local`.
        options: Of torchrun, for several machines: `["--nnodes=2", "--node-rank=0",
            "--master-addr=HOST", "--master-port=29500"]`. On the other machines, which must have
            the study's folder at the same path, start `torchrun` with the same options, their own
            rank, `--nproc-per-node` and `-m allometry.study.execute.torchrun_worker [--shard]`.
            By default all processes are on this machine and not reachable over the network.
    """
    return TorchrunExecutor(processes, shard=shard, threads=threads, on=on, options=options)
