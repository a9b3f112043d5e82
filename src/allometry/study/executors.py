"""Who carries the runs out. `local()` does it in processes on this machine."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.errors import require
from allometry._core.spec import Spec

RETRIES = 1
"""How often a run whose worker died is given to another one."""


@final
@dataclass(frozen=True)
class Task:
    """A run to be carried out, and how long it may take (seconds, roughly)."""

    spec: Spec
    work: float

    @property
    def key(self) -> str:
        """The run's key."""
        return self.spec.key


@final
@dataclass(frozen=True)
class Event:
    """Something that happened to a run: `started`, `progress`, `done`, `failed` or `stopped`."""

    kind: str
    task: Task
    worker: int
    data: dict[str, Any] = field(default_factory=dict)


class Executor(ABC):
    """Carries tasks out and tells what happens; it never writes the journal."""

    @abstractmethod
    def __call__(self, tasks: Iterable[Task], folder: Path) -> Iterator[Event]:
        """Events of all `tasks`, as they happen. Closing the iterator stops the workers."""


@final
class local(Executor):  # noqa: N801 - reads as `executor=local()`
    """Worker processes on this machine, one thread each unless told otherwise.

    The threads of a worker are part of how a sum is rounded, so they do not change while a study
    goes on: a resumed run ends in the same digits as an undisturbed one.

    Args:
        workers: Processes; one per core if not given.
        threads: Threads of each; the cores shared out evenly if not given.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        cores = available_cores()
        self.workers = cores if workers is None else workers
        require(self.workers >= 1, "local.workers", "be at least 1", workers)
        self.threads = max(1, cores // self.workers) if threads is None else threads
        require(self.threads >= 1, "local.threads", "be at least 1", threads)

    def __call__(self, tasks: Iterable[Task], folder: Path) -> Iterator[Event]:
        """Longest first, so that no worker ends much later than the others."""
        waiting = deque(sorted(tasks, key=lambda task: -task.work))
        pool = _Pool(folder, self.threads)
        try:
            for index in range(min(self.workers, len(waiting))):
                pool.start(index)
            yield from _drive(pool, waiting)
        finally:
            pool.close()


def available_cores() -> int:
    """Cores this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def _drive(pool: "_Pool", waiting: deque[Task]) -> Iterator[Event]:
    """Hand out tasks and pass events on until nothing is left."""
    tries: dict[str, int] = {}
    while pool.members:
        for index, message in pool.wait():
            member = pool.members[index]
            task = member.task
            if message is None:  # the process ended
                pool.remove(index)
                if task is not None:
                    tries[task.key] = tries.get(task.key, 0) + 1
                    if tries[task.key] <= RETRIES:
                        waiting.appendleft(task)
                    else:
                        error = f"the worker {_death(member.process.wait())}, {RETRIES + 1} times"
                        yield Event("failed", task, index, {"status": "failed", "error": error})
                if waiting:
                    pool.start(index)
                continue
            kind = message.pop("event")
            if task is not None and kind != "ready":
                yield Event(kind, task, index, message)
            if kind != "progress":
                member.task = None
                if waiting and kind != "stopped":
                    member.task = waiting.popleft()
                    pool.give(index, member.task)
                    yield Event("started", member.task, index)
                else:
                    pool.hang_up(index)


def _death(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"left with code {code}"


@final
@dataclass
class _Member:
    process: subprocess.Popen[bytes]
    task: Task | None = None
    buffer: bytes = b""


@final
class _Pool:
    """Live workers and the pipes to them."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.members: dict[int, _Member] = {}
        self.selector = selectors.DefaultSelector()

    def start(self, index: int) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "allometry.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the driver, which tells the workers itself
        )
        assert process.stdout is not None
        self.members[index] = _Member(process)
        self.selector.register(process.stdout, selectors.EVENT_READ, index)

    def give(self, index: int, task: Task) -> None:
        message = {"spec": task.spec.to_dict(), "key": task.key, "folder": str(self.folder)}
        self._send(index, message)

    def _send(self, index: int, message: dict[str, Any]) -> None:
        pipe = self.members[index].process.stdin
        assert pipe is not None
        # Where it died just now, reading its end of file says so next.
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """Messages that have come, each with its worker; `None` for a worker that has ended."""
        messages: list[tuple[int, dict[str, Any] | None]] = []
        for selected, _ in self.selector.select():
            member = self.members[selected.data]
            data = os.read(selected.fd, 1 << 16)
            *lines, member.buffer = (member.buffer + data).split(b"\n")
            messages += [(selected.data, json.loads(line)) for line in lines]
            if not data:
                messages.append((selected.data, None))
        return messages

    def hang_up(self, index: int) -> None:
        self._send(index, {"stop": True})

    def remove(self, index: int) -> None:
        member = self.members.pop(index)
        assert member.process.stdout is not None
        assert member.process.stdin is not None
        self.selector.unregister(member.process.stdout)
        member.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            member.process.stdin.close()
        member.process.wait()

    def close(self, grace: float = 5.0) -> None:
        """Ask every worker to checkpoint and leave; end those that do not in time."""
        for index in self.members:
            self.hang_up(index)
        for index in list(self.members):
            process = self.members[index].process
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
            self.remove(index)
        self.selector.close()
