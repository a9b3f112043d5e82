"""How a budget is best split into size and data, with an interval that knows it drifts.

Where `auto` averages forms to predict losses anywhere, the best split is read from a law of its
own: of the efficient runs, and by the forms with an exponent and a level for size and for data
each. A split is a matter of slopes near the efficient runs, of which the rest tells little.

Letters: m draws, f forms, g grid points.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.estimate import Estimate
from allometry.laws.backtests import cuts
from allometry.laws.component import Component, draw, fit_member, fit_parts, thinned
from allometry.laws.coupled_forms import Coupled
from allometry.laws.forms import Form
from allometry.laws.intervals import ExtrapolationError, drift, mixture_half_width
from allometry.laws.inverse import lowest_size, lowest_sizes
from allometry.laws.law import Law
from allometry.laws.objective import EFFICIENT
from allometry.laws.selection import SPARE

OWN = ("chinchilla", "coupled")
"""Forms whose size and data have an exponent and a level each. Law 1.5 of Kaplan et al. has them
too, but no floor, which pushes its best sizes up as the loss comes near one."""

TAU = np.exp(np.linspace(np.log(0.005), np.log(1.0), 33))
USUAL = (0.03, 0.8)
"""Median of the drift of the best log size per e-fold of compute before any backtest, and standard
deviation of its log."""

GROWTH = (0.5, 0.1)
"""The exponent of the best size in compute, and its standard deviation, before any run is seen:
.46 to .51 by each approach of Hoffmann et al., by Besiroglu et al. and for Llama 3. Runs tell it
to within less only where they span decades of compute."""


@final
@dataclass(frozen=True)
class Allocation:
    """What the best split of a budget is read from.

    Args:
        law: The law whose lowest point at a compute is the best split.
        drifts: Whether intervals are to carry what that gets wrong further out. A form that was
            asked for by name has the interval of its draws.
    """

    law: Law
    drifts: bool

    @cached_property
    def drift(self) -> ExtrapolationError | None:
        """What the best log size gets wrong per e-fold of compute beyond the runs."""
        return _drift(self.law) if self.drifts else None

    @property
    def top(self) -> float:
        """Log of the largest compute seen."""
        return float(self.law.table.logs["C"].max())

    @cached_property
    def told(self) -> float:
        """How far the exponent beyond the runs is theirs, not that of `GROWTH`: 0 to 1.

        By the draws' exponents over the next decade of compute.
        """
        if not self.drifts or not len(self.law.members[0].draws):
            return 1.0
        decade = float(np.log(10.0))
        ends = lowest_sizes(self.law, self.top + np.array([0.0, decade]))[1:]
        variance = float(((ends[:, 1] - ends[:, 0]) / decade).var())
        return GROWTH[1] ** 2 / (GROWTH[1] ** 2 + variance)

    def shift(self, c: Float[ndarray, " g"]) -> Float[ndarray, " g"]:
        """What habit adds to the log of the best size at each log compute."""
        far = np.maximum(c - self.top, 0.0) if self.drifts else np.zeros_like(c)
        if self.told == 1.0 or not far.any():
            return np.zeros_like(c)
        start, *ends = lowest_size(self.law, np.append(self.top, c))
        return (1 - self.told) * np.where(far > 0, GROWTH[0] * far - (ends - start), 0.0)

    def shifts(self, c: float) -> Float[ndarray, " m"]:
        """The same at one log compute for the law (first) and each draw, with a draw of habit."""
        far = c - self.top if self.drifts else 0.0
        if self.told == 1.0 or far <= 0:
            return np.zeros(len(self.law.members[0].draws) + 1)
        start, end = lowest_sizes(self.law, np.array([self.top, c])).T
        habit = np.random.default_rng(0).normal(*GROWTH, len(start))
        habit[0] = GROWTH[0]
        return (1 - self.told) * (habit * far - (end - start))

    def sizes(self, best: Float[ndarray, " m"], c: float) -> Estimate:
        """The best size at log compute `c` from those of the law (first) and of its draws.

        Args:
            best: Logs of the sizes.
            c: Log of the budget.
        """
        value = float(best[0])
        if len(best) < 20:
            return Estimate(float(np.exp(value)), method="no bootstrap draws")
        lo, hi = (float(q) for q in np.quantile(best[1:], [0.025, 0.975]))
        method = "bootstrap"
        if self.drift is not None:
            far = max(c - self.top, 0.0)
            sides = np.maximum(np.array([value - lo, hi - value]), 0.0) / 1.96
            # As with losses, the bootstrap's bias is not believed.
            sides = np.maximum(sides, max((hi - lo) / (4 * 1.96), 1e-9))
            scale = np.sqrt(sides[:, None] ** 2 + self.drift.tau**2 * far**2)
            below, above = mixture_half_width(scale, self.drift.weight)
            lo, hi = value - float(below), value + float(above)
            method = "bootstrap and backtested drift of the best split of efficient runs"
        return Estimate(
            float(np.exp(value)),
            lo=float(np.exp(min(lo, value))),
            hi=float(np.exp(max(hi, value))),
            n=len(best) - 1,
            method=method,
        )

    def at(self, c: float) -> tuple[Estimate, Estimate]:
        """Size and data at log compute `c`, both with intervals: more of one is less of other."""
        best = lowest_sizes(self.law, np.array([c]))[:, 0]
        size = self.sizes(best + self.shifts(c), c)
        cost = self.law.cost
        return size, facing(size, lambda n: float(cost.data(np.array([c]), np.array([n]))[0]))


def facing(size: Estimate, data: Callable[[float], float]) -> Estimate:
    """The data that go with a size, the least of them with the greatest size.

    Args:
        size: The size.
        data: Log data of a log size.
    """

    def at(value: float) -> float:
        return float(np.exp(data(float(np.log(value)))))

    if size.lo is None or size.hi is None:
        return Estimate(at(size.value), method=size.method)
    return Estimate(at(size.value), lo=at(size.hi), hi=at(size.lo), n=size.n, method=size.method)


def split_of(law: Law) -> Allocation:
    """The split of a law: its own for a form asked for by name, else one of efficient runs.

    An average of forms, weighed for predicting any larger run, missed the best sizes of held-out
    budgets by twice as much (`bench/split.py`).

    References:
        `hoffmann2022` section 3 (the exponents behind `GROWTH`).
    """
    if not law.aim.recency or "C" not in law.table.logs:
        return Allocation(law, drifts=False)
    found = [m for m in law.members if m.form.name in OWN]
    if law.aim.frontier and len(found) == len(law.members):
        return Allocation(law, drifts=True)
    forms: list[Form] = [m.form for m in found] or [Coupled()]
    weight = np.array([m.weight for m in found] or [1.0])
    weight = weight / weight.sum()
    if law.aim.frontier and found:
        members = [replace(m, weight=float(w)) for m, w in zip(found, weight, strict=True)]
    else:
        members = _efficient(law, forms, weight)
    aim = law.aim if law.aim.frontier else replace(law.aim, frontier=EFFICIENT)
    chosen = replace(law, members=tuple(members), aim=aim)
    return Allocation(chosen, drifts=True)


def _efficient(law: Law, forms: list[Form], weight: Float[ndarray, " f"]) -> list[Component]:
    """The forms fitted to the efficient runs, with as many draws as the law has."""
    aim = replace(law.aim, frontier=EFFICIENT)
    rng = np.random.default_rng(0)
    draws = len(law.members[0].draws)
    members = []
    for form, w in zip(forms, weight, strict=True):
        member = fit_member(form, law.table, aim, starts=law.starts.tried, rng=rng)
        if draws:
            sample, how = draw(member, law.table, aim, draws=draws, resample="auto", rng=rng)
            member = replace(member, draws=sample, how=how)
        members.append(replace(member, weight=float(w)))
    return members


def _drift(law: Law) -> ExtrapolationError:
    """Drift of the best size: what fits of the smaller runs made of the largest run's compute.

    The best size there by all runs stands for the truth. A smaller fit's own variance is taken
    to be that of the whole one as far beyond its runs.
    """
    rng = np.random.default_rng(0)
    table = thinned(law.table, rng)
    need = max(m.form.p for m in law.members) + SPARE
    masks = cuts(table, need)
    if not masks:
        return drift([], [], [], USUAL, TAU)
    top = float(table.logs["C"].max())
    parts = [fit_parts(m.form, table, masks, law.aim, starts=6, rng=rng) for m in law.members]
    far = np.array([top - float(table.logs["C"][mask].max()) for mask in masks])
    truth = float(lowest_size(law, np.array([top]))[0])
    spread = lowest_sizes(law, top + far)[1:]
    variance = (spread.var(0) if len(spread) else np.zeros(len(far))) + 1e-6
    errors = []
    for fold in zip(*parts, strict=True):
        weighed = [replace(p, weight=m.weight) for p, m in zip(fold, law.members, strict=True)]
        seen = replace(law, members=tuple(weighed))
        errors.append(float(lowest_size(seen, np.array([top]))[0]) - truth)
    each = [np.array([e]) for e in errors]
    return drift(each, list(variance[:, None]), list(far[:, None]), USUAL, TAU)
