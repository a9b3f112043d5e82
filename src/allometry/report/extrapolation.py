"""What a family's law is worth and what it says: held-out sizes, crossings, larger budgets."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from allometry import laws
from allometry._core.errors import AllometryError
from allometry._core.estimate import Estimate
from allometry.laws import Law, Plan
from allometry.laws.backtests import distance as outside
from allometry.laws.inverse import best_size
from allometry.laws.plan import WORTH
from allometry.report.run_groups import Configuration

T = TypeVar("T")
LEAST_SIZES = 3
"""Fewer sizes than this and no law is fitted: two points lie on every power law."""
FURTHEST = 1e9
"""How many times the largest run's compute a crossing is looked for."""
FRESH_PASSES = 4.0
"""Passes over the data up to which repeating is about as good as fresh data."""


@final
@dataclass(frozen=True)
class HeldOut:
    """A configuration that the fit did not see, what was predicted for it and what came."""

    configuration: Configuration
    predicted: Estimate

    @property
    def error(self) -> float:
        """Predicted loss over measured loss, less one."""
        return self.predicted.value / self.configuration.loss.value - 1

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured loss."""
        return self.predicted.covers(self.configuration.loss.value)


@final
@dataclass(frozen=True)
class Crossover:
    """Where a trained family's law comes down to the loss of a baseline.

    `N` and `C` are `None` where the law could not be evaluated; `reasons` says why. `D` is the
    data at the crossover, and `passes` how often that repeats what there is.
    """

    rival: Configuration
    N: Estimate | None
    C: Estimate | None
    reasons: tuple[str, ...] = ()
    D: Estimate | None = None
    passes: float | None = None


@final
@dataclass(frozen=True)
class LargerBudget:
    """What a larger budget would reach: size, data, loss, and how often the data would repeat.

    Where data are limited and the law knows N and D, this is the plan in which data beyond the
    unique ones are worth less with every pass; `fresh` is then the loss if all data were new.

    References:
        `muennighoff2023` Eq. (5).
    """

    label: str
    C: float
    loss: Estimate
    N: Estimate | None
    D: Estimate | None
    passes: float | None
    warnings: tuple[str, ...] = ()
    fresh: Estimate | None = None

    @property
    def repeats(self) -> bool:
        """Whether data would be repeated more often than is about as good as new data."""
        return self.passes is not None and self.passes > FRESH_PASSES


@final
@dataclass(frozen=True)
class Frontier:
    """Loss against compute as a law tells it: the middle and the ends of its 95 % band."""

    C: Float[ndarray, " n"]
    lo: Float[ndarray, " n"]
    mid: Float[ndarray, " n"]
    hi: Float[ndarray, " n"]


def entropy(done: pd.DataFrame, said: dict[str, Any], unit: str) -> float | None:
    """The loss that no model can go below, where the target or the runs know it.

    A run's `floor` is the entropy of what is predicted, divided by `symbol_entropy` where there is
    one. A target's entropy bounds a loss in nats only: distances and distortions have other units.
    """
    known: list[float] = []
    if "floor" in done:
        floor = pd.to_numeric(done["floor"], errors="coerce")
        if "symbol_entropy" in done:
            floor = floor / pd.to_numeric(done["symbol_entropy"], errors="coerce")
        known += [float(floor.min())] if floor.notna().any() else []
    for name in ("entropy", "entropy_rate"):
        value = said.get(name)
        value = value.get("value") if isinstance(value, dict) else value
        if isinstance(value, int | float) and unit.startswith("nats"):
            known.append(float(value))
    return next((x for x in known if math.isfinite(x)), None)


def above(x: Estimate, floor: float | None) -> Estimate:
    """The estimate with no part of its interval below the floor."""
    return x if floor is None else x.through(lambda v: max(v, floor), 1.0)


def lifted(line: Frontier, floor: float) -> Frontier:
    """A law's line and band, not below the floor."""
    lo, mid, hi = (np.maximum(x, floor) for x in (line.lo, line.mid, line.hi))
    return Frontier(line.C, lo, mid, hi)


