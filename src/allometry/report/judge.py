"""What a family's law is worth and what it says: held-out sizes, crossings, larger budgets."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from allometry import laws
from allometry._core.errors import AllometryError
from allometry._core.estimate import Estimate
from allometry.laws import Law, Plan
from allometry.laws.reach import best_size
from allometry.report.runs import Configuration

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
class Crossing:
    """Where a trained family's law meets the loss of a rival that is not trained.

    `already` says that a finished run is below the rival. `N` and `C` are `None` where no law
    could be asked; `reasons` says why. `data` is the amount of data where all runs had the same,
    so that the law is about growing the model alone. `D` is the data
    that the law would train on there, and `passes` how often that repeats what there is.
    """

    rival: Configuration
    already: Configuration | None
    N: Estimate | None
    C: Estimate | None
    reasons: tuple[str, ...] = ()
    data: float | None = None
    D: Estimate | None = None
    passes: float | None = None


@final
@dataclass(frozen=True)
class Reach:
    """What a larger budget would reach: size, data, loss, and how often the data would repeat.

    `loss` takes data to be fresh, as the law does; `discounted` is the loss of the best plan where
    data beyond the unique ones are worth less with every pass.

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
    discounted: Estimate | None = None

    @property
    def repeats(self) -> bool:
        """Whether the data would be repeated more often than the law can vouch for."""
        return self.passes is not None and self.passes > FRESH_PASSES


@final
@dataclass(frozen=True)
class Frontier:
    """Loss against compute as a law tells it: the middle and the ends of its 95 % band."""

    C: Float[ndarray, " n"]
    lo: Float[ndarray, " n"]
    mid: Float[ndarray, " n"]
    hi: Float[ndarray, " n"]


def least(done: pd.DataFrame) -> float | None:
    """The loss that no model can go below, where the runs say so.

    `floor` is the entropy of what is predicted, divided by `symbol_entropy` where there is one.
    """
    if "floor" not in done:
        return None
    floor = pd.to_numeric(done["floor"], errors="coerce")
    if "symbol_entropy" in done:
        floor = floor / pd.to_numeric(done["symbol_entropy"], errors="coerce")
    return float(floor.min()) if floor.notna().any() else None


def lifted(line: Frontier, floor: float) -> Frontier:
    """A law's line and band, not below the floor."""
    lo, mid, hi = (np.maximum(x, floor) for x in (line.lo, line.mid, line.hi))
    return Frontier(line.C, lo, mid, hi)


def bounded(reached: Reach, floor: float) -> Reach:
    """What a larger budget would reach, not below the floor."""
    loss, discounted = (
        None if x is None else x.through(lambda v: max(v, floor), 1.0)
        for x in (reached.loss, reached.discounted)
    )
    assert loss is not None
    return dataclasses.replace(reached, loss=loss, discounted=discounted)


def attempt(call: Callable[[], T]) -> tuple[T | None, str]:
    """The result of `call`, or the reason in one sentence why there is none."""
    try:
        return call(), ""
    except (AllometryError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, str(error) or type(error).__name__


def columns(frame: pd.DataFrame, *names: str) -> dict[str, Float[ndarray, " n"]]:
    """The named columns as plain arrays, the way a law wants them."""
    return {name: frame[name].to_numpy(float) for name in names}


def fit(frame: pd.DataFrame, seed: int = 0) -> tuple[Law | None, str]:
    """The law of these finished runs, or why there is none."""
    sizes = frame["N"].nunique()
    if sizes < LEAST_SIZES:
        return None, (
            f"A law needs at least {LEAST_SIZES} sizes with a finished run; there {_are(sizes)}."
        )
    return attempt(lambda: laws.fit(columns(frame, "N", "D", "C", "loss"), seed=seed))


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


def crossing(
    law: Law, best: Configuration, rival: Configuration, D_unique: float | None = None
) -> Crossing:
    """At what N and at what C the family's law meets the rival's loss.

    The interval holds every compute at which the law's 95 % band holds the rival's loss, so it
    knows of noise and of drift as the band does. The rival's own standard error is left out on
    purpose: both are scored on the same data, so their errors move together and nearly cancel.
    """
    loss = rival.loss.value
    seen = np.exp(law.table.logs["C"])
    far = np.geomspace(seen.min() / 1e3, seen.max() * FURTHEST, 500)
    C, why = attempt(lambda: _met(frontier(law, far), loss))
    already = best if best.loss.value <= loss else None
    data = None if law.table.varies("D") else best.D
    if C is None:
        return Crossing(rival, already, None, None, (why,), data)
    N, D = _spent(law, C)
    passes = D.value / D_unique if D is not None and D_unique else None
    return Crossing(rival, already, N, C, (), data, D, passes)


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


def _spent(law: Law, C: Estimate) -> tuple[Estimate | None, Estimate | None]:
    """The size and the data for the compute `C`, the size's interval widened by that of `C`."""
    if math.isinf(C.value):
        N, D = None, None
    else:
        (N, D), _ = attempt(lambda: split(law, C.value))[0] or (None, None), ""
        if N is None:
            return None, None
    ends: list[float | None] = []
    for c, end in zip(C.interval, ("lo", "hi"), strict=True):
        there = None if math.isinf(c) else attempt(lambda c=c: split(law, c)[0])[0]
        known = None if there is None else getattr(there, end)
        known = there.value if there is not None and known is None else known
        ends.append(math.inf if math.isinf(c) else known)
    value = math.inf if N is None else N.value
    return Estimate(value, lo=ends[0], hi=ends[1], method="planned at that compute"), D


def split(law: Law, compute: float) -> tuple[Estimate | None, Estimate | None]:
    """N and D as `law.plan` has them, without the price of being wrong, which takes it a while."""
    if not {"N", "D"} <= set(law.variables):
        plan = law.plan(compute=compute)
        return plan.N, plan.D
    return law.split.at(math.log(compute))


def frontier(law: Law, C: Float[ndarray, " n"]) -> Frontier:
    """The law's loss at the best split of each compute; along the runs' path if there is one."""
    if {"N", "D"} <= set(law.variables):
        lo, mid, hi = law.band(N=np.exp(best_size(law, np.log(C))), C=C)
    else:
        lo, mid, hi = law.band(C=C)
    return Frontier(C, lo, mid, hi)


def reach(label: str, plan: Plan, D_unique: float | None, law: Law | None = None) -> Reach:
    """What a plan says, with the passes over the data counted.

    Where the data would be repeated too often for the law, and the law knows N and D, the plan is
    made again with repeated data worth less.
    """
    passes = None
    if plan.D is not None and D_unique is not None and D_unique > 0:
        passes = plan.D.value / D_unique
    discounted = None
    if law is not None and passes is not None and passes > FRESH_PASSES:
        again, _ = attempt(lambda: law.plan(compute=plan.compute, unique=D_unique))
        discounted = None if again is None else again.loss
    said = tuple(plan.warnings)
    return Reach(label, plan.compute, plan.loss, plan.N, plan.D, passes, said, discounted)
