"""Extrapolation with a family's scaling law: held-out sizes, crossovers, larger budgets."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry import laws
from allometry._core.errors import AllometryError
from allometry._core.estimate import Estimate
from allometry.laws import Law, Plan
from allometry.laws.backtests import distance as outside
from allometry.laws.inverse import best_size
from allometry.laws.plan import REPETITION_SCALE
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
LEAST_SIZES = 3
"""Sizes that a scaling law is fitted to, at least: two points fit any power law exactly."""
FURTHEST = 1e9
"""Search for a crossover up to this multiple of the largest run's compute."""
FRESH_PASSES = 4.0
"""Passes over the data up to which repeated data are about as good as new data."""


@final
@dataclass(frozen=True)
class HeldOut:
    """A configuration that was held out of the fit, and its predicted loss."""

    configuration: Configuration
    predicted: Estimate

    @property
    def error(self) -> float:
        """Predicted loss over measured loss, minus one."""
        return self.predicted.value / self.configuration.loss.value - 1

    @property
    def covered(self) -> bool:
        """Whether the interval covers the measured loss."""
        return self.predicted.covers(self.configuration.loss.value)


@final
@dataclass(frozen=True)
class Crossover:
    """Where a trained family's scaling law reaches the loss of a baseline.

    `N` and `C` are `None` if the law could not be evaluated; `reasons` says why. `D` is the data
    at the crossover, and `passes` the number of passes over the distinct data.
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
    """The prediction for a larger budget: size, data, loss, and passes over the data.

    If data are limited and the law has N and D, the plan discounts repeated data with every pass;
    `fresh` is then the loss if all data were new.

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
        """Whether data repeat more often than `FRESH_PASSES`."""
        return self.passes is not None and self.passes > FRESH_PASSES


@final
@dataclass(frozen=True)
class Frontier:
    """Loss against compute by a scaling law: the middle and the ends of its 95 % band."""

    C: Float[ndarray, " n"]
    lo: Float[ndarray, " n"]
    mid: Float[ndarray, " n"]
    hi: Float[ndarray, " n"]

    def at_least(self, floor: float) -> "Frontier":
        """The line and its band, clipped from below."""
        return Frontier(self.C, *(np.maximum(x, floor) for x in (self.lo, self.mid, self.hi)))


def entropy(done: "pd.DataFrame", target: dict[str, Any], unit: str) -> float | None:
    """The loss that no model can go below, if the target or the runs give it.

    A run's `floor` is the entropy of what it predicts, divided by `symbol_entropy` if there is
    one. A target's entropy bounds a loss in nats only: distances and distortions have other units.
    """
    import pandas as pd

    known: list[float] = []
    if "floor" in done:
        floor = pd.to_numeric(done["floor"], errors="coerce")
        if "symbol_entropy" in done:
            floor = floor / pd.to_numeric(done["symbol_entropy"], errors="coerce")
        known += [float(floor.min())] if floor.notna().any() else []
    for name in ("entropy", "entropy_rate"):
        value = target.get(name)
        value = value.get("value") if isinstance(value, dict) else value
        if isinstance(value, int | float) and unit.startswith("nats"):
            known.append(float(value))
    return next((x for x in known if math.isfinite(x)), None)


def at_least(x: Estimate, floor: float | None) -> Estimate:
    """The estimate with its value and interval clipped from below."""
    return x if floor is None else x.through(lambda v: max(v, floor), 1.0)