def attempt(call: Callable[[], T]) -> tuple[T | None, str]:
    """The result of `call`, or the reason in one sentence why there is none."""
    try:
        return call(), ""
    except (AllometryError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, str(error) or type(error).__name__


def columns(frame: pd.DataFrame, *names: str) -> dict[str, Float[ndarray, " n"]]:
    """The named columns as plain arrays, the way a law wants them."""
    return {name: frame[name].to_numpy(float) for name in names}


def fit(frame: pd.DataFrame, seed: int = 0, bootstrap: int = 1000) -> tuple[Law | None, str]:
    """The law of these finished runs, or why there is none."""
    sizes = frame["N"].nunique()
    if sizes < LEAST_SIZES:
        return None, (
            f"A law needs at least {LEAST_SIZES} sizes with a finished run; there {_are(sizes)}."
        )
    columns_ = columns(frame, "N", "D", "C", "loss")
    return attempt(lambda: laws.fit(columns_, seed=seed, bootstrap=bootstrap))


def _are(n: int) -> str:
    return f"{'is' if n == 1 else 'are'} {n}"


def sizes(frame: pd.DataFrame) -> list[float]:
    """The distinct N of these runs, smallest first."""
    return sorted(frame["N"].unique().tolist())


def hold_out(frame: pd.DataFrame, wanted: int) -> tuple[list[float], str]:
    """The largest sizes to keep out of a fit, and a word where it is fewer than wanted."""
    have = sizes(frame)
    possible = max(0, min(wanted, len(have) - LEAST_SIZES))
    if possible == wanted:
        word = ""
    elif possible == 0:
        word = (
            f"No size could be held out to test the law: that takes at least {LEAST_SIZES + 1} "
            f"sizes with a finished run, and there {_are(len(have))}."
        )
    else:
        word = (
            f"Only the largest {'size' if possible == 1 else f'{possible} sizes'} could be held "
            f"out, so that {LEAST_SIZES} remain for the fit."
        )
    return have[len(have) - possible :], word


def judged(law: Law, held: list[Configuration]) -> tuple[HeldOut, ...]:
    """What the law, fitted without them, predicted for the held-out configurations."""
    if not held:
        return ()
    at = {name: np.array([getattr(c, name) for c in held]) for name in ("N", "D", "C")}
    predicted = np.atleast_1d(law.predict(**at))
    return tuple(HeldOut(c, p) for c, p in zip(held, predicted, strict=True))


def crossing(law: Law, rival: Configuration, D_unique: float | None = None) -> Crossover:
    """At what N and at what C the family's law comes down to the rival's loss.

    The interval holds every compute at which the law's 95 % band holds the rival's loss, so it
    knows of noise and of drift as the band does. The rival's own standard error is left out on
    purpose: both are scored on the same data, so their errors move together and nearly cancel.
    """
    seen = np.exp(law.table.logs["C"])
    far = np.geomspace(seen.min() / 1e3, seen.max() * FURTHEST, 500)
    C, why = attempt(lambda: _met(frontier(law, far, D_unique), rival.loss.value))
    if C is None:
        return Crossover(rival, None, None, (why,))
    N, D = _spent(law, C, D_unique)
    passes = D.value / D_unique if D is not None and D_unique else None
    return Crossover(rival, N, C, (), D, passes)


def _met(line: Frontier, loss: float) -> Estimate:
    """The compute at which the law first falls to `loss`; its ends are those of the band."""

    def first(values: Float[ndarray, " n"]) -> float:
        below = values <= loss
        i = int(below.argmax())
        if not below.any():
            return math.inf
        if i == 0:
            return float(line.C[0])
        # Straight in logarithms between two neighbours, which lie less than 10 % apart.
        x, y = np.log(line.C[i - 1 : i + 1]), np.log(values[i - 1 : i + 1])
        return float(np.exp(np.interp(-math.log(loss), -y, x)))

    value, lo, hi = first(line.mid), first(line.lo), first(line.hi)
    return Estimate(value, lo=lo, hi=hi, method="where the 95 % band holds the loss")


def _spent(law: Law, C: Estimate, unique: float | None) -> tuple[Estimate | None, Estimate | None]:
    """The size and the data for the compute `C`, the size's interval widened by that of `C`."""
    if math.isinf(C.value):
        return None, None
    N, D = attempt(lambda: split(law, C.value, unique))[0] or (None, None)
    if N is None:
        return None, None
    ends: list[float | None] = []
    for c, end in zip(C.interval, ("lo", "hi"), strict=True):
        there = None if math.isinf(c) else attempt(lambda c=c: split(law, c, unique)[0])[0]
        known = None if there is None else getattr(there, end)
        known = there.value if there is not None and known is None else known
        ends.append(math.inf if math.isinf(c) else known)
    lo, hi = (None if x is None else f(x, N.value) for f, x in zip((min, max), ends, strict=True))
    return Estimate(N.value, lo=lo, hi=hi, method="planned at that compute"), D


def split(
    law: Law, compute: float, unique: float | None = None
) -> tuple[Estimate | None, Estimate | None]:
    """N and D as `law.plan` has them, without the price of being wrong, which takes it a while."""
    if not {"N", "D"} <= set(law.variables):
        plan = law.plan(compute=compute)
        return plan.N, plan.D
    N, D = law.split.at(math.log(compute))
    if unique is not None and D is not None and D.value > unique:
        plan = law.plan(compute=compute, unique=unique)
        return plan.N, plan.D
    return N, D


def worth(data: Float[ndarray, "..."], unique: float) -> Float[ndarray, "..."]:
    """How much new data so much data are worth, of which only `unique` are distinct.

    References:
        `muennighoff2023` Eq. (5).
    """
    again = np.maximum(data / unique - 1, 0.0)
    return np.minimum(data, unique) * (1 - WORTH * np.expm1(-again / WORTH))


def frontier(law: Law, C: Float[ndarray, " n"], unique: float | None = None) -> Frontier:
    """The law's loss at the best split of each compute; along the runs' path if there is one.

    With `unique` data, repeated ones are worth less and budgets are split accordingly.
    """
    if not {"N", "D"} <= set(law.variables):
        return Frontier(C, *law.band(C=C))
    n = best_size(law, np.log(C))
    D = np.exp(law.cost.data(np.log(C), n))
    if unique is None or bool((unique >= D).all()):
        return Frontier(C, *law.band(N=np.exp(n), C=C))
    # Where data run out a larger model is better than a further pass, never a smaller one.
    sizes = n[:, None] + np.linspace(0.0, 8.0, 81)
    data = worth(np.exp(law.cost.data(np.log(C)[:, None], sizes)), unique)
    best = law(N=np.exp(sizes), D=data).argmin(1)
    rows = np.arange(len(C))
    return Frontier(C, *law.band(N=np.exp(sizes[rows, best]), D=data[rows, best]))


def reach(label: str, plan: Plan, D_unique: float | None, law: Law | None = None) -> LargerBudget:
    """What a plan says, with the passes over the data counted.

    Where the data would be repeated, and the law knows N and D, the plan is made again with
    repeated data worth less.
    """

    def passes(plan: Plan) -> float | None:
        return plan.D.value / D_unique if plan.D is not None and D_unique else None

    fresh, said = None, tuple(plan.warnings)
    if law is not None and (passes(plan) or 0) > 1 and {"N", "D"} <= set(law.variables):
        again, _ = attempt(lambda: law.plan(compute=plan.compute, unique=D_unique))
        if again is not None:
            fresh, plan = plan.loss, again
    return LargerBudget(label, plan.compute, plan.loss, plan.N, plan.D, passes(plan), said, fresh)


def distance(law: Law, N: float | None, D: float | None, C: float) -> float:
    """How far beyond its runs the law is asked there, in e-folds of its variables."""
    if {"N", "D"} <= set(law.variables) and N is not None and D is not None:
        logs, _ = law.points({"N": [N], "D": [D]})
    else:
        logs, _ = law.points({"C": [C]})
    return max(float(outside(m.form, logs, law.table.logs)[0]) for m in law.members)


def tested(law: Law, without: Law | None, held: tuple[HeldOut, ...]) -> float:
    """How far beyond the runs fitted this law's forms were put to the test, in e-folds."""
    tried = [float(fold.distance.max()) for fold in law.folds if len(fold.distance)]
    if without is not None:
        at = (h.configuration for h in held)
        tried += [distance(without, c.N, c.D, c.C) for c in at]
    return max(tried, default=0.0)
