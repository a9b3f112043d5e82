"""The driver of a study: dispatch bundles to workers, pass on events, replace lost workers."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from allometry._core.errors import WorkerError
from allometry.study.tasks import Bundle, Task, single
from allometry.train.device import DeviceSettings

RETRIES = 1
"""How often a run is retried after its worker exited unexpectedly."""

FAILED_STARTS = 3
"""Consecutive workers that may exit before their first message."""

NO_RESULT = "the worker went on without saying how the run ended"
"""The error of a run whose worker is ready for the next."""


@final
@dataclass(frozen=True)
class Event:
    """Something that happened to a run: `started`, `progress`, `done`, `failed` or `stopped`."""

    kind: str
    task: Task
    worker: int
    data: dict[str, Any] = field(default_factory=dict)


@final
@dataclass
class WorkerState:
    """The current work of one worker."""

    bundle: Bundle | None = None
    left: dict[str, Task] = field(default_factory=dict)
    """Unfinished runs of the bundle, by key."""
    idle: bool = False
    ready: bool = False
    """Whether it has sent a message."""

    def start(self, bundle: Bundle) -> None:
        """Start a bundle."""
        self.bundle, self.idle = bundle, False
        self.left = {task.key: task for task in bundle.tasks}

    def clear(self, *, idle: bool) -> None:
        """Remove the bundle."""
        self.bundle, self.left, self.idle = None, {}, idle


class Workers(ABC):
    """Live workers.

    A worker receives orders (see `order`) and sends messages: `ready`, `progress`, `done`,
    `failed` and `stopped`, as plain values.

    Args:
        threads: Of each worker, unless a bundle has its own number.
        on: Device and precision of the runs.
    """

    def __init__(self, threads: int, on: DeviceSettings | None = None) -> None:
        self.threads, self.on = threads, on or DeviceSettings()
        self.members: dict[int, WorkerState] = {}
        self.timeout: float | None = None
        """Seconds after which `wait` returns without messages; never if `None`."""

    def threads_of(self, bundle: Bundle) -> int:
        """Number of threads of a bundle."""
        return self.threads if bundle.how.threads is None else bundle.how.threads

    @abstractmethod
    def start(self, index: int) -> None:
        """Start a worker."""

    @abstractmethod
    def dispatch(self, index: int, bundle: Bundle) -> None:
        """Send a bundle to an idle worker."""

    @abstractmethod
    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """New messages, each with its worker; `None` for a worker that has exited."""

    @abstractmethod
    def shut_down(self, index: int) -> None:
        """Ask a worker to save a checkpoint and exit."""

    @abstractmethod
    def remove(self, index: int) -> str:
        """Remove a worker that has exited; returns how, to be read after "the worker"."""

    @abstractmethod
    def close(self) -> None:
        """Ask every worker to save a checkpoint and exit; kill those that don't in time."""


def order(
    bundle: Bundle, folder: Path, threads: int, on: DeviceSettings, index: int
) -> dict[str, Any]:
    """The order for worker number `index` to carry out a bundle, as plain values."""
    return {
        "on": asdict(on),
        "index": index,
        "name": bundle.name,
        "plain": bundle.plain,
        "how": asdict(bundle.how) | {"threads": threads},
        "runs": [{"key": task.key, "spec": task.spec.to_dict()} for task in bundle.tasks],
        "folder": str(folder),
    }


@runtime_checkable
class TimeLimited(Protocol):
    """A queue with a deadline: see `TimeLimitedQueue`."""

    timeout: float
    """Seconds between two checks of the deadline."""

    def over(self) -> bool:
        """Whether the deadline has passed, so that running workers are stopped."""
        ...


