"""A study cut to what there is to spend: seconds, or floating-point operations."""

import math
import re
from collections.abc import Callable
from pathlib import Path

from allometry._core.errors import InputError, require
from allometry.study.executors import local
from allometry.study.ladder import ladder
from allometry.study.probe import Price
from allometry.study.request import TrainingRequest
from allometry.study.schedule import stepping
from allometry.study.study import Study

WIDEST = 1e9
"""Parameters of the largest model that a budget is ever spent on."""

NARROWEST = 3.0
"""A ladder tells nothing unless its largest size is so many times its smallest."""


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
    one = Price(1.0, {}, 0.0)  # a second a step: what comes out is the number of steps
    for runs in trunks.values():
        steps = stepping([[run.steps for run in runs]], one)
        total += steps * runs[0].budget().C / runs[0].steps
    return total


def within(
    study: Study,
    *,
    operations: float | None = None,
    seconds: float | None = None,
    workers: int | None = None,
    threads: int | None = None,
    precision: str = "float32",
) -> Study:
    """The study with the tallest ladder, of as many rungs, that the budget allows.

    The smallest size stays. Where even a short ladder is too dear, every training is made shorter.

    Args:
        study: What was asked for; its largest size is not looked at.
        operations: FLOPs of all trainings together.
        seconds: Or: on the clock, by what this machine is found to do.
        workers: As for `local`.
        threads: As for `local`.
        precision: As for `Study.schedule`.
    """
    require(
        (operations is None) != (seconds is None),
        "budget",
        "be given either as time or as FLOPs",
        "both" if operations is not None else "neither",
    )
    most = operations if operations is not None else seconds
    name = "budget" if operations is None else "flops"
    require(most is not None and 0 < most < math.inf, name, "be above 0 and finite", most)
    if operations is not None:
        return _tallest(study, flops, operations, "FLOPs")
    assert seconds is not None
    place = local(workers, threads)

    def guess(study: Study) -> float:
        return sum(spec().work() for spec in study.specs()) / place.workers

    first = _tallest(study, guess, seconds, "seconds")
    nowhere = Path("/nonexistent")
    tried = first.schedule(nowhere, workers=workers, threads=threads, precision=precision)
    pace = tried.seconds / guess(first)
    return _tallest(study, lambda study: pace * guess(study), seconds, "seconds")


def _tallest(study: Study, cost: Callable[[Study], float], most: float, unit: str) -> Study:
    smallest = study.ladder[0]
    low, high = math.log(NARROWEST * smallest), math.log(WIDEST)
    tokens, least = study.tokens, math.inf
    for halvings in range(7):
        tokens = [D / 2**halvings for D in study.tokens]
        least = cost(_changed(study, math.exp(low), tokens))
        if least <= most:
            break
    if least > most:
        raise InputError(
            f"budget must be at least {least:.3g} {unit} for {len(study.ladder)} sizes from "
            f"{smallest:g} parameters up; got {most:.3g}. Ask for fewer rungs or seeds."
        )
    while high - low > 0.02:
        middle = (low + high) / 2
        fits = cost(_changed(study, math.exp(middle), tokens)) <= most
        low, high = (middle, high) if fits else (low, middle)
    return _changed(study, math.exp(low), tokens)


def _changed(study: Study, largest: float, tokens: list[float]) -> Study:
    rungs = len(study.ladder)
    sizes = ladder(study.ladder[0], largest, rungs)
    return Study(study.target, study.recipes, sizes, study.seeds, tokens, study.unit)
