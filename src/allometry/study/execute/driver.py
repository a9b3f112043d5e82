"""The driver's side of a study at work: bundles out, events in, the dead replaced."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, final, runtime_checkable

from allometry._core.errors import WorkerError
from allometry.study.execute.crew import Workers, WorkerState
from allometry.study.tasks import Bundle, Task, alone

RETRIES = 1
"""How often a run whose worker died is given to another one."""

STILLBORN = 3
"""Workers that may die one after another before any of them was heard of."""

UNTOLD = "the worker went on without saying how the run ended"
"""The reason of a run whose worker is ready for the next."""


@final
@dataclass(frozen=True)
class Event:
    """Something that happened to a run: `started`, `progress`, `done`, `failed` or `stopped`."""

    kind: str
    task: Task
    worker: int
    data: dict[str, Any] = field(default_factory=dict)


def drive(
    crew: Workers, waiting: deque[Bundle], workers: int, slots: float = math.inf
) -> Iterator[Event]:
    """Start workers, hand out bundles and pass events on until nothing is left.

    Args:
        crew: Who carries them out; closed at the end, however that comes.
        waiting: What is to be carried out, in this order where it fits.
        workers: At once, at most.
        slots: Threads at once, at most; a bundle takes as many as it has.

    Raises:
        WorkerError: Workers die before they are heard of.
    """
    tries: dict[str, int] = {}
    stillborn = 0
    if isinstance(waiting, TimeLimited):
        crew.patience = waiting.patience
    try:
        for index in range(min(workers, len(waiting))):
            crew.start(index)
        while crew.members and not _over(waiting):
            for index, message in crew.wait():
                member = crew.members[index]
                member.ready = member.ready or message is not None
                if message is not None:
                    yield from _told(crew, index, message, waiting)
                    continue
                death = crew.remove(index)
                stillborn = 0 if member.ready else stillborn + 1
                if stillborn == STILLBORN:
                    raise WorkerError(f"Workers don't start: the last one {death}.")
                yield from _after_death(member, index, death, waiting, tries)
                if waiting:
                    crew.start(index)
            yield from _hand_out(crew, waiting, slots)
    finally:
        crew.close()


@runtime_checkable
class TimeLimited(Protocol):
    """Bundles that wait for so long only: see `allotted`."""

    patience: float
    """Seconds between two looks at the clock."""

    def over(self) -> bool:
        """Whether the time is up, so that what is still at work is to be stopped."""
        ...


def _over(waiting: deque[Bundle]) -> bool:
    return isinstance(waiting, TimeLimited) and waiting.over()


def _told(
    crew: Workers, index: int, message: dict[str, Any], waiting: deque[Bundle]
) -> Iterator[Event]:
    """What a worker's message means; what speaks of a run that is none of its own, nothing."""
    member = crew.members[index]
    kind = message.pop("event")
    if kind in ("progress", "done", "failed"):
        task = member.left.get(str(message.pop("key", "")))
        if task is None:
            return
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
        member.drop(idle=False)
        crew.hang_up(index)
    elif kind == "ready":
        left = tuple(member.left.values())
        member.drop(idle=True)
        for task in left:
            # Every run that was given away ends, if only in words that say nobody knows how.
            yield Event("failed", task, index, {"status": "failed", "error": UNTOLD})


def _hand_out(crew: Workers, waiting: deque[Bundle], slots: float) -> Iterator[Event]:
    for index, member in crew.members.items():
        if not member.idle:
            continue
        if not waiting:
            member.idle = False
            crew.hang_up(index)
            continue
        busy = sum(crew.threads_of(m.bundle) for m in crew.members.values() if m.bundle)
        bundle = next((b for b in waiting if busy + min(slots, crew.threads_of(b)) <= slots), None)
        if bundle is not None:
            waiting.remove(bundle)
            crew.give(index, bundle)
            for task in bundle.tasks:
                yield Event("started", task, index)


def _after_death(
    member: WorkerState, index: int, death: str, waiting: deque[Bundle], tries: dict[str, int]
) -> Iterator[Event]:
    """Give the dead worker's runs to others, together once more and then each by itself."""
    if member.bundle is None or not member.left:
        return
    left = tuple(member.left.values())
    name = member.bundle.name
    if not member.ready:
        # It never began: its node was lost, perhaps, before anyone knew. `STILLBORN` bounds this.
        waiting.appendleft(Bundle(name, left, member.bundle.how))
        return
    tries[name] = tries.get(name, 0) + 1
    if tries[name] <= RETRIES:
        waiting.appendleft(Bundle(name, left, member.bundle.how))
    elif not member.bundle.plain:
        # What is too much for one process together may fit one by one.
        waiting.extendleft(alone(task) for task in left)
    else:
        error = f"the worker {death}, {RETRIES + 1} times"
        yield Event("failed", left[0], index, {"status": "failed", "error": error})
