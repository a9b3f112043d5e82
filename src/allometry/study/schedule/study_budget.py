"""Choose the sizes of a study for a budget of seconds or floating-point operations."""

import math
import re
from collections.abc import Callable, Iterable
from typing import final

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.study.execute.time_limited_queue import LONGEST, ending
from allometry.study.request import TrainingRequest
from allometry.study.schedule.fixed_bundles import rule_bundles
from allometry.study.schedule.measured_costs import MeasuredCosts, RunCosts
from allometry.study.schedule.packing import stepping
from allometry.study.schedule.timing import StepTime
from allometry.study.size_ladder import ladder
from allometry.study.study import Study
from allometry.study.tasks import Task, single

WIDEST = 1e9
"""Largest model that a budget is spent on, in parameters."""

NARROWEST = 3.0
"""Smallest useful ratio of the largest to the smallest size."""

START = 5.5
"""Seconds until the first run starts: importing torch here, and again in the workers."""

SHORTEST = 2.0**-6
"""Smallest share of the requested data to which a time budget may shorten trainings."""

GRAIN = 2.5
"""Ratio of the sizes whose runtime is computed; others are interpolated."""

STEP_DOWN = 0.1
"""Decrease of the logarithm of the largest size while a bundle takes too long."""

FILLED = 0.95
"""Share of the workers' time that runs use: at the end some workers are idle."""


def seconds_of(duration: str) -> float:
    """Seconds in a duration such as `"10min"`, `"1h30min"`, `"90s"` or `"90"`.

    Example:
        >>> seconds_of("1h30min"), seconds_of("10min"), seconds_of("45")
        (5400.0, 600.0, 45.0)
    """
    units = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "": 1.0}
    text = duration.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(d|h|min|m|s|)", text)
    parsed = "".join(number + unit for number, unit in parts)
    require(
        bool(parts) and parsed == text,
        "budget",
        "be a duration such as 10min, 1h30min or 90s",
        duration,
    )
    return sum(float(number) * units[unit] for number, unit in parts)


def flops(study: Study) -> float:
    """FLOPs of a study; a stable phase that several runs share counts once."""
    total = 0.0
    phases: dict[str, list[TrainingRequest]] = {}
    for spec in study.specs():
        request = spec()
        if isinstance(request, TrainingRequest) and request.stable_phase is not None:
            phases.setdefault(request.stable_phase, []).append(request)
        else:
            total += request.budget().C
    one = StepTime(1.0, {}, 0.0)  # a second per step: the result is the number of steps
    for runs in phases.values():
        steps = stepping([[run.steps for run in runs]], one)
        total += steps * runs[0].budget().C / runs[0].steps
    return total


def within(study: Study, *, operations: float) -> Study:
    """The study with the largest sizes that a budget of operations allows.

    The number of sizes and the smallest one stay. If even a short ladder is too expensive, every
    training is shortened. The result depends on the study alone; for a time budget see `fitted`.

    Args:
        study: The request; its largest size is ignored.
        operations: FLOPs of all trainings together.
    """
    require(0 < operations < math.inf, "flops", "be above 0 and finite", operations)
    smallest = study.ladder[0]
    low = math.log(NARROWEST * smallest)
    tokens, least = study.tokens, math.inf
    for halvings in range(7):
        tokens = [D / 2**halvings for D in study.tokens]
        least = flops(_changed(study, math.exp(low), tokens))
        if least <= operations:
            break
    if least > operations:
        raise InputError(
            f"flops must be at least {_rounded_up(least):.3g} for {_sizes(study)}; got "
            f"{operations:.3g}. Ask for fewer rungs or seeds."
        )

    def fits(log_size: float) -> bool:
        return flops(_changed(study, math.exp(log_size), tokens)) <= operations

    return _changed(study, math.exp(_largest(fits, low, math.log(WIDEST), step=1.0)), tokens)