def attempt(call: Callable[[], T]) -> tuple[T | None, str]:
    """The result of `call`, or the reason why there is none."""
    try:
        return call(), ""
    except (AllometryError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, str(error) or type(error).__name__


def columns(frame: "pd.DataFrame", *names: str) -> dict[str, Float[ndarray, " n"]]:
    """The named columns as float arrays."""
    return {name: frame[name].to_numpy(float) for name in names}


def fit(frame: "pd.DataFrame", seed: int = 0, bootstrap: int = 1000) -> tuple[Law | None, str]:
    """The scaling law of these finished runs, or why there is none."""
    sizes = frame["N"].nunique()
    if sizes < LEAST_SIZES:
        return None, (
            f"A scaling law needs at least {LEAST_SIZES} sizes with a finished run; there "
            f"{_are(sizes)}."
        )
    columns_ = columns(frame, "N", "D", "C", "loss")
    return attempt(lambda: laws.fit(columns_, seed=seed, bootstrap=bootstrap))


def _are(n: int) -> str:
    return f"{'is' if n == 1 else 'are'} {n}"


def hold_out(frame: "pd.DataFrame", wanted: int) -> tuple[list[float], str]:
    """The largest sizes to hold out of a fit, and a note if they are fewer than wanted."""
    have = sorted(frame["N"].unique().tolist())
    possible = max(0, min(wanted, len(have) - LEAST_SIZES))
    if possible == wanted:
        note = ""
    elif possible == 0:
        note = (
            f"No size could be held out to test the scaling law: that takes at least "
            f"{LEAST_SIZES + 1} sizes with a finished run, and there {_are(len(have))}."
        )
    else:
        note = (
            f"Only the largest {'size' if possible == 1 else f'{possible} sizes'} could "
            f"be held out, so that {LEAST_SIZES} remain for the fit."
        )
    return have[len(have) - possible :], note


def predicted(law: Law, held: list[Configuration]) -> tuple[HeldOut, ...]:
    """What the law, fitted without them, predicts for the held-out configurations."""
    if not held:
        return ()
    at = {name: np.array([getattr(c, name) for c in held]) for name in ("N", "D", "C")}
    losses = np.atleast_1d(law.predict(**at))
    return tuple(HeldOut(c, loss) for c, loss in zip(held, losses, strict=True))


def crossing(law: Law, rival: Configuration, D_unique: float | None = None) -> Crossover:
    """The N and the C at which the family's law reaches the baseline's loss.

    The interval has every compute at which the law's 95 % band covers the baseline's loss, so it
    includes noise and extrapolation error as the band does. The baseline's own standard error is
    left out on purpose: both are scored on the same data, so their errors nearly cancel.
    """
    seen = np.exp(law.table.logs["C"])
    far = np.geomspace(seen.min() / 1e3, seen.max() * FURTHEST, 500)
    C, why = attempt(lambda: _compute_at(frontier(law, far, D_unique), rival.loss.value))
    if C is None:
        return Crossover(rival, None, None, (why,))
    N, D = _size_and_data(law, C, D_unique)
    passes = D.value / D_unique if D is not None and D_unique else None
    return Crossover(rival, N, C, (), D, passes)


def _compute_at(line: Frontier, loss: float) -> Estimate:
    """The compute at which the law first falls to `loss`, with the ends of its band."""

    def first(values: Float[ndarray, " n"]) -> float:
        below = values <= loss
        i = int(below.argmax())
        if not below.any():
            return math.inf
        if i == 0:
            return float(line.C[0])
        # Linear in logarithms between two neighbours, which are less than 10 % apart.
        x, y = np.log(line.C[i - 1 : i + 1]), np.log(values[i - 1 : i + 1])
        return float(np.exp(np.interp(-math.log(loss), -y, x)))

    value, lo, hi = first(line.mid), first(line.lo), first(line.hi)
    return Estimate(value, lo=lo, hi=hi, method="where the 95 % band covers the loss")


def _size_and_data(
    law: Law, C: Estimate, unique: float | None
) -> tuple[Estimate | None, Estimate | None]:
    """The size and the data at compute `C`; the size's interval includes that of `C`."""
    if math.isinf(C.value):
        return None, None
    N, D = attempt(lambda: allocation(law, C.value, unique))[0] or (None, None)
    if N is None:
        return None, None
    ends: list[float | None] = []
    for c, end in zip(C.interval, ("lo", "hi"), strict=True):
        size = None if math.isinf(c) else attempt(lambda c=c: allocation(law, c, unique)[0])[0]
        known = None if size is None else getattr(size, end)
        known = size.value if size is not None and known is None else known
        ends.append(math.inf if math.isinf(c) else known)
    lo, hi = (None if x is None else f(x, N.value) for f, x in zip((min, max), ends, strict=True))
    return Estimate(N.value, lo=lo, hi=hi, method="planned at that compute"), D


def allocation(
    law: Law, compute: float, unique: float | None = None
) -> tuple[Estimate | None, Estimate | None]:
    """N and D as in `law.plan`, without its slow estimate of the loss to a wrong allocation."""
    if not {"N", "D"} <= set(law.variables):
        plan = law.plan(compute=compute)
        return plan.N, plan.D
    N, D = law.allocation.at(math.log(compute))
    if unique is not None and D is not None and D.value > unique:
        plan = law.plan(compute=compute, unique=unique)
        return plan.N, plan.D
    return N, D


def effective_data(data: Float[ndarray, "..."], unique: float) -> Float[ndarray, "..."]:
    """The amount of new data that is equivalent to `data`, of which `unique` are distinct.

    References:
        `muennighoff2023` Eq. (5).
    """
    again = np.maximum(data / unique - 1, 0.0)
    return np.minimum(data, unique) * (1 - REPETITION_SCALE * np.expm1(-again / REPETITION_SCALE))


def frontier(law: Law, C: Float[ndarray, " n"], unique: float | None = None) -> Frontier:
    """The law's loss at the compute-optimal allocation; for a law in C, along the runs' own path.

    With `unique` data, repeated data are discounted, also in the allocation.
    """
    if not {"N", "D"} <= set(law.variables):
        return Frontier(C, *law.band(C=C))
    n = best_size(law, np.log(C))
    D = np.exp(law.cost.data(np.log(C), n))
    if unique is None or bool((unique >= D).all()):
        return Frontier(C, *law.band(N=np.exp(n), C=C))
    # If data run out, a larger model is better than another pass; a smaller one never is.
    sizes = n[:, None] + np.linspace(0.0, 8.0, 81)
    data = effective_data(np.exp(law.cost.data(np.log(C)[:, None], sizes)), unique)
    best = law(N=np.exp(sizes), D=data).argmin(1)
    rows = np.arange(len(C))
    return Frontier(C, *law.band(N=np.exp(sizes[rows, best]), D=data[rows, best]))


def larger_budget(
    label: str, plan: Plan, D_unique: float | None, law: Law | None = None
) -> LargerBudget:
    """A plan with its passes over the data.

    If it repeats data and the law has N and D, it is made again with repeated data discounted.
    """

    def passes(plan: Plan) -> float | None:
        return plan.D.value / D_unique if plan.D is not None and D_unique else None

    fresh, warnings = None, tuple(plan.warnings)
    if law is not None and (passes(plan) or 0) > 1 and {"N", "D"} <= set(law.variables):
        again, _ = attempt(lambda: law.plan(compute=plan.compute, unique=D_unique))
        if again is not None:
            fresh, plan = plan.loss, again
    return LargerBudget(
        label, plan.compute, plan.loss, plan.N, plan.D, passes(plan), warnings, fresh
    )


def distance(law: Law, N: float | None, D: float | None, C: float) -> float:
    """How far beyond its runs the law is evaluated there, in e-folds of its variables."""
    if {"N", "D"} <= set(law.variables) and N is not None and D is not None:
        logs, _ = law.points({"N": [N], "D": [D]})
    else:
        logs, _ = law.points({"C": [C]})
    return max(float(outside(m.form, logs, law.table.logs)[0]) for m in law.members)


def tested(law: Law, without: Law | None, held: tuple[HeldOut, ...]) -> float:
    """How far beyond the fitted runs this law's forms were tested, in e-folds."""
    tried = [float(fold.distance.max()) for fold in law.folds if len(fold.distance)]
    if without is not None:
        at = (h.configuration for h in held)
        tried += [distance(without, c.N, c.D, c.C) for c in at]
    return max(tried, default=0.0)
