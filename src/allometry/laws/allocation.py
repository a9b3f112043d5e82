"""Compute-optimal allocation of a budget to size and data, with backtested intervals.

`auto` averages forms to predict losses anywhere. The allocation depends on slopes near the
compute-optimal frontier, so it has a law of its own: a fit in which runs near the frontier weigh
most, of forms that have an exponent and a level for size and for data each.

Letters: m draws, f forms, g grid points.
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
from allometry.laws.forms import Form
from allometry.laws.intervals import (
    ExtrapolationError,
    extrapolation_posterior,
    mixture_half_width,
)
from allometry.laws.inverse import lowest_size, lowest_sizes
from allometry.laws.objective import EFFICIENT
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


@final
@dataclass(frozen=True)
class Allocation:
    """The compute-optimal size and data of a law.

    Args:
        law: The law whose minimum at a compute is the optimal allocation.
        backtested: Whether intervals include the extrapolation error of backtests. For a form
            that was asked for by name the interval is that of its draws.
    """

    law: "Law"
    backtested: bool

    @cached_property
    def extrapolation_error(self) -> ExtrapolationError | None:
        """Error of the optimal log size per e-fold of compute beyond the runs."""
        return _extrapolation_error(self.law) if self.backtested else None

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

    def size_estimate(self, best: Float[ndarray, " m"], c: float) -> Estimate:
        """The optimal size at log compute `c`, with its interval.

        Args:
            best: Logs of the optimal sizes of the law (first) and of its draws.
            c: Log of the budget.
        """
        value = float(best[0])
        if len(best) < 20:
            return Estimate(float(np.exp(value)), method="no bootstrap draws")
        lo, hi = (float(q) for q in np.quantile(best[1:], [0.025, 0.975]))
        method = "bootstrap"
        if self.extrapolation_error is not None:
            far = max(c - self.max_log_compute, 0.0)
            sides = np.maximum(np.array([value - lo, hi - value]), 0.0) / 1.96
            # As for losses, the bias of the bootstrap is ignored.
            sides = np.maximum(sides, max((hi - lo) / (4 * 1.96), 1e-9))
            error = self.extrapolation_error
            scale = np.sqrt(sides[:, None] ** 2 + error.tau**2 * far**2)
            below, above = mixture_half_width(scale, error.weight)
            lo, hi = value - float(below), value + float(above)
            method = "bootstrap and backtested extrapolation error, near the frontier"
        return Estimate(
            float(np.exp(value)),
            lo=float(np.exp(min(lo, value))),
            hi=float(np.exp(max(hi, value))),
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
    """The allocation of a law: by the law itself for a named form, else by a fit of its own.

    An average of forms, weighted for predicting any larger run, had twice the error on the optimal
    sizes of held-out budgets (`bench/split.py`).

    References:
        `hoffmann2022` section 3 (the exponents behind `GROWTH`).
    """
    if not law.criterion.recency or "C" not in law.table.logs:
        return Allocation(law, backtested=False)
    suitable = [m for m in law.members if m.form.name in FORMS]
    if law.criterion.frontier and len(suitable) == len(law.members):
        return Allocation(law, backtested=True)
    forms: list[Form] = [m.form for m in suitable] or [Coupled()]
    weight = np.array([m.weight for m in suitable] or [1.0])
    weight = weight / weight.sum()
    if law.criterion.frontier and suitable:
        members = [replace(m, weight=float(w)) for m, w in zip(suitable, weight, strict=True)]
    else:
        members = _fit_near_frontier(law, forms, weight)
    criterion = replace(law.criterion, frontier=law.criterion.frontier or EFFICIENT)
    own = replace(law, members=tuple(members), criterion=criterion)
    return Allocation(own, backtested=True)


def _fit_near_frontier(
    law: "Law", forms: list[Form], weight: Float[ndarray, " f"]
) -> list[Component]:
    """The forms fitted to the runs near the frontier, with as many draws as the law has."""
    criterion = replace(law.criterion, frontier=EFFICIENT)
    rng = np.random.default_rng(0)
    draws = len(law.members[0].draws)
    members = []
    for form, w in zip(forms, weight, strict=True):
        member = fit_component(form, law.table, criterion, starts=law.starts.tried, rng=rng)
        if draws:
            sample, name = bootstrap_draws(
                member, law.table, criterion, draws=draws, resample="auto", rng=rng
            )
            member = replace(member, draws=sample, resampling=name)
        members.append(replace(member, weight=float(w)))
    return members


def _extrapolation_error(law: "Law") -> ExtrapolationError:
    """Error of the optimal size: fits of the smaller runs against all, at the largest compute.

    The optimal size of the fit to all runs counts as the truth. The variance of a smaller fit is
    taken to be that of the whole fit at the same distance beyond its runs.
    """
    rng = np.random.default_rng(0)
    table = subsample(law.table, rng)
    need = max(m.form.p for m in law.members) + SPARE
    masks = training_masks(table, need)
    if not masks:
        return extrapolation_posterior([], [], [], ERROR_PRIOR, TAU)
    top = float(table.logs["C"].max())
    parts = [
        fit_subsets(m.form, table, masks, law.criterion, starts=6, rng=rng) for m in law.members
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
    each = [np.array([e]) for e in errors]
    return extrapolation_posterior(
        each, list(variance[:, None]), list(far[:, None]), ERROR_PRIOR, TAU
    )
