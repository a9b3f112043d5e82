"""Runtimes on this machine: the requests' own estimates, corrected by finished runs.

Nothing is profiled in advance. Runtimes are kept in the user's cache, for the processor, the
version of torch and the numbers of processes and threads. A machine without finished runs is
compared with the reference machine of the estimates by a benchmark of half a second.
"""

import contextlib
import json
import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch

from allometry._core.files import atomic_write
from allometry._core.user_cache import private_folder
from allometry.study.request import Request, TrainingRequest
from allometry.study.tasks import Bundle

KEPT = 48
"""Finished runs of a family that are kept."""

EACH = 0.4
"""Seconds of any run besides its own estimate: evaluation, samples, saving."""

PACKED = 0.5
"""Time of vectorised runs relative to single ones, before any has finished."""

NEAR = math.log(3.0)
"""Runs whose estimates differ by this log ratio have half the weight."""

SAME_CLASS, ANY = 0.2, 0.01
"""Weights of finished runs of another family, and of another class of request."""

FIRST_RUN_SECONDS = 1.0
"""Seconds of imports in a worker's first run, before any has been measured."""

PRIOR = 0.02
"""Weight of no correction; a finished run of the same family has weight 1."""

CALLS, PRODUCTS = 1.5e-3, 1.4e-3
"""Seconds of the two benchmarks (see `_speed`) on the reference machine."""


@final
@dataclass(frozen=True)
class CostKey:
    """Identifies runs with similar costs: class of the request, and family."""

    request: str
    family: str


@final
@dataclass(frozen=True)
class FinishedRun:
    """A finished bundle: its estimate in seconds, and the log ratio of the measured time to it."""

    kind: CostKey
    guess: float
    log_ratio: float


class RunCosts(ABC):
    """Expected seconds of the runs of a study; updated while they end."""

    longest_share = 0.4
    """Largest share of a time budget for one bundle; a longer one leaves no margin for errors."""

    @property
    def known(self) -> bool:
        """Whether anything is known about the runtimes."""
        return True

    @abstractmethod
    def seconds(self, bundle: Bundle) -> float:
        """Expected seconds of a bundle."""

    @abstractmethod
    def learn(self, bundle: Bundle, seconds: float, busy: float | None = None) -> None:
        """Record the seconds of a bundle, and the CPU seconds of its process."""

    @abstractmethod
    def first_run(self) -> float:
        """Expected seconds that a worker's first run takes longer than others."""

    @abstractmethod
    def learn_first_run(self, seconds: float) -> None:
        """Record by how many seconds a worker's first run took longer than expected."""

    @abstractmethod
    def report(self, runs: int) -> float:
        """Expected seconds of fits, intervals and report, by the number of runs."""

    @abstractmethod
    def learn_report(self, runs: int, seconds: float) -> None:
        """Record the seconds of the report."""

    @abstractmethod
    def save(self, workers: int, threads: int) -> None:
        """Save what was learnt for the next study; an unwritable cache is ignored."""


