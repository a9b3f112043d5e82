"""The queue of a study with a time budget: chooses which bundles run, and in which order."""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from allometry.study.execute.driver import Event
from allometry.study.schedule.measured_costs import RunCosts
from allometry.study.tasks import Bundle

GRACE = 0.05
"""Share of the time by which the last run may exceed the deadline before it is stopped."""

LONGEST = RunCosts.longest_share
"""Largest share of the time for one bundle of our own trainings."""

FULL = 0.9
"""Share of the time from which on no further runs are added."""

MOST_EXTENSIONS = 24
"""Largest number of requests for further runs."""


@final
@dataclass
class _Running:
    """A bundle that a worker carries out."""

    bundle: Bundle
    since: float
    left: set[str]
    first: bool
    """Whether it is the worker's first, whose time includes imports."""
    shares: dict[str, float] = field(default_factory=dict)
    busy: float | None = None


@final
class TimeLimitedQueue(deque[Bundle]):
    """Waiting bundles in the order of dispatch, chosen anew whenever a run ends.

    The shortest come first: their runtimes improve the estimates for the longer ones, and the
    small sizes are complete whenever the study ends. If the expected time is too long, the longest
    bundles are dropped; if time is left over, further runs are added.

    Args:
        bundles: The requested bundles.
        seconds: From now to the deadline.
        workers: Number of workers at once.
        costs: Estimated runtimes of bundles; updated with the measured ones.
        further: Sets of further runs, for time left over.
        clock: Seconds.
    """

    timeout = 1.0
    """Seconds between two checks of the deadline."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        seconds: float,
        workers: int,
        costs: RunCosts,
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
        self._further, self._extensions = further, 0
        self._planned: set[int] = set()
        self.plan()

    def over(self) -> bool:
        """Whether the deadline has passed, so that running workers are stopped."""
        self.stopped = self.stopped or self.clock() > self.end + GRACE * self.seconds
        return self.stopped

    def expected(self) -> float:
        """Expected seconds until the last bundle ends, at most the time left.

        While further runs can be added, they fill what the requested ones leave of the time.
        """
        left = max(0.0, self.end - self.clock())
        end = ending(self._free(), [self.costs.seconds(b) for b in self])
        return min(max(end, FULL * left) if self._further is not None else end, left)

    @property
    def dropped(self) -> list[Bundle]:
        """Requested bundles that will not be carried out, by the current plan."""
        kept = {bundle.name for bundle in self}
        kept |= {running.bundle.name for running in self.running.values()}
        return [b for name, b in self.asked.items() if name not in kept | self.ended]

    @property
    def interrupted(self) -> list[Bundle]:
        """Bundles that were running at the deadline; they start again if the study resumes."""
        return [running.bundle for running in self.running.values()] if self.stopped else []

    def extra_runs(self) -> dict[str, Bundle]:
        """Bundles of further runs that have not ended, by the keys of their runs."""
        bundles = [b for b in self.extra.values() if b.name not in self.ended]
        return {task.key: bundle for bundle in bundles for task in bundle.tasks}

    def update(self, event: Event) -> None:
        """Take account of an event, and choose anew if a bundle has ended."""
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
                self._finished(event.worker, measured=event.kind == "done")

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

    def _finished(self, worker: int, *, measured: bool) -> None:
        running = self.running.pop(worker)
        self.ended.add(running.bundle.name)
        seconds = self.clock() - running.since
        if measured and running.first:
            self.costs.learn_first_run(seconds - self.costs.seconds(running.bundle))
        # The time of a worker's first run includes imports: use it only if it is long.
        if measured and (not running.first or seconds > 5.0):
            self.costs.learn(running.bundle, seconds, running.busy)
        self.plan()
        if not self:
            self.live.discard(worker)  # an idle worker exits

    def plan(self) -> None:
        """Choose which bundles are carried out, and in which order."""
        left, free = self.end - self.clock(), self._free()
        late = left + GRACE / 2 * self.seconds
        kept = self._kept(free, late)
        while (
            self._further is not None
            and self._extensions < MOST_EXTENSIONS
            and self._time_left_over(free, kept, left)
        ):
            more = next(self._further, None)
            self._extensions += 1
            if more is None:
                self._further = None
                break
            self.extra |= {b.name: b for b in more if b.name not in self.asked}
            kept = self._kept(free, late)
        # Bundles of workers that exited come first, whatever they take: they have started.
        back = [bundle for bundle in self if id(bundle) not in self._planned]
        self._planned = {id(bundle) for bundle in kept}
        self.clear()
        self.extend([*back, *kept])

    def _time_left_over(self, free: Sequence[float], kept: Sequence[Bundle], left: float) -> bool:
        """Whether a tenth of the time is left over by what is kept.

        Requested bundles may have been dropped: those that take too long for the time left would
        not run either way.
        """
        if not free or left <= 0:
            return False
        works = [self.costs.seconds(bundle) for bundle in kept]
        return sum(works) + sum(free) < FULL * left * len(free)

    def _waiting(self, bundles: dict[str, Bundle]) -> list[Bundle]:
        at = {running.bundle.name for running in self.running.values()}
        return [b for name, b in bundles.items() if name not in at | self.ended]

    def _kept(self, free: Sequence[float], most: float) -> list[Bundle]:
        """As many waiting bundles as fit: the longest are dropped, further ones first."""
        cost = self.costs.seconds
        most_each = self.costs.longest_share * self.seconds
        asked = sorted(self._waiting(self.asked), key=cost)
        extra = sorted(self._waiting(self.extra), key=cost)
        candidates = [b for b in (*asked, *extra) if cost(b) <= min(most, most_each)]
        works = [cost(bundle) for bundle in candidates]
        low, high = 0, len(candidates)
        while low < high:  # the longest prefix of the list that fits
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
        idle = [
            0.0 if worker in self.met else self.costs.first_run()
            for worker in self.live - set(self.running)
        ]
        return idle + [self._remaining(running, now) for running in self.running.values()]

    def _remaining(self, running: _Running, now: float) -> float:
        expected, passed = self.costs.seconds(running.bundle), now - running.since
        tasks = running.bundle.tasks
        done = sum(1.0 for task in tasks if task.key not in running.left)
        share = (done + sum(running.shares.get(key, 0.0) for key in running.left)) / len(tasks)
        guess = max(expected - passed, 0.05 * expected)
        if share <= 0.02:
            return guess
        # The further it has progressed, the more weight its own pace has.
        seen = passed * (1 - share) / share
        return math.sqrt(share) * seen + (1 - math.sqrt(share)) * guess


def ending(free: Sequence[float], works: Sequence[float]) -> float:
    """Seconds until the last ends, if the first free worker takes the next."""
    if not works:
        return max(free, default=0.0)
    if not free:
        return math.inf
    ends = list(free)
    heapq.heapify(ends)
    for work in works:
        heapq.heappush(ends, heapq.heappop(ends) + work)
    return max(ends)
