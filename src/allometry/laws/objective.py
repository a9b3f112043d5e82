"""What a fit minimises: Huber's loss on the residuals, weights of the runs, priors.

Letters: n runs, p parameters, v variables.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import Prior, Problem


@final
@dataclass(frozen=True)
class Objective:
    r"""$\sum_i w_i \rho_\delta(r_i) + \frac{\sigma^2}{2} \sum_j ((\theta_j - \mu_j)/s_j)^2$.

    Args:
        delta: Threshold of Huber's loss in log loss; 0 for absolute deviations (a Laplace
            likelihood), infinity for least squares.
        shrink: $\sigma$ in units of the noise, clipped to `SIGMA`. At 1 the penalty is the
            normal prior $\mu_j \pm s_j$ of a form's parameters. Values above 1 allow for a
            misspecified form, whose residuals are correlated between runs. 0 for no prior.
        recency: A run with a share c of the largest compute has weight $c^q$, where q is
            `recency` times n / (n + `sparse`) for n configurations. With many runs, the largest
            suffice for the fit.
        sparse: See `recency`.
        frontier: Where size and data both vary, a run whose log loss lies h above the lowest loss
            at no more compute has weight $e^{-h/\mathrm{frontier}}$: no form is accurate both
            there and near the compute-optimal frontier. 0 for no such weight.
        measured: Weight runs by the inverse square of their own standard errors.
        raw: Residuals of the loss itself, not of its log.
        least: Least weight of a run relative to the largest, by `recency` and `frontier`. Small
            runs then still determine the law among themselves.
    """

    delta: float = 1e-3
    shrink: float = 0.0
    recency: float = 0.0
    sparse: float = 30.0
    frontier: float = 0.0
    measured: bool = False
    raw: bool = False
    least: float = 0.0

    def prior(
        self, form: Form, X: Float[ndarray, "v n"], y: Float[ndarray, " n"], noise: float
    ) -> Prior | None:
        """The penalty on a form's parameters, given the noise of the runs."""
        if not self.shrink:
            return None
        mean, sd = form.prior(X, y)
        sigma = float(np.clip(self.shrink * noise, *SIGMA))
        return mean, (sigma / sd) ** 2

    def response(self, y: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """The fitted quantity for log losses `y`: the logs, or the losses."""
        return np.exp(y) if self.raw else y

    def problem(
        self,
        form: Form,
        X: Float[ndarray, "v *each n"],
        y: Float[ndarray, "..."],
        weights: Float[ndarray, "..."] | None,
        prior: Prior | None,
    ) -> Problem:
        """What the solver minimises for log losses `y`."""
        return Problem(form, X, self.response(y), weights, self.delta, prior, self.raw)

    def weights(self, table: RunsTable) -> Float[ndarray, " n"] | None:
        """The weights of the runs, or None if all are 1."""
        w = None
        if self.recency:
            t = table.order()
            n = table.configurations
            # In a table without compute, the one variable stands for its square root.
            power = self.recency * (1.0 if "C" in table.logs else 2.0) * n / (n + self.sparse)
            w = np.exp(power * (t - t.max()))
        if self.frontier and table.varies("N") and table.varies("D"):
            near = np.exp(-above_frontier(table) / self.frontier)
            w = near if w is None else w * near
        if w is not None and self.least:
            w = np.maximum(w, self.least * w.max())
        if self.measured and table.se is not None:
            own = 1 / table.se**2
            w = own / own.mean() if w is None else w * own / own.mean()
        return w


def above_frontier(table: RunsTable) -> Float[ndarray, " n"]:
    """How far the log loss of each run lies above the lowest of the runs of no more compute."""
    t = table.order()
    by_compute = np.argsort(t, kind="stable")
    lowest = np.minimum.accumulate(table.y[by_compute])
    # Runs of one budget count as equal: their compute differs by rounding of size and data.
    last = np.searchsorted(t[by_compute], t + SAME_BUDGET, side="right") - 1
    return table.y - lowest[last]


SAME_BUDGET = 0.01
"""Largest difference in log compute of runs of one budget."""

SIGMA = (0.003, 0.03)
"""Range of the log error per run that the prior is weighted against."""

PLAIN = Objective()
"""The published practice: Huber's loss with delta 1e-3 on the log, equal weights, no prior."""

FORECAST = Objective(delta=0.03, shrink=3.0, recency=1.0)
"""For predictions of larger runs: large runs weigh more, with weakly informative priors."""

SPREAD = replace(FORECAST, delta=0.015, recency=2.0, sparse=60.0)
"""The same where size and data vary independently. Small runs cover a plane, and no form is
accurate on all of it."""

STEEP = replace(SPREAD, shrink=1.0, recency=4.0, frontier=0.05, least=0.002)
"""The same where no form describes all runs: large runs near the frontier count most."""

EFFICIENT = 0.015
"""`frontier` for fits of the runs near the compute-optimal frontier."""


def grid_objective(described: float) -> Objective:
    """The objective for a grid of sizes and data: between `SPREAD` and `STEEP`.

    Args:
        described: Evidence that a form describes all runs, from 0 to 1
            (`lack_of_fit.evidence_for_forms`). At 1 all runs are worth fitting.
    """
    lacking = 1.0 - described
    if lacking < 1e-3:
        return SPREAD
    return replace(
        SPREAD,
        shrink=SPREAD.shrink + lacking * (STEEP.shrink - SPREAD.shrink),
        recency=SPREAD.recency + lacking * (STEEP.recency - SPREAD.recency),
        frontier=STEEP.frontier / lacking,
        least=lacking * STEEP.least,
    )