@final
@dataclass
class MeasuredCosts(RunCosts):
    """Expected seconds of bundles, updated with every finished one.

    Args:
        past: Finished runs of earlier studies on this machine.
        speed: Time of a benchmark relative to the reference machine.
    """

    past: list[FinishedRun] = field(default_factory=list)
    speed: float = 1.0
    now: list[FinishedRun] = field(default_factory=list)
    """Finished runs of this study, relative to the estimates corrected by `past`."""
    fresh: list[FinishedRun] = field(default_factory=list)
    """The same relative to the raw estimates, in CPU time: to be saved."""
    _guesses: dict[str, tuple[CostKey, float]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def guess(self, bundle: Bundle) -> tuple[CostKey, float]:
        """The kind of a bundle, and its own estimate in seconds on this machine."""
        if bundle.name not in self._guesses:
            requests: list[Request] = [task.spec() for task in bundle.tasks]
            packed = bundle.how.size > 1
            kind = kind_of(requests[0], packed=packed)
            alone = sum(request.work() for request in requests) * self.speed
            seconds = EACH * len(requests) + alone * (PACKED if packed else 1.0)
            self._guesses[bundle.name] = kind, seconds
        return self._guesses[bundle.name]

    def seconds(self, bundle: Bundle) -> float:
        """Expected seconds of a bundle."""
        if bundle.name not in self._seconds:
            kind, guess = self.guess(bundle)
            factor = _factor(self.past, kind, guess) * _factor(self.now, kind, guess)
            self._seconds[bundle.name] = guess * factor
        return self._seconds[bundle.name]

    def learn(self, bundle: Bundle, seconds: float, busy: float | None = None) -> None:
        """Record the seconds of a bundle, and the CPU seconds of its process."""
        kind, guess = self.guess(bundle)
        expected = guess * _factor(self.past, kind, guess)
        self.now.append(FinishedRun(kind, guess, _log(seconds / expected)))
        # Runs wait on a busy machine; only their own time is saved.
        own = seconds if busy is None else min(seconds, max(busy, 0.01))
        self.fresh.append(FinishedRun(kind, guess, _log(own / guess)))
        self._seconds.clear()

    def report(self, runs: int) -> float:
        """Expected seconds of fits, intervals and report, by the number of runs."""
        guess = _report(runs) * self.speed
        return guess * _factor(self.past, REPORT, guess)

    def learn_report(self, runs: int, seconds: float) -> None:
        """Record the seconds of the report."""
        guess = _report(runs) * self.speed
        self.fresh.append(FinishedRun(REPORT, guess, _log(seconds / guess)))

    def first_run(self) -> float:
        """Expected seconds that a worker's first run takes longer than others: its imports."""
        guess = FIRST_RUN_SECONDS * self.speed
        return guess * _factor(self.past, FIRST_RUN, guess)

    def learn_first_run(self, seconds: float) -> None:
        """Record by how many seconds a worker's first run took longer than expected."""
        guess = FIRST_RUN_SECONDS * self.speed
        self.fresh.append(FinishedRun(FIRST_RUN, guess, _log(max(seconds, 0.1) / guess)))

    def save(self, workers: int, threads: int) -> None:
        """Save finished runs for the next study; an unwritable cache is ignored."""
        with contextlib.suppress(OSError):
            path = _path()
            everything = read_cache(path)
            mine = everything.setdefault(machine_name(workers, threads), {})
            kept: dict[str, list[Any]] = {}
            for ended in (*self.past, *self.fresh):
                name = json.dumps([ended.kind.request, ended.kind.family])
                kept.setdefault(name, []).append([ended.guess, ended.log_ratio])
            mine["ended"] = {name: rows[-KEPT:] for name, rows in kept.items()}
            mine["speed"] = self.speed
            with atomic_write(path) as file:
                json.dump(everything, file)
        self.fresh.clear()


REPORT = CostKey("report", "report")
FIRST_RUN = CostKey("first run", "first run")
_NOT_RUNS = (REPORT, FIRST_RUN)


def load(workers: int, threads: int) -> MeasuredCosts:
    """The costs of this machine; a new machine is benchmarked first."""
    try:
        known = read_cache(_path()).get(machine_name(workers, threads), {})
        speed = float(known["speed"])
        past = [
            FinishedRun(CostKey(*json.loads(name)), float(guess), float(ratio))
            for name, rows in known.get("ended", {}).items()
            for guess, ratio in rows
        ]
    except (OSError, LookupError, ValueError, TypeError, AttributeError):
        costs = MeasuredCosts(speed=_speed())
        costs.save(workers, threads)
        return costs
    return MeasuredCosts(past, speed)


def kind_of(request: Request, *, packed: bool = False) -> CostKey:
    """The cost key of a request."""
    name = type(request).__name__ + (" packed" if packed else "")
    return CostKey(name, str(request.columns["family"]))


def vectorises(request: Request) -> bool:
    """Whether runs like this one are vectorised without profiling: overhead dominates steps."""
    if not isinstance(request, TrainingRequest) or not request.packs:
        return False
    return request.budget().C / request.steps < 1.5e8


def _report(runs: int) -> float:
    return 4.0 + 0.03 * runs


def _log(ratio: float) -> float:
    return math.log(min(max(ratio, 1e-3), 1e3))


def _factor(ended: Sequence[FinishedRun], kind: CostKey, guess: float) -> float:
    """The ratio of measured to estimated time, as a weighted mean over similar runs."""
    total, weight = 0.0, PRIOR
    for run in ended:
        same = 1.0 if run.kind == kind else SAME_CLASS if run.kind.request == kind.request else ANY
        if run.kind != kind and (run.kind in _NOT_RUNS or kind in _NOT_RUNS):
            continue
        far = math.log(max(run.guess, 1e-6) / max(guess, 1e-6)) / NEAR
        each = same / (1.0 + far * far)
        total, weight = total + each * run.log_ratio, weight + each
    return math.exp(total / weight)


def _path() -> Path:
    return private_folder() / "costs.json"


def read_cache(path: Path) -> dict[str, Any]:
    """The cache; empty if it is missing or invalid."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def machine_name(workers: int, threads: int) -> str:
    """Processor, version of torch, and the numbers of processes and threads."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((s.partition(":")[2].strip() for s in lines if s.startswith("model n")), name)
    return f"{name}, torch {torch.__version__}, {workers} x {threads}"


def _speed() -> float:
    """Time of small operations and of matrix products, relative to the reference machine."""
    threads = torch.get_num_threads()
    small, large = (torch.ones(n, n, dtype=torch.float32) for n in (8, 256))
    try:
        torch.set_num_threads(1)
        calls = _shortest_time(lambda: [torch.tanh(small @ small).sum() for _ in range(300)])
        products = _shortest_time(lambda: [large @ large for _ in range(4)])
    finally:
        torch.set_num_threads(threads)
    return math.sqrt(max(1e-3, calls / CALLS) * max(1e-3, products / PRODUCTS))


def _shortest_time(work: Any) -> float:
    """The minimum over repetitions: other processes can only add to it."""
    times: list[float] = []
    until = time.perf_counter() + 0.25
    while len(times) < 5 or (time.perf_counter() < until and len(times) < 40):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)