def drive(
    workers: Workers, waiting: deque[Bundle], most: int, slots: float = math.inf
) -> Iterator[Event]:
    """Start workers, dispatch bundles and pass on events until nothing is left.

    Args:
        workers: Closed at the end, also after an error.
        waiting: Bundles to carry out, in this order as far as threads permit.
        most: Largest number of workers at once.
        slots: Largest number of threads at once, over all bundles.

    Raises:
        WorkerError: Workers exit before their first message.
    """
    tries: dict[str, int] = {}
    failed_starts = 0
    if isinstance(waiting, TimeLimited):
        workers.timeout = waiting.timeout
    try:
        for index in range(min(most, len(waiting))):
            workers.start(index)
        while workers.members and not (isinstance(waiting, TimeLimited) and waiting.over()):
            for index, message in workers.wait():
                member = workers.members[index]
                member.ready = member.ready or message is not None
                if message is not None:
                    yield from _handle(workers, index, message, waiting)
                    continue
                reason = workers.remove(index)
                failed_starts = 0 if member.ready else failed_starts + 1
                if failed_starts == FAILED_STARTS:
                    raise WorkerError(f"Workers don't start: the last one {reason}.")
                yield from _after_exit(member, index, reason, waiting, tries)
                if waiting:
                    workers.start(index)
            yield from _dispatch(workers, waiting, slots)
    finally:
        workers.close()


def _handle(
    workers: Workers, index: int, message: dict[str, Any], waiting: deque[Bundle]
) -> Iterator[Event]:
    """The events of a worker's message; messages about runs of other workers are ignored."""
    member = workers.members[index]
    kind = message.pop("event")
    if kind in ("progress", "done", "failed"):
        task = member.left.get(str(message.pop("key", "")))
        if task is None:
            return
        if kind != "progress":
            del member.left[task.key]
        yield Event(kind, task, index, message)
    elif kind == "stopped":
        # Another program asked the worker to exit, and it saved a checkpoint: resume from there.
        left = tuple(member.left.values())
        if member.bundle is not None and left:
            waiting.appendleft(Bundle(member.bundle.name, left, member.bundle.how))
        for task in left:
            yield Event(kind, task, index, message)
        member.clear(idle=False)
        workers.shut_down(index)
    elif kind == "ready":
        left = tuple(member.left.values())
        member.clear(idle=True)
        for task in left:
            # Every dispatched run ends, if only with an error that its end is unknown.
            yield Event("failed", task, index, {"status": "failed", "error": NO_RESULT})


def _dispatch(workers: Workers, waiting: deque[Bundle], slots: float) -> Iterator[Event]:
    for index, member in workers.members.items():
        if not member.idle:
            continue
        if not waiting:
            member.idle = False
            workers.shut_down(index)
            continue
        busy = sum(workers.threads_of(m.bundle) for m in workers.members.values() if m.bundle)
        free = slots - busy
        bundle = next((b for b in waiting if min(slots, workers.threads_of(b)) <= free), None)
        if bundle is not None:
            waiting.remove(bundle)
            workers.dispatch(index, bundle)
            for task in bundle.tasks:
                yield Event("started", task, index)


def _after_exit(
    member: WorkerState, index: int, reason: str, waiting: deque[Bundle], tries: dict[str, int]
) -> Iterator[Event]:
    """Retry the runs of a worker that exited: once as a bundle, then one by one."""
    if member.bundle is None or not member.left:
        return
    left = tuple(member.left.values())
    name = member.bundle.name
    if not member.ready:
        # It never started, perhaps because its node was lost. `FAILED_STARTS` bounds this.
        waiting.appendleft(Bundle(name, left, member.bundle.how))
        return
    tries[name] = tries.get(name, 0) + 1
    if tries[name] <= RETRIES:
        waiting.appendleft(Bundle(name, left, member.bundle.how))
    elif not member.bundle.plain:
        # Runs that are too large for one process together may fit one by one.
        waiting.extendleft(single(task) for task in left)
    else:
        error = f"the worker {reason}, {RETRIES + 1} times"
        yield Event("failed", left[0], index, {"status": "failed", "error": error})
