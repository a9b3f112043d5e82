"""A study cut to what there is to spend: seconds, or floating-point operations."""

import math
import re
from collections.abc import Callable, Iterable
from typing import final

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.study.execute.time_limited_queue import LONGEST, ending
from allometry.study.ladder import ladder
from allometry.study.request import TrainingRequest
from allometry.study.schedule.measured_costs import MeasuredCosts
from allometry.study.schedule.packing import stepping
from allometry.study.schedule.timing import StepTime
from allometry.study.schedule.untimed import together
from allometry.study.study import Study
from allometry.study.tasks import Task, alone

WIDEST = 1e9
"""Parameters of the largest model that a budget is ever spent on."""

NARROWEST = 3.0
"""A ladder tells nothing unless its largest size is so many times its smallest."""

START = 5.5
"""Seconds until the first run is begun: importing torch here, and again in the workers."""

SHORTEST = 2.0**-6
"""Share of the data that was asked for to which a budget of time may shorten trainings."""

GRAIN = 2.5
"""Ratio of the sizes that are priced; those between them are read off."""

FILLED = 0.95
"""Share of the workers' time that runs fill: at the end some wait for the others."""


def seconds_of(words: str) -> float:
    """Seconds in a duration such as `"10min"`, `"1h30min"`, `"90s"` or `"90"`.

    Example:
        >>> seconds_of("1h30min"), seconds_of("10min"), seconds_of("45")
        (5400.0, 600.0, 45.0)
    """
    units = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "": 1.0}
    text = words.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(d|h|min|m|s|)", text)
    whole = "".join(number + unit for number, unit in parts)
    require(
        bool(parts) and whole == text,
        "budget",
        "be a duration such as 10min, 1h30min or 90s",
        words,
    )
    return sum(float(number) * units[unit] for number, unit in parts)


def flops(study: Study) -> float:
    """Operations that a study takes, each trunk that several runs share counted once."""
    total = 0.0
    trunks: dict[str, list[TrainingRequest]] = {}
    for spec in study.specs():
        request = spec()
        if isinstance(request, TrainingRequest) and request.trunk is not None:
            trunks.setdefault(request.trunk, []).append(request)
        else:
            total += request.budget().C
    one = StepTime(1.0, {}, 0.0)  # a second a step: what comes out is the number of steps
    for runs in trunks.values():
        steps = stepping([[run.steps for run in runs]], one)
        total += steps * runs[0].budget().C / runs[0].steps
    return total