def fitted(study: Study, seconds: float, costs: MeasuredCosts, workers: int) -> Study:
    """The study with the largest sizes that takes about `seconds`.

    The number of sizes and the smallest one stay. If even a short ladder takes too long, every
    training is shortened. Runs that do not depend on the ladder may take half of the time; the
    longest of them beyond that are dropped during execution (see `TimeLimitedQueue`), which also
    corrects for errors of the estimates here.

    Args:
        study: The request; its largest size is ignored.
        seconds: Wall-clock time from the start of the process to the end of the report.
        costs: Runtimes on this machine.
        workers: Processes at once.

    Raises:
        InputError: The smallest possible study takes longer; the message has its seconds.
    """
    require(0 < seconds < math.inf, "budget", "be above 0 and finite", seconds)
    study_costs = _StudyCosts(study, costs, workers)
    least = math.ceil(study_costs.least)
    if seconds < least:
        raise InputError(
            f"budget must be at least {least} s for {_sizes(study)}; got {seconds:g} s. "
            "Give so much, or ask for fewer rungs or seeds."
        )
    capacity = FILLED * workers * (seconds - study_costs.overhead)
    longest = LONGEST * (seconds - study_costs.overhead)
    if not study_costs.grows:
        share = _largest(
            lambda share: study_costs.whole(share) <= capacity, math.log(SHORTEST), 0.0, step=0.5
        )
        return _changed(study, study.ladder[-1], study_costs.tokens(math.exp(share)))
    share = 1.0
    low = math.log(NARROWEST * study.ladder[0])
    while share > SHORTEST and not study_costs.fits(low, share, capacity, longest):
        share /= 2
    top = _largest(
        lambda size: study_costs.fits(size, share, capacity, longest),
        low,
        math.log(WIDEST),
        step=0.5,
    )
    chosen = _changed(study, math.exp(top), study_costs.tokens(share))
    # The sizes were chosen by interpolated costs. The queue drops bundles whose own cost is above
    # the limit, so the largest size is lowered until none is.
    while top > low and study_costs.longest(chosen, share) > longest:
        top = max(low, top - STEP_DOWN)
        chosen = _changed(study, math.exp(top), study_costs.tokens(share))
    return chosen


