"""Which family is best at a budget: a law of each in compute, and the probability of each.

Letters: C training compute, y a measure of which less is better.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import AllometryError, InputError, require
from allometry._core.estimate import Estimate
from allometry.laws.fitting import fit
from allometry.laws.law import Law
from allometry.laws.plan import crossing_of

DECIDED = 0.95
"""Probability from which on a family is called the best."""

DRAWS = 20_000

WIDEST = 30.0
"""Ratio of the ends of an interval from which on a prediction is not ranked."""


@final
@dataclass(frozen=True)
class FamilyForecast:
    """The law of one family.

    Args:
        name: The family.
        law: In compute; None if its runs are too few or unsuitable.
        why: The reason if there is none.
        C: Compute of its runs.
        y: The measure of its runs.
        predictions: The measure of one more run at each budget.
    """

    name: str
    law: Law | None
    why: str
    C: Float[ndarray, " n"]
    y: Float[ndarray, " n"]
    predictions: tuple[Estimate, ...]


@final
@dataclass(frozen=True)
class BudgetRanking:
    """The families at one budget.

    Args:
        C: The budget in FLOPs.
        multiple: Of the largest budget that was measured.
        probabilities: That each family is the best, the most probable first. A family whose
            interval spans a factor above `WIDEST` is left out.
    """

    C: float
    multiple: float
    probabilities: dict[str, float]

    @property
    def contenders(self) -> list[str]:
        """The most probable families whose probabilities sum to `DECIDED`."""
        total, names = 0.0, []
        for name, p in self.probabilities.items():
            names.append(name)
            total += p
            if total >= DECIDED:
                break
        return names


@final
@dataclass(frozen=True)
class FamilyChoice:
    """Families compared at growing budgets.

    Args:
        forecasts: One for each family.
        rankings: One for each budget.
        crossovers: Compute at which the second family of a pair becomes better than the first.
    """

    forecasts: tuple[FamilyForecast, ...]
    rankings: tuple[BudgetRanking, ...]
    crossovers: dict[tuple[str, str], Estimate]

    def words(self, measure: str = "loss") -> list[str]:
        """The answer in sentences."""
        said = [_sentence(r, measure) for r in self.rankings]
        for (first, second), at in self.crossovers.items():
            said.append(f"{second} is predicted to overtake {first} at {_flops(at)}.")
        return said

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "families": {
                f.name: {
                    "law": None if f.law is None else f.law.to_dict(),
                    "why": f.why,
                    "predictions": [p.to_dict() for p in f.predictions],
                }
                for f in self.forecasts
            },
            "budgets": [
                {"C": r.C, "multiple": r.multiple, "probabilities": r.probabilities}
                for r in self.rankings
            ],
            "crossovers": [
                {"from": a, "to": b, "C": at.to_dict()} for (a, b), at in self.crossovers.items()
            ],
        }


def choose_family(
    families: Mapping[str, tuple[Any, Any]],
    *,
    multiples: Sequence[float] = (1, 10, 100),
    least: float | None = None,
    seed: int = 0,
) -> FamilyChoice:
    """Fit a law in compute to each family and compare them at multiples of the largest budget.

    Args:
        families: Compute and measure of each family's runs; less is better.
        multiples: Of the largest budget that every family with a law has runs near.
        least: The smallest value that any model can reach, such as an entropy.
        seed: Of bootstrap and draws.

    Example:
        >>> import numpy as np
        >>> from allometry.laws import choose_family
        >>> C = np.repeat(np.geomspace(1e9, 1e12, 5), 2)
        >>> noise = 1 + 0.01 * np.random.default_rng(0).standard_normal((2, 10))
        >>> runs = {"flow": (C, noise[0] * (1 + 20 * C**-0.2)),
        ...         "gan": (C, noise[1] * (2 + 20 * C**-0.2))}
        >>> choose_family(runs).rankings[0].contenders
        ['flow']
    """
    require(len(families) >= 2, "choose_family.families", "have at least 2", len(families))
    arrays = {name: _checked(name, C, y) for name, (C, y) in families.items()}
    laws = {name: _law(C, y, seed) for name, (C, y) in arrays.items()}
    found = [name for name, (law, _) in laws.items() if law is not None]
    top = min((arrays[n][0].max() for n in found), default=math.nan)
    budgets = [top * multiple for multiple in multiples] if found else []
    forecasts = []
    free: dict[str, list[Estimate]] = {}
    for name, (law, why) in laws.items():
        free[name] = [] if law is None else [law.predict(C=C) for C in budgets]
        bounded = tuple(_at_least(p, least) for p in free[name])
        forecasts.append(FamilyForecast(name, law, why, *arrays[name], bounded))
    with_law = [f for f in forecasts if f.law is not None]
    rankings = []
    for i, (C, multiple) in enumerate(zip(budgets, multiples, strict=True)):
        usable = {f.name: free[f.name][i] for f in with_law if _is_usable(free[f.name][i])}
        if usable:
            rankings.append(BudgetRanking(C, multiple, _probabilities(usable, least, seed)))
    rankings = tuple(rankings)
    return FamilyChoice(tuple(forecasts), rankings, _crossovers(with_law, rankings))


def _is_usable(x: Estimate) -> bool:
    """Whether a prediction says anything: neither end of its interval is absurd."""
    lo, hi = x.interval
    return lo > 0 and math.isfinite(hi) and hi / lo <= WIDEST


def _law(C: ndarray, y: ndarray, seed: int) -> tuple[Law | None, str]:
    try:
        return fit({"C": C, "loss": y}, "auto", seed=seed), ""
    except AllometryError as error:
        return None, str(error)


def _probabilities(
    predictions: Mapping[str, Estimate], least: float | None, seed: int
) -> dict[str, float]:
    """The probability that a run of each family has the lowest measure, by their intervals.

    Families that reach the smallest possible value share it.
    """
    rng = np.random.default_rng(seed)
    draws = []
    for predicted in predictions.values():
        value, (lo, hi) = predicted.value, predicted.interval
        # Each side of the interval has its own width.
        z = rng.standard_normal(DRAWS)
        below, above = math.log(value / max(lo, 1e-300)), math.log(max(hi, value) / value)
        draws.append(math.log(value) + z * np.where(z < 0, below, above) / 1.96)
    drawn = np.array(draws)
    if least is not None and least > 0:
        drawn = np.maximum(drawn, math.log(least))
    first = drawn == drawn.min(0)
    best = (first / first.sum(0)).mean(1)
    names = list(predictions)
    order = sorted(range(len(names)), key=lambda i: -best[i])
    return {names[i]: float(best[i]) for i in order}


def _crossovers(
    forecasts: Sequence[FamilyForecast], rankings: Sequence[BudgetRanking]
) -> dict[tuple[str, str], Estimate]:
    """Where the leader of a budget is overtaken by the leader of the next one."""
    laws = {f.name: f.law for f in forecasts}
    leaders = [next(iter(r.probabilities)) for r in rankings]
    found = {}
    for first, second in itertools.pairwise(leaders):
        before, after = laws[first], laws[second]
        if first != second and before is not None and after is not None:
            at = crossing_of(before, after)
            if math.isfinite(at.value):
                found[first, second] = at
    return found


def _checked(name: str, C: Any, y: Any) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    C, y = np.asarray(C, float).reshape(-1), np.asarray(y, float).reshape(-1)
    if len(C) != len(y):
        raise InputError(
            f"choose_family.{name} must have as many measures as runs; got {len(y)} of {len(C)}."
        )
    return C, y


def _at_least(x: Estimate, least: float | None) -> Estimate:
    """The prediction, no smaller than any model can reach."""
    if least is None:
        return x
    lo, hi = x.interval
    value = max(x.value, least)
    return Estimate(value, lo=max(lo, least), hi=max(hi, value), n=x.n, method=x.method)


def _sentence(ranking: BudgetRanking, measure: str) -> str:
    names = ranking.contenders
    p = ranking.probabilities[names[0]]
    at = f"At {_number(ranking.C)} FLOP"
    at += "" if ranking.multiple == 1 else f" ({ranking.multiple:g} times the largest run)"
    if p >= DECIDED:
        return f"{at}, {names[0]} has the lowest {measure} (probability {p:.2f})."
    rest = " or ".join(names[1:4]) + (" or another" if len(names) > 4 else "")
    return f"{at}, {names[0]} leads in {measure} (probability {p:.2f}); it may be {rest} instead."


def _flops(at: Estimate) -> str:
    lo, hi = at.interval
    return f"{_number(at.value)} FLOP (95 % interval {_number(lo)} to {_number(hi)})"


def _number(x: float) -> str:
    return (
        f"{x:.2g}".replace("e+0", "e").replace("e+", "e")
        if math.isfinite(x)
        else "beyond the range"
    )