def within(study: Study, *, operations: float) -> Study:
    """The study with the tallest ladder, of as many rungs, that a budget of operations allows.

    The smallest size stays. Where even a short ladder is too dear, every training is made shorter.
    The result is a function of the study alone; for a budget of time see `fitted`.

    Args:
        study: What was asked for; its largest size is not looked at.
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
    """The study with the tallest ladder, of as many rungs, that takes about `seconds`.

    The smallest size stays. Where even a short ladder is too dear, every training is made shorter.
    Runs that do not depend on the ladder may take half of the time; those beyond that, the
    longest, are left out when it is carried out (see `Allotted`), which also puts right what is
    expected wrongly here.

    Args:
        study: What was asked for; its largest size is not looked at.
        seconds: On the clock, from the start of the process to the end of the report.
        costs: What runs take here.
        workers: Processes at once.

    Raises:
        InputError: The least that there is to do takes longer; it says how long.
    """
    require(0 < seconds < math.inf, "budget", "be above 0 and finite", seconds)
    prices = _Prices(study, costs, workers)
    least = math.ceil(prices.least)
    if seconds < least:
        raise InputError(
            f"budget must be at least {least} s for {_sizes(study)}; got {seconds:g} s. "
            "Give so much, or ask for fewer rungs or seeds."
        )
    capacity = FILLED * workers * (seconds - prices.overhead)
    longest = LONGEST * (seconds - prices.overhead)
    if not prices.grows:
        share = _largest(
            lambda share: prices.whole(share) <= capacity, math.log(SHORTEST), 0.0, step=0.5
        )
        return _changed(study, study.ladder[-1], prices.tokens(math.exp(share)))
    share = 1.0
    low = math.log(NARROWEST * study.ladder[0])
    while share > SHORTEST and not prices.fits(low, share, capacity, longest):
        share /= 2
    top = _largest(
        lambda size: prices.fits(size, share, capacity, longest), low, math.log(WIDEST), step=0.5
    )
    return _changed(study, math.exp(top), prices.tokens(share))


@final
class _Prices:
    """What a study would take at other sizes and other amounts of data."""

    def __init__(self, study: Study, costs: MeasuredCosts, workers: int) -> None:
        self.study, self.costs, self.workers = study, costs, workers
        self.rungs: dict[tuple[float, int], tuple[float, float]] = {}
        self.fixed: dict[float, set[Spec]] = {}
        smallest = set(_changed(study, study.ladder[0], self.tokens(SHORTEST), 1).specs())
        self.grows = len(study.ladder) > 1 and smallest != self._always(SHORTEST)
        """Whether the sizes change anything."""
        runs = len(study.specs())
        self.overhead = START + costs.report(runs)
        self.least = self._least()

    def tokens(self, share: float) -> list[float]:
        """A share of the data that was asked for."""
        return [max(1.0, D * share) for D in self.study.tokens]

    def _seconds(self, specs: Iterable[Spec]) -> list[float]:
        tasks = [Task(spec, spec().work()) for spec in specs]
        return sorted(self.costs.seconds(bundle) for bundle in together(tasks))

    def rung(self, step: int, share: float) -> tuple[float, float]:
        """Seconds of one size with all data and seeds, all runs and the longest bundle of them."""
        if (share, step) not in self.rungs:
            N = self.study.ladder[0] * GRAIN**step
            made = _changed(self.study, N, self.tokens(share), 1)
            others = [spec for spec in made.specs() if spec not in self._always(share)]
            each = self._seconds(others)
            self.rungs[share, step] = sum(each), max(each, default=0.0)
        return self.rungs[share, step]

    def _always(self, share: float) -> set[Spec]:
        """Runs that are the same at all sizes; they may change with the data."""
        if share not in self.fixed:
            smallest, other = (
                set(_changed(self.study, N, self.tokens(share), 1).specs())
                for N in (self.study.ladder[0], NARROWEST * self.study.ladder[0])
            )
            self.fixed[share] = smallest & other
        return self.fixed[share]

    def fits(self, log_largest: float, share: float, capacity: float, longest: float) -> bool:
        """Whether a ladder up to so large a size fits, beside the runs that are always there."""
        fixed = [s for s in self._seconds(self._always(share)) if s <= longest]
        both, total = 0.5 * capacity, 0.0
        for seconds in fixed:
            total += seconds if total + seconds <= both else 0.0
        for N in ladder(self.study.ladder[0], math.exp(log_largest), len(self.study.ladder)):
            at = math.log(N / self.study.ladder[0]) / math.log(GRAIN)
            below, over = math.floor(at + 1e-9), at - math.floor(at + 1e-9)
            (work, most), (more, most_above) = (self.rung(below + i, share) for i in (0, 1))
            total += work ** (1 - over) * more**over
            if total > capacity or most ** (1 - over) * most_above**over > longest:
                return False
        return True

    def whole(self, log_share: float) -> float:
        """Seconds of all runs of a study whose sizes change nothing."""
        share = math.exp(log_share)
        return sum(self._seconds(_changed(self.study, 0.0, self.tokens(share)).specs()))

    def _least(self) -> float:
        """The least budget: the shortest trainings, and the quicker half of what never changes."""
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


def span(study: Study, costs: MeasuredCosts, workers: int, *, packs: bool = True) -> float:
    """Expected seconds of all runs of a study on so many workers, packed by rule."""
    tasks = [Task(spec, spec().work()) for spec in study.specs()]
    made = together(tasks) if packs else [alone(task) for task in tasks]
    return ending([0.0] * workers, sorted(costs.seconds(bundle) for bundle in made))


def _largest(fits: Callable[[float], bool], low: float, high: float, step: float) -> float:
    """The largest value that fits, `low` if none does, sought upwards: what is large is slow."""
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
    """To three digits, so that what is said is accepted."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


def _changed(study: Study, largest: float, tokens: list[float], rungs: int | None = None) -> Study:
    """Other sizes and data; of one rung, the size itself; of no size, those that there are."""
    sizes = study.ladder
    if rungs == 1:
        sizes = [largest]
    elif largest and len(study.ladder) > 1:
        sizes = ladder(study.ladder[0], largest, len(study.ladder))
    return Study(study.target, study.recipes, sizes, study.seeds, tokens, study.unit)
