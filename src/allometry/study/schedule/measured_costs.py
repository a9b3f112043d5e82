"""How long runs take on this machine: their own guesses, corrected by runs that have ended.

Nothing is tried beforehand. What runs took is kept in the user's cache, for the processor, the
version of torch and the numbers of processes and threads; a machine that has run nothing yet is
compared with the one on which the guesses were made by some arithmetic that takes half a second.
"""

import contextlib
import json
import math
import platform
import time
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
"""Ended runs of a family that are remembered."""

EACH = 0.4
"""Seconds that any run takes besides its own guess: measuring, samples, saving."""

PACKED = 0.5
"""Share of the time of single runs that runs stepped as one take, before any has been seen."""

NEAR = math.log(3.0)
"""Guesses that differ by this factor tell half as much of one another."""

SAME_CLASS, ANY = 0.2, 0.01
"""Weights of ended runs of another family, and of another class of request."""

PRIOR = 0.02
"""Weight of there being nothing to correct, where an ended run of the family weighs 1."""

CALLS, PRODUCTS = 1.5e-3, 1.4e-3
"""Seconds of the two pieces of arithmetic (see `_speed`) on the machine of the guesses."""


@final
@dataclass(frozen=True)
class CostKey:
    """What distinguishes costs: the class of a run's request, and its family."""

    request: str
    family: str


@final
@dataclass(frozen=True)
class FinishedRun:
    """A run, or bundle of runs, that has ended: what was guessed and how far off that was."""

    kind: CostKey
    guess: float
    log_ratio: float


@final
@dataclass
class MeasuredCosts:
    """Expected seconds of bundles of runs, which follow those that end.

    Args:
        past: What earlier studies took on this machine, by their guesses.
        speed: Seconds of some arithmetic as a multiple of what the guesses rest on.
    """

    past: list[FinishedRun] = field(default_factory=list)
    speed: float = 1.0
    now: list[FinishedRun] = field(default_factory=list)
    """What this study's runs took, by what was expected of them."""
    fresh: list[FinishedRun] = field(default_factory=list)
    """The same by their guesses, as far as nobody else was at work: to be kept."""
    _guesses: dict[str, tuple[CostKey, float]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def guess(self, bundle: Bundle) -> tuple[CostKey, float]:
        """The kind of a bundle, and its own guess in seconds of this machine."""
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
        """Take in how long a bundle took, and how much of that its process was at work."""
        kind, guess = self.guess(bundle)
        expected = guess * _factor(self.past, kind, guess)
        self.now.append(FinishedRun(kind, guess, _log(seconds / expected)))
        # On a busy machine runs wait; what is kept for other days is what they take by themselves.
        own = seconds if busy is None else min(seconds, max(busy, 0.01))
        self.fresh.append(FinishedRun(kind, guess, _log(own / guess)))
        self._seconds.clear()

    def report(self, runs: int) -> float:
        """Expected seconds of laws, their intervals and the page, for so many runs."""
        guess = _report(runs) * self.speed
        return guess * _factor(self.past, REPORT, guess)

    def learn_report(self, runs: int, seconds: float) -> None:
        """Take in how long the report took."""
        guess = _report(runs) * self.speed
        self.fresh.append(FinishedRun(REPORT, guess, _log(seconds / guess)))

    def save(self, workers: int, threads: int) -> None:
        """Keep what was learnt for the next study here; where that can't be, nothing is lost."""
        with contextlib.suppress(OSError):
            path = _path()
            everything = _read(path)
            mine = everything.setdefault(_machine(workers, threads), {})
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


def load(workers: int, threads: int) -> MeasuredCosts:
    """What this machine is known to take; it is measured first where nothing is."""
    try:
        known = _read(_path()).get(_machine(workers, threads), {})
        speed = float(known["speed"])
        past = [
            FinishedRun(CostKey(*json.loads(name)), float(guess), float(ratio))
            for name, rows in known.get("ended", {}).items()
            for guess, ratio in rows
        ]
    except (OSError, LookupError, ValueError, TypeError, AttributeError):
        made = MeasuredCosts(speed=_speed())
        made.save(workers, threads)
        return made
    return MeasuredCosts(past, speed)


def kind_of(request: Request, *, packed: bool = False) -> CostKey:
    """What distinguishes a request."""
    name = type(request).__name__ + (" packed" if packed else "")
    return CostKey(name, str(request.columns["family"]))


def packs(request: Request) -> bool:
    """Whether runs like this one are packed where nothing was tried: short steps are calls."""
    if not isinstance(request, TrainingRequest) or not request.packs:
        return False
    return request.budget().C / request.steps < 1.5e8


def _report(runs: int) -> float:
    return 4.0 + 0.03 * runs


def _log(ratio: float) -> float:
    return math.log(min(max(ratio, 1e-3), 1e3))


def _factor(ended: Sequence[FinishedRun], kind: CostKey, guess: float) -> float:
    """By how much guesses of this kind and size are off, from runs that are like it."""
    total, weight = 0.0, PRIOR
    for run in ended:
        same = 1.0 if run.kind == kind else SAME_CLASS if run.kind.request == kind.request else ANY
        if (run.kind == REPORT) != (kind == REPORT):
            continue
        far = math.log(max(run.guess, 1e-6) / max(guess, 1e-6)) / NEAR
        each = same / (1.0 + far * far)
        total, weight = total + each * run.log_ratio, weight + each
    return math.exp(total / weight)


def _path() -> Path:
    return private_folder() / "costs.json"


def _read(path: Path) -> dict[str, Any]:
    """What is kept; nothing where there is nothing, or something that is not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _machine(workers: int, threads: int) -> str:
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((s.partition(":")[2].strip() for s in lines if s.startswith("model n")), name)
    return f"{name}, torch {torch.__version__}, {workers} x {threads}"


def _speed() -> float:
    """Seconds of small operations and of products here, by those that the guesses rest on."""
    threads = torch.get_num_threads()
    small, large = (torch.ones(n, n, dtype=torch.float32) for n in (8, 256))
    try:
        torch.set_num_threads(1)
        calls = _quickest(lambda: [torch.tanh(small @ small).sum() for _ in range(300)])
        products = _quickest(lambda: [large @ large for _ in range(4)])
    finally:
        torch.set_num_threads(threads)
    return math.sqrt(max(1e-3, calls / CALLS) * max(1e-3, products / PRODUCTS))


def _quickest(work: Any) -> float:
    """The least of several: whoever else is at work can only add to it."""
    taken: list[float] = []
    until = time.perf_counter() + 0.25
    while len(taken) < 5 or (time.perf_counter() < until and len(taken) < 40):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)
