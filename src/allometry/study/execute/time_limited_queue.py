"""Bundles that wait while a study is kept to its time: which is next, which not at all."""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from allometry.study.execute.driver import Event
from allometry.study.schedule.measured_costs import MeasuredCosts
from allometry.study.tasks import Bundle

GRACE = 0.05
"""Share of the time by which the last run may be late before it is stopped."""

LONGEST = 0.4
"""Share of the time that one bundle may take at most: what is longer leaves no room to err."""

PULLED = 24
"""Times at most that further runs are asked for."""


@final
@dataclass
class _Running:
    """A bundle that a worker is at."""

    bundle: Bundle
    since: float
    left: set[str]
    first: bool
    """Whether it is the worker's first, which imports things too."""
    shares: dict[str, float] = field(default_factory=dict)
    busy: float | None = None


@final
class TimeLimitedQueue(deque[Bundle]):
    """What waits, in the order in which it is handed out, chosen anew whenever a run ends.

    The shortest come first: they tell what the longer ones take, and sizes are there from the
    bottom of the ladder upwards whenever it ends. Where all that waits is expected to take longer
    than there is time, the longest are left out; where time is left over, further runs follow.

    Args:
        bundles: What was asked for.
        seconds: From now until the last run must have ended.
        workers: Who work at once.
        costs: Estimated runtimes of bundles; updated with the measured ones.
        further: Sets of further runs, for time that is left over.
        clock: Seconds.
    """

    patience = 1.0
    """Seconds between two looks at the clock."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        seconds: float,
        workers: int,
        costs: MeasuredCosts,
        further: Iterator[Sequence[Bundle]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.costs, self.clock, self.seconds = costs, clock, seconds
        self.begun = clock()
        self.end = self.begun + seconds
        self.asked = {bundle.name: bundle for bundle in bundles}
        self.extra: dict[str, Bundle] = {}
        self.running: dict[int, _Running] = {}
        self.live = set(range(workers))
        self.met: set[int] = set()
        self.ended: set[str] = set()
        self.stopped = False
        self._further, self._pulled = further, 0
        self._planned: set[int] = set()
        self.plan()

    def over(self) -> bool:
        """Whether the time is up, so that what is still at work is to be stopped."""
        self.stopped = self.stopped or self.clock() > self.end + GRACE * self.seconds
        return self.stopped

    def expected(self) -> float:
        """Seconds until all that is chosen has ended, no more than there are."""
        end = ending(self._free(), [self.costs.seconds(b) for b in self])
        return min(end, max(0.0, self.end - self.clock()))

    @property
    def dropped(self) -> list[Bundle]:
        """What was asked for and is not going to be carried out, as things stand."""
        kept = {bundle.name for bundle in self}
        kept |= {running.bundle.name for running in self.running.values()}
        return [b for name, b in self.asked.items() if name not in kept | self.ended]

    def extra_runs(self) -> dict[str, Bundle]:
        """Further runs that have been taken in and have not ended, by their keys."""
        bundles = [b for b in self.extra.values() if b.name not in self.ended]
        return {task.key: bundle for bundle in bundles for task in bundle.tasks}

    def told(self, event: Event) -> None:
        """Take in what happened to a run, and choose anew where that changes something."""
        if event.kind == "started":
            self._started(event)
        elif event.kind == "progress" and event.worker in self.running:
            share = event.data["step"] / max(1, event.data["steps"])
            self.running[event.worker].shares[event.task.key] = share
        elif event.kind in ("done", "failed", "stopped") and event.worker in self.running:
            running = self.running[event.worker]
            running.left.discard(event.task.key)
            busy = event.data.get("cpu")
            running.busy = running.busy if busy is None else busy
            if not running.left:
                self._finished(event.worker, learnt=event.kind == "done")

    def _started(self, event: Event) -> None:
        running = self.running.get(event.worker)
        if running is not None and event.task.key in running.left:
            return
        everything = (*self.asked.values(), *self.extra.values())
        bundle = next(b for b in everything if event.task.key in (t.key for t in b.tasks))
        keys = {task.key for task in bundle.tasks}
        first = event.worker not in self.met
        self.met.add(event.worker)
        self.running[event.worker] = _Running(bundle, self.clock(), keys, first)

    def _finished(self, worker: int, *, learnt: bool) -> None:
        running = self.running.pop(worker)
        self.ended.add(running.bundle.name)
        took = self.clock() - running.since
        # A worker's first run waits for imports: it tells something only where it is long.
        if learnt and (not running.first or took > 5.0):
            self.costs.learn(running.bundle, took, running.busy)
        self.plan()
        if not self:
            self.live.discard(worker)  # whoever finds nothing to do leaves for good

    def plan(self) -> None:
        """Choose what is carried out, and in which order."""
        left, free = self.end - self.clock(), self._free()
        late = left + GRACE / 2 * self.seconds
        kept = self._kept(free, late)
        while self._further is not None and self._pulled < PULLED and self._room(free, kept, left):
            more = next(self._further, None)
            self._pulled += 1
            if more is None:
                self._further = None
                break
            self.extra |= {b.name: b for b in more if b.name not in self.asked}
            kept = self._kept(free, late)
        # What a dead or stopped worker left behind comes first, whatever it takes: it is begun.
        back = [bundle for bundle in self if id(bundle) not in self._planned]
        self._planned = {id(bundle) for bundle in kept}
        self.clear()
        self.extend([*back, *kept])

    def _room(self, free: Sequence[float], kept: Sequence[Bundle], left: float) -> bool:
        """Whether nothing that was asked for is left out and a tenth of the time is to spare."""
        if not free or left <= 0:
            return False
        names = {b.name for b in kept} | {r.bundle.name for r in self.running.values()}
        if any(name not in names | self.ended for name in self.asked):
            return False
        works = [self.costs.seconds(bundle) for bundle in kept]
        return sum(works) + sum(free) < 0.9 * left * len(free)

    def _waiting(self, bundles: dict[str, Bundle]) -> list[Bundle]:
        at = {running.bundle.name for running in self.running.values()}
        return [b for name, b in bundles.items() if name not in at | self.ended]

    def _kept(self, free: Sequence[float], most: float) -> list[Bundle]:
        """As many of those that wait as fit: the longest are left out, further ones first."""
        cost = self.costs.seconds
        most_each = LONGEST * self.seconds
        asked = sorted(self._waiting(self.asked), key=cost)
        extra = sorted(self._waiting(self.extra), key=cost)
        candidates = [b for b in (*asked, *extra) if cost(b) <= min(most, most_each)]
        works = [cost(bundle) for bundle in candidates]
        low, high = 0, len(candidates)
        while low < high:  # the longest beginning of the list that fits
            middle = (low + high + 1) // 2
            fits = ending(free, works[:middle]) <= most
            low, high = (middle, high) if fits else (low, middle - 1)
        kept, taken = candidates[:low], works[:low]
        for bundle, work in list(zip(candidates, works, strict=True))[low:][::-1][:64]:
            if ending(free, [*taken, work]) <= most:
                kept.append(bundle)
                taken.append(work)
        begun = {bundle.name: i for i, bundle in enumerate(candidates)}
        return sorted(kept, key=lambda bundle: begun[bundle.name])

    def _free(self) -> list[float]:
        """Seconds until each worker is free."""
        now = self.clock()
        idle = [0.0] * len(self.live - set(self.running))
        return idle + [self._remaining(running, now) for running in self.running.values()]

    def _remaining(self, running: _Running, now: float) -> float:
        expected, passed = self.costs.seconds(running.bundle), now - running.since
        tasks = running.bundle.tasks
        done = sum(1.0 for task in tasks if task.key not in running.left)
        share = (done + sum(running.shares.get(key, 0.0) for key in running.left)) / len(tasks)
        guess = max(expected - passed, 0.05 * expected)
        if share <= 0.02:
            return guess
        # The further it is, the more its own pace counts.
        seen = passed * (1 - share) / share
        return math.sqrt(share) * seen + (1 - math.sqrt(share)) * guess


def ending(free: Sequence[float], works: Sequence[float]) -> float:
    """Seconds until the last ends, if whoever is free takes the next."""
    if not works:
        return max(free, default=0.0)
    if not free:
        return math.inf
    ends = list(free)
    heapq.heapify(ends)
    for work in works:
        heapq.heappush(ends, heapq.heappop(ends) + work)
    return max(ends)
