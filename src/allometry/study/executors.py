"""Who carries the runs out. `local()` does it in processes on this machine."""

import os
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.errors import require
from allometry.study.pool import Member, Pool
from allometry.study.tasks import Bundle, Task, alone

RETRIES = 1
"""How often a run whose worker died is given to another one."""


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
    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
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

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first, so that no worker ends much later than the others."""
        waiting = longest_first(tasks)
        pool = Pool(folder, self.threads)
        try:
            for index in range(min(self.workers, len(waiting))):
                pool.start(index)
            yield from _drive(pool, waiting, self.workers * self.threads)
        finally:
            pool.close()


def longest_first(tasks: Iterable[Task | Bundle]) -> deque[Bundle]:
    """Bundles in the order in which they should be begun."""
    bundles = [alone(task) if isinstance(task, Task) else task for task in tasks]
    return deque(sorted(bundles, key=lambda bundle: -bundle.work))


def available_cores() -> int:
    """Cores this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def _drive(pool: Pool, waiting: deque[Bundle], slots: int) -> Iterator[Event]:
    """Hand out bundles and pass events on until nothing is left.

    A bundle takes as many slots as it has threads, so that there are never more threads at work
    than the executor was given.
    """
    tries: dict[str, int] = {}
    while pool.members:
        for index, message in pool.wait():
            member = pool.members[index]
            if message is None:  # the process ended
                pool.remove(index)
                yield from _after_death(member, index, waiting, tries)
                if waiting:
                    pool.start(index)
                continue
            kind = message.pop("event")
            if kind in ("progress", "done", "failed"):
                task = member.left[message.pop("key")]
                if kind != "progress":
                    del member.left[task.key]
                yield Event(kind, task, index, message)
            elif kind == "stopped":
                # Somebody else told the worker to leave, and it saved its work: go on from there.
                left = tuple(member.left.values())
                if member.bundle is not None and left:
                    waiting.appendleft(Bundle(member.bundle.name, left, member.bundle.how))
                for task in left:
                    yield Event(kind, task, index, message)
                member.left, member.bundle = {}, None
                pool.hang_up(index)
            else:  # ready for the next
                member.left, member.bundle, member.idle = {}, None, True
        yield from _hand_out(pool, waiting, slots)


def _hand_out(pool: Pool, waiting: deque[Bundle], slots: int) -> Iterator[Event]:
    for index, member in pool.members.items():
        if not member.idle:
            continue
        if not waiting:
            member.idle = False
            pool.hang_up(index)
            continue
        busy = sum(pool.threads_of(m.bundle) for m in pool.members.values() if m.bundle)
        fitting = [b for b in waiting if busy + min(slots, pool.threads_of(b)) <= slots]
        if fitting:
            waiting.remove(fitting[0])
            pool.give(index, fitting[0])
            for task in fitting[0].tasks:
                yield Event("started", task, index)


def _after_death(
    member: Member, index: int, waiting: deque[Bundle], tries: dict[str, int]
) -> Iterator[Event]:
    """Give the dead worker's runs to others, together once more and then each by itself."""
    code = member.process.wait()
    if member.bundle is None or not member.left:
        return
    left = tuple(member.left.values())
    name = member.bundle.name
    tries[name] = tries.get(name, 0) + 1
    if tries[name] <= RETRIES:
        waiting.appendleft(Bundle(name, left, member.bundle.how))
    elif not member.bundle.plain:
        # What is too much for one process together may fit one by one.
        waiting.extendleft(alone(task) for task in left)
    else:
        error = f"the worker {_death(code)}, {RETRIES + 1} times"
        yield Event("failed", left[0], index, {"status": "failed", "error": error})


def _death(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"left with code {code}"
