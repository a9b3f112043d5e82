"""Compute-optimal allocation of a budget to size and data, with backtested intervals.

`auto` averages forms to predict losses anywhere. The allocation depends on slopes near the
compute-optimal frontier, so it has a law of its own, of forms that have an exponent and a level
for size and for data each. If they describe all runs to within noise, all runs weigh the same;
as far as the residuals have structure, runs near the frontier weigh most.

Letters: m draws, f forms, g grid points, k backtests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.estimate import Estimate
from allometry.laws.backtests import training_masks
from allometry.laws.bootstrap import bootstrap_draws
from allometry.laws.component import Component, fit_component, fit_subsets, subsample
from allometry.laws.coupled_forms import Coupled
from allometry.laws.intervals import (
    ExtrapolationError,
    extrapolation_posterior,
    mixture_half_width,
)
from allometry.laws.inverse import lowest_size, lowest_sizes
from allometry.laws.lack_of_fit import whole_grid_fits, whole_grid_weights
from allometry.laws.objective import EFFICIENT, FORECAST, SPREAD, Objective
from allometry.laws.selection import SPARE

if TYPE_CHECKING:
    from allometry.laws.law import Law

FORMS = ("chinchilla", "coupled")
"""Forms with an exponent and a level for size and for data each. Eq. 1.5 of Kaplan et al. has them
too, but no irreducible loss, which biases its optimal sizes upwards near that loss."""

TAU = np.exp(np.linspace(np.log(0.005), np.log(1.0), 33))
ERROR_PRIOR = (0.03, 0.8)
"""Prior of the error of the optimal log size per e-fold of compute: median, and standard deviation
of its log."""

GROWTH = (0.5, 0.1)
"""Prior mean and standard deviation of the exponent of the optimal size in compute: 0.46 to 0.51
by each approach of Hoffmann et al., by Besiroglu et al. and for Llama 3. Runs determine it better
only if they span decades of compute."""

LEAST = 0.02
"""A fit with less than this share of the allocation is left out."""


@final
@dataclass(frozen=True)
class Allocation:
    """The compute-optimal size and data of a law.

    Args:
        law: The law whose minimum at a compute is the optimal allocation.
        backtested: Whether intervals include the extrapolation error of backtests. For a form
            that was asked for by name the interval is that of its draws.
        criteria: What the fit of each member minimises; by default the law's criterion.
    """

    law: "Law"
    backtested: bool
    criteria: tuple[Objective, ...] = ()

    @cached_property
    def extrapolation_error(self) -> ExtrapolationError | None:
        """Error of the optimal log size per e-fold of compute beyond the runs."""
        if not self.backtested:
            return None
        return _extrapolation_error(self.law, self.member_criteria)

    @property
    def member_criteria(self) -> tuple[Objective, ...]:
        """What the fit of each member minimises."""
        return self.criteria or (self.law.criterion,) * len(self.law.members)

    @property
    def max_log_compute(self) -> float:
        """Log of the largest compute of a run."""
        return float(self.law.table.logs["C"].max())

    @cached_property
    def data_weight(self) -> float:
        """Weight of the runs against the prior `GROWTH` for the exponent beyond them: 0 to 1.

        It follows from the variance of the draws' exponents over the next decade of compute.
        """
        if not self.backtested or not len(self.law.members[0].draws):
            return 1.0
        decade = float(np.log(10.0))
        ends = lowest_sizes(self.law, self.max_log_compute + np.array([0.0, decade]))[1:]
        variance = float(((ends[:, 1] - ends[:, 0]) / decade).var())
        return GROWTH[1] ** 2 / (GROWTH[1] ** 2 + variance)

    def prior_shift(self, c: Float[ndarray, " g"]) -> Float[ndarray, " g"]:
        """The effect of the prior on the log of the optimal size at each log compute."""
        top = self.max_log_compute
        far = np.maximum(c - top, 0.0) if self.backtested else np.zeros_like(c)
        if self.data_weight == 1.0 or not far.any():
            return np.zeros_like(c)
        start, *ends = lowest_size(self.law, np.append(top, c))
        return (1 - self.data_weight) * np.where(far > 0, GROWTH[0] * far - (ends - start), 0.0)

    def prior_shifts(self, c: float) -> Float[ndarray, " m"]:
        """The same at one log compute for the law (first) and each draw, with a prior draw."""
        far = c - self.max_log_compute if self.backtested else 0.0
        if self.data_weight == 1.0 or far <= 0:
            return np.zeros(len(self.law.members[0].draws) + 1)
        start, end = lowest_sizes(self.law, np.array([self.max_log_compute, c])).T
        growth = np.random.default_rng(0).normal(*GROWTH, len(start))
        growth[0] = GROWTH[0]
        return (1 - self.data_weight) * (growth * far - (end - start))

    def size_estimate(self, best: Float[ndarray, " m"], c: float, level: float = 0.95) -> Estimate:
        """The optimal size at log compute `c`, with its interval.

        Args:
            best: Logs of the optimal sizes of the law (first) and of its draws.
            c: Log of the budget.
            level: Probability that the interval should cover.
        """
        value = float(best[0])
        if len(best) < 20:
            return Estimate(float(np.exp(value)), method="no bootstrap draws")
        outer = 0.95 if self.extrapolation_error is not None else level
        lo, hi = (float(q) for q in np.quantile(best[1:], [0.5 - outer / 2, 0.5 + outer / 2]))
        method = "bootstrap"
        if self.extrapolation_error is not None:
            far = max(c - self.max_log_compute, 0.0)
            sides = np.maximum(np.array([value - lo, hi - value]), 0.0) / 1.96
            # As for losses, the bias of the bootstrap is ignored.
            sides = np.maximum(sides, max((hi - lo) / (4 * 1.96), 1e-9))
            error = self.extrapolation_error
            scale = np.sqrt(sides[:, None] ** 2 + error.tau**2 * far**2)
            below, above = mixture_half_width(scale, error.weight, level)
            lo, hi = value - float(below), value + float(above)
            method = "bootstrap and backtested extrapolation error, near the frontier"
        return Estimate(
            float(np.exp(value)),
            lo=float(np.exp(min(lo, value))),
            hi=float(np.exp(max(hi, value))),
            level=level,
            n=len(best) - 1,
            method=method,
        )

    def at(self, c: float) -> tuple[Estimate, Estimate]:
        """Optimal size and data at log compute `c`, both with intervals."""
        best = lowest_sizes(self.law, np.array([c]))[:, 0]
        size = self.size_estimate(best + self.prior_shifts(c), c)
        cost = self.law.cost
        return size, matching_data(
            size, lambda n: float(cost.data(np.array([c]), np.array([n]))[0])
        )


def matching_data(size: Estimate, log_data: Callable[[float], float]) -> Estimate:
    """The data at a fixed compute for a size; the upper end of one is the lower of the other.

    Args:
        size: The size.
        log_data: Log data as a function of log size.
    """

    def at(value: float) -> float:
        return float(np.exp(log_data(float(np.log(value)))))

    if size.lo is None or size.hi is None:
        return Estimate(at(size.value), method=size.method)
    return Estimate(at(size.value), lo=at(size.hi), hi=at(size.lo), n=size.n, method=size.method)


def allocation_of(law: "Law") -> Allocation:
    """The allocation of a law: by the law itself for a named form, else by fits of its own.

    An average of forms, weighted for predicting any larger run, had twice the error on the optimal
    sizes of held-out budgets (`bench/split.py`). Fits near the frontier err least there, but waste
    the other runs if a form describes them all (`bench/known_law.py`). So both kinds of fit are
    averaged, with the evidence for structure in the residuals as the weight of the former.

    References:
        `hoffmann2022` section 3 (the exponents behind `GROWTH`).
    """
    if not law.criterion.recency or "C" not in law.table.logs:
        return Allocation(law, backtested=False)
    suitable = [m for m in law.members if m.form.name in FORMS]
    efficient = 0 < law.criterion.frontier <= EFFICIENT
    if efficient:
        if len(suitable) == len(law.members):
            return Allocation(law, backtested=True)
        if suitable:
            total = sum(m.weight for m in suitable)
            members = tuple(replace(m, weight=m.weight / total) for m in suitable)
            return Allocation(replace(law, members=members), backtested=True)
    near = replace(law.criterion, frontier=EFFICIENT)
    if law.criterion.frontier and not efficient:  # weights of `auto` are for any larger run
        near = replace(near, shrink=SPREAD.shrink, recency=SPREAD.recency, least=0.0)
    whole = replace(FORECAST, recency=0.0, measured=law.criterion.measured)
    fits = [] if efficient else _whole_grid(law)
    rest = 1.0 - sum(weight for _, weight in fits)
    wanted = [(member, weight, whole) for member, weight in fits]
    if rest >= LEAST:
        forms = [(m.form, m.weight) for m in suitable] or [(Coupled(), 1.0)]
        total = sum(weight for _, weight in forms)
        rng = np.random.default_rng(0)
        for form, weight in forms:
            member = fit_component(form, law.table, near, starts=law.starts.tried, rng=rng)
            wanted.append((member, rest * weight / total, near))
    wanted = [(m, w, criterion) for m, w, criterion in wanted if w >= LEAST]
    wanted.sort(key=lambda row: -row[1])
    total = sum(w for _, w, _ in wanted)
    members = tuple(replace(_drawn(law, m, by), weight=w / total) for m, w, by in wanted)
    own = replace(law, members=members, criterion=near)
    return Allocation(own, backtested=True, criteria=tuple(by for *_, by in wanted))


def _whole_grid(law: "Law") -> list[tuple[Component, float]]:
    """Fits to all runs with equal weights, each with the evidence for it."""
    fits = whole_grid_fits(law.table, measured=law.criterion.measured, starts=law.starts.tried)
    weights = whole_grid_weights(fits, law.table)
    return [(fit, float(weight)) for fit, weight in zip(fits, weights, strict=True)]


def _drawn(law: "Law", member: Component, criterion: Objective) -> Component:
    """The fit with as many draws as the law has, of the same resampled runs for every form."""
    draws = len(law.members[0].draws)
    if not draws:
        return member
    sample, name = bootstrap_draws(
        member,
        law.table,
        criterion,
        draws=draws,
        resample="auto",
        rng=np.random.default_rng(1),
        resampling=np.random.default_rng(0),
    )
    return replace(member, draws=sample, resampling=name)


def _extrapolation_error(law: "Law", criteria: tuple[Objective, ...]) -> ExtrapolationError:
    """Error of the optimal size per e-fold of compute, by the backtests and `ERROR_PRIOR`."""
    errors, variance, far = (list(v[:, None]) for v in size_backtests(law, criteria))
    return extrapolation_posterior(errors, variance, far, ERROR_PRIOR, TAU)


def size_backtests(
    law: "Law", criteria: tuple[Objective, ...]
) -> tuple[Float[ndarray, " k"], Float[ndarray, " k"], Float[ndarray, " k"]]:
    """Error of the optimal size: fits of the smaller runs against all, at the largest compute.

    The optimal size of the fit to all runs counts as the truth. The variance of a smaller fit is
    taken to be that of the whole fit at the same distance beyond its runs.

    Args:
        law: The law of the allocation.
        criteria: What the fit of each member minimises.

    Returns:
        Log error, its variance and the e-folds of compute beyond the smaller runs, by backtest.
    """
    rng = np.random.default_rng(0)
    table = subsample(law.table, rng)
    need = max(m.form.p for m in law.members) + SPARE
    masks = training_masks(table, need)
    if not masks:
        return np.empty(0), np.empty(0), np.empty(0)
    top = float(table.logs["C"].max())
    parts = [
        fit_subsets(m.form, table, masks, criterion, starts=6, rng=rng)
        for m, criterion in zip(law.members, criteria, strict=True)
    ]
    far = np.array([top - float(table.logs["C"][mask].max()) for mask in masks])
    truth = float(lowest_size(law, np.array([top]))[0])
    spread = lowest_sizes(law, top + far)[1:]
    variance = (spread.var(0) if len(spread) else np.zeros(len(far))) + 1e-6
    errors = []
    for fold in zip(*parts, strict=True):
        weighted = [replace(p, weight=m.weight) for p, m in zip(fold, law.members, strict=True)]
        smaller = replace(law, members=tuple(weighted))
        errors.append(float(lowest_size(smaller, np.array([top]))[0]) - truth)
    return np.array(errors), variance, far
