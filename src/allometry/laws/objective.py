"""What a fit minimises: the loss on residuals, the weights of the runs, the pull of habits.

Letters: n runs, p parameters, v variables.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import Prior


@final
@dataclass(frozen=True)
class Objective:
    r"""$\sum_i w_i \rho_\delta(r_i) + \frac{\sigma^2}{2} \sum_j ((\theta_j - \mu_j)/s_j)^2$.

    Args:
        delta: Where Huber's loss turns from square to linear, in log loss; 0 for absolute
            deviations (a Laplace likelihood), infinity for least squares.
        shrink: $\sigma$ in units of the noise, kept within `SIGMA`. At 1 the habits
            $\mu_j \pm s_j$ of a form's parameters are a Bayesian's prior; more than 1 allows for
            a form that is wrong, whose residuals are alike from run to run. 0 for no habits.
        recency: A run with a share c of the largest compute weighs $c^q$, where q is
            `recency` times n / (n + `sparse`) for n configurations: where runs are many, those
            near the ones asked for can do without the rest.
        sparse: See `recency`.
        frontier: Where size and data both vary, a run whose log loss lies h above the least that
            no more compute has reached weighs $e^{-h/\mathrm{frontier}}$: forms can't be right
            both there and near the efficient runs. 0 for no such weight.
        measured: Weigh by the inverse square of the runs' own standard errors.
        raw: Residuals of the loss itself, not of its log.
    """

    delta: float = 1e-3
    shrink: float = 0.0
    recency: float = 0.0
    sparse: float = 30.0
    frontier: float = 0.0
    measured: bool = False
    raw: bool = False

    def prior(
        self, form: Form, X: Float[ndarray, "v n"], y: Float[ndarray, " n"], noise: float
    ) -> Prior | None:
        """The penalty on a form's parameters when runs have so much noise."""
        if not self.shrink:
            return None
        mean, sd = form.habits(X, y)
        sigma = float(np.clip(self.shrink * noise, *SIGMA))
        return mean, (sigma / sd) ** 2

    def goal(self, y: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """What is to be met: log losses, or losses."""
        return np.exp(y) if self.raw else y

    def weights(self, table: RunsTable) -> Float[ndarray, " n"] | None:
        """The runs' weights, or None where all weigh 1."""
        w = None
        if self.recency:
            t = table.order()
            n = table.configurations
            # In a table without compute, the one variable stands for the root of it.
            power = self.recency * (1.0 if "C" in table.logs else 2.0) * n / (n + self.sparse)
            w = np.exp(power * (t - t.max()))
        if self.frontier and table.varies("N") and table.varies("D"):
            near = np.exp(-_above(table) / self.frontier)
            w = near if w is None else w * near
        if self.measured and table.se is not None:
            own = 1 / table.se**2
            w = own / own.mean() if w is None else w * own / own.mean()
        return w


def _above(table: RunsTable) -> Float[ndarray, " n"]:
    """How far each run's log loss lies above the least of the runs of no more compute."""
    by_compute = np.argsort(table.order(), kind="stable")
    y = table.y[by_compute]
    out = np.empty(table.n)
    out[by_compute] = y - np.minimum.accumulate(y)
    return out


SIGMA = (0.003, 0.03)
"""Least and greatest log error per run that habits are weighed against."""

PLAIN = Objective()
"""The published practice: Huber's loss with delta 1e-3 on the log, all runs alike, no habits."""

FORECAST = Objective(delta=0.03, shrink=3.0, recency=1.0)
"""For predictions of larger runs: the large runs weigh more, and weak habits steady few runs."""

SPREAD = replace(FORECAST, delta=0.015, recency=2.0, sparse=60.0)
"""The same where size and data vary apart from one another. Small runs lie all over that plane,
and no form is right in all of it."""

EFFICIENT = 0.015
"""`frontier` where efficient runs are what is asked for."""
