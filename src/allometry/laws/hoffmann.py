"""Compute-optimal size by the three approaches of Hoffmann et al.

Letters: n runs, m draws, b budgets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.laws.fitting import fit
from allometry.laws.inverse import from_draws
from allometry.laws.runs_table import RunsTable, read

Optima = Callable[[RunsTable], tuple[Float[ndarray, " b"], Float[ndarray, " b"]]]
"""Log compute and log optimal size of each budget."""


@final
@dataclass(frozen=True)
class ApproachResult:
    r"""$N_{opt} \propto C^a$, with $N_{opt}$ at one budget and the optima of the fit."""

    approach: str
    exponent: Estimate
    N: Estimate
    budgets: Float[ndarray, " b"]
    optima: Float[ndarray, " b"]

    def to_dict(self) -> dict[str, Any]:
        """The size at the budget and the exponent, as plain values."""
        return {"N": self.N.to_dict(), "exponent": self.exponent.to_dict()}


def allocations(
    data: Mapping[str, Any] | Any,
    compute: float,
    *,
    drop_highest: int = 0,
    bootstrap: int = 200,
    seed: int = 0,
) -> dict[str, ApproachResult | InputError]:
    """Optimal size at a budget by envelope, isoFLOP parabolas and parametric law.

    If the runs do not suffice for an approach, its result is the error.

    Args:
        data: Runs with N and D (or C).
        compute: The budget in FLOPs.
        drop_highest: Number of highest losses to leave out.
        bootstrap: Number of bootstrap draws for the intervals.
        seed: Seed of the draws.

    References:
        `hoffmann2022` sections 3.1 to 3.3.
    """
    require(compute > 0, "allocations.compute", "be positive", compute)
    table = read(data, drop_highest=drop_highest)
    require({"N", "C"} <= set(table.logs), "data", "have N and D, or N and C", sorted(table.logs))
    rng = np.random.default_rng(seed)
    out: dict[str, ApproachResult | InputError] = {}
    for name, optima in (("envelope", envelope), ("isoflop", isoflop)):
        try:
            out[name] = _bootstrapped(name, table, optima, float(np.log(compute)), bootstrap, rng)
        except InputError as error:
            out[name] = error
    try:
        law = fit(data, "chinchilla", drop_highest=drop_highest, bootstrap=bootstrap, seed=seed)
        plan = law.plan(compute)
        assert plan.N is not None
        m = law.members[0]
        public = m.form.public(np.concatenate([m.theta[None], m.draws]), m.centre)
        a = public["beta"] / (public["alpha"] + public["beta"])
        exponent = _exponent(a)
        out["parametric"] = ApproachResult(
            "parametric", exponent, plan.N, np.empty(0), np.empty(0)
        )
    except InputError as error:
        out["parametric"] = error
    return out


def envelope(table: RunsTable) -> tuple[Float[ndarray, " b"], Float[ndarray, " b"]]:
    """Approach 1: log compute and log size of the runs on the lower envelope.

    A run is on the envelope of final losses (rather than whole curves) if no run of less compute
    has as low a loss; candidates are the best run in each bin of a third of an e-fold.
    """
    c, n = table.logs["C"], table.logs["N"]
    bins = np.floor((c - c.min()) * 3).astype(int)
    picks = [np.flatnonzero(bins == b)[np.argmin(table.y[bins == b])] for b in np.unique(bins)]
    best = np.inf
    rows = []
    for i in picks:
        if table.y[i] < best:
            best = table.y[i]
            rows.append(i)
    return c[rows], n[rows]


def isoflop(table: RunsTable) -> tuple[Float[ndarray, " b"], Float[ndarray, " b"]]:
    """Approach 2: for each budget with four sizes, the lowest point of a parabola in log N.

    Runs belong to one budget when their compute is within 15 %.
    """
    order = np.argsort(table.logs["C"])
    c, n, y = (a[order] for a in (table.logs["C"], table.logs["N"], table.y))
    breaks = np.flatnonzero(np.diff(c) > 0.15) + 1
    budgets, optima = [], []
    for rows in np.split(np.arange(len(c)), breaks):
        if len(np.unique(np.round(n[rows], 6))) < 4:
            continue
        mid = n[rows].mean()
        bend, slope, _ = np.polyfit(n[rows] - mid, np.exp(y[rows]), 2)
        if bend <= 0:
            continue
        at = mid - slope / (2 * bend)
        # A minimum outside the range of sizes is an extrapolation.
        if n[rows].min() <= at <= n[rows].max():
            budgets.append(c[rows].mean())
            optima.append(at)
    return np.array(budgets), np.array(optima)


def _bootstrapped(
    name: str, table: RunsTable, optima: Optima, c: float, draws: int, rng: np.random.Generator
) -> ApproachResult:
    budgets, best = optima(table)
    if len(budgets) < 3:
        raise InputError(
            f"data must give at least 3 optima for the {name} approach; got {len(budgets)}. "
            "Add runs of several sizes per budget, for three budgets or more."
        )
    lines = [_line(budgets, best, c)]
    for _ in range(draws):
        sample = table.take(rng.integers(0, table.n, table.n))
        x, z = optima(sample)
        if len(x) >= 3 and np.ptp(x) > 0:
            lines.append(_line(x, z, c))
    both = np.array(lines)
    exponent = _exponent(both[:, 0])
    return ApproachResult(name, exponent, from_draws(both[:, 1]), np.exp(budgets), np.exp(best))


def _line(x: Float[ndarray, " b"], z: Float[ndarray, " b"], c: float) -> tuple[float, float]:
    slope, level = np.polyfit(x - c, z, 1)
    return float(slope), float(level)


def _exponent(draws: Float[ndarray, " m"]) -> Estimate:
    """The first entry, with an interval from the others."""
    if len(draws) < 20:
        return Estimate(float(draws[0]), method="no bootstrap draws")
    lo, hi = np.quantile(draws[1:], [0.025, 0.975])
    return Estimate(float(draws[0]), lo=float(lo), hi=float(hi), method="bootstrap")