@final
class _StudyCosts:
    """Expected seconds of a study at other sizes and amounts of data."""

    def __init__(self, study: Study, costs: MeasuredCosts, workers: int) -> None:
        self.study, self.costs, self.workers = study, costs, workers
        self.rungs: dict[tuple[float, int], tuple[float, float]] = {}
        self.fixed: dict[float, set[Spec]] = {}
        smallest = set(_changed(study, study.ladder[0], self.tokens(SHORTEST), 1).specs())
        self.grows = len(study.ladder) > 1 and smallest != self._always(SHORTEST)
        """Whether the runs depend on the sizes."""
        runs = len(study.specs())
        self.overhead = START + costs.first_run() + costs.report(runs)
        self.least = self._least()

    def tokens(self, share: float) -> list[float]:
        """A share of the requested data."""
        return [max(1.0, D * share) for D in self.study.tokens]

    def _seconds(self, specs: Iterable[Spec]) -> list[float]:
        tasks = [Task(spec, spec().work()) for spec in specs]
        return sorted(self.costs.seconds(bundle) for bundle in rule_bundles(tasks))

    def rung(self, step: int, share: float) -> tuple[float, float]:
        """Seconds of one size with all data and seeds: of all runs, and of the longest bundle."""
        if (share, step) not in self.rungs:
            N = self.study.ladder[0] * GRAIN**step
            made = _changed(self.study, N, self.tokens(share), 1)
            others = [spec for spec in made.specs() if spec not in self._always(share)]
            each = self._seconds(others)
            self.rungs[share, step] = sum(each), max(each, default=0.0)
        return self.rungs[share, step]

    def longest(self, study: Study, share: float) -> float:
        """Seconds of the longest bundle that depends on the sizes."""
        growing = [spec for spec in study.specs() if spec not in self._always(share)]
        return max(self._seconds(growing), default=0.0)

    def _always(self, share: float) -> set[Spec]:
        """Runs that are the same at all sizes; they may depend on the data."""
        if share not in self.fixed:
            smallest, other = (
                set(_changed(self.study, N, self.tokens(share), 1).specs())
                for N in (self.study.ladder[0], NARROWEST * self.study.ladder[0])
            )
            self.fixed[share] = smallest & other
        return self.fixed[share]

    def fits(self, log_largest: float, share: float, capacity: float, longest: float) -> bool:
        """Whether a ladder up to this size fits, in addition to the runs of all sizes."""
        fixed = [s for s in self._seconds(self._always(share)) if s <= longest]
        half, total = 0.5 * capacity, 0.0
        for seconds in fixed:
            total += seconds if total + seconds <= half else 0.0
        for N in ladder(self.study.ladder[0], math.exp(log_largest), len(self.study.ladder)):
            at = math.log(N / self.study.ladder[0]) / math.log(GRAIN)
            below, over = math.floor(at + 1e-9), at - math.floor(at + 1e-9)
            (work, most), (more, most_above) = (self.rung(below + i, share) for i in (0, 1))
            total += work ** (1 - over) * more**over
            if total > capacity or most ** (1 - over) * most_above**over > longest:
                return False
        return True

    def whole(self, log_share: float) -> float:
        """Seconds of all runs of a study whose runs do not depend on the sizes."""
        share = math.exp(log_share)
        return sum(self._seconds(_changed(self.study, 0.0, self.tokens(share)).specs()))

    def _least(self) -> float:
        """The smallest budget: the shortest trainings, and the faster half of the fixed runs."""
        always = self._seconds(self._always(SHORTEST))
        half = always[: math.ceil(len(always) / 2)]
        work, longest = sum(half), max(half, default=0.0)
        if self.grows:
            sizes = ladder(
                self.study.ladder[0], NARROWEST * self.study.ladder[0], len(self.study.ladder)
            )
            made = _changed(self.study, sizes[-1], self.tokens(SHORTEST))
            others = self._seconds([s for s in made.specs() if s not in self._always(SHORTEST)])
            work, longest = work + sum(others), max(longest, *others, 0.0)
        return self.overhead + max(work / (FILLED * self.workers), longest / LONGEST)


def span(study: Study, costs: RunCosts, workers: int, *, packs: bool = True) -> float:
    """Expected seconds of all runs of a study, bundled by a fixed rule."""
    tasks = [Task(spec, spec().work()) for spec in study.specs()]
    made = rule_bundles(tasks) if packs else [single(task) for task in tasks]
    return ending([0.0] * workers, sorted(costs.seconds(bundle) for bundle in made))


def _largest(fits: Callable[[float], bool], low: float, high: float, step: float) -> float:
    """The largest value that fits, or `low`; searched upwards, since large values are slow."""
    best = low
    while best < high and fits(min(high, best + step)):
        best = min(high, best + step)
    high = min(high, best + step)
    while high - best > 0.02:
        middle = (best + high) / 2
        best, high = (middle, high) if fits(middle) else (best, middle)
    return best


def _sizes(study: Study) -> str:
    number = len(study.ladder)
    return f"{number} size{'s' if number > 1 else ''} from {study.ladder[0]:g} parameters up"


def _rounded_up(value: float) -> float:
    """Rounded up to three digits, so that the reported number is accepted."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


def _changed(study: Study, largest: float, tokens: list[float], rungs: int | None = None) -> Study:
    """Other sizes and data. With one rung, `largest` alone; with size 0, the same sizes."""
    sizes = study.ladder
    if rungs == 1:
        sizes = [largest]
    elif largest and len(study.ladder) > 1:
        sizes = ladder(study.ladder[0], largest, len(study.ladder))
    return Study(study.target, study.recipes, sizes, study.seeds, tokens, study.unit)
