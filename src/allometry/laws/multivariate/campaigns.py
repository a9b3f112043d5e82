"""Campaigns of runs from a pool: the next ones for a law, and a replay on a finished table.

Letters: n runs, t targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.multivariate.fitting import fit_variables
from allometry.laws.multivariate.law import VariableLaw
from allometry.laws.multivariate.pool import PoolDesign, choose_runs, design
from allometry.laws.multivariate.variable_runs import SEPARATOR, column_names, costs, numeric

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of the whole cost at which a replay fits a law."""

CLOSE = (1.2, 0.002)
"""An error within this factor of that of all runs, or so little above it, counts as reached."""


GROWTH = 0.2
"""Share of more runs after which a replay chooses anew, given what they showed."""


def looks(runs: int) -> int:
    """Runs to take until the next choice: one by one at first, later a share of those at hand.

    Example:
        >>> looks(0), looks(9), looks(50)
        (1, 1, 10)
    """
    return max(1, int(GROWTH * runs))


def next_from_pool(
    law: VariableLaw,
    pool: Any,
    *,
    target: Any,
    budget: float,
    cost: str | Sequence[float] | None = None,
    most: int | None = None,
    width: float = 0.0,
    seed: int = 0,
) -> PoolDesign:
    """The next runs of a pool for a law's predictions, given the runs it was fitted to.

    Args:
        law: The law; its runs are the observed ones.
        pool: Candidate runs with the law's variables.
        target: Rows to predict.
        budget: Largest sum of costs.
        cost: Column of the pool, an expression or numbers. Default: the law's, or `cost`.
        most: Largest number of runs.
        width: Stop when the expected half-width of the targets' intervals is no larger,
            relative to the response.
        seed: Seed of the random laws.
    """
    paid = cost if cost is not None else (law.cost or "cost")
    return design(
        pool,
        observed(law),
        variables=law.variables,
        response=law.table.response,
        cost=paid,
        target=target,
        budget=budget,
        seed=seed,
        roles=law.roles,
        most=most,
        width=width,
    )


def observed(law: VariableLaw) -> dict[str, Any]:
    """The runs of a law as columns."""
    table = law.table
    out: dict[str, Any] = dict(zip(table.names, table.X, strict=True))
    labels = [table.groups[g].split(SEPARATOR) for g in table.group]
    out |= {by: [label[i] for label in labels] for i, by in enumerate(table.by)}
    return out | {table.response: table.y}


@final
@dataclass(frozen=True)
class ReplayStep:
    """A law after some of the runs.

    Args:
        share: Share of the cost of all runs.
        runs: Number of runs.
        spent: Their cost.
        error: Root mean square of the error at the targets, relative to the response's level.
        width: Mean half-width of the 95 % intervals there, in the same unit.
        coverage: Share of the targets inside their intervals.
        r2: Coefficient of determination at the targets.
    """

    share: float
    runs: int
    spent: float
    error: float
    width: float
    coverage: float
    r2: float


@final
@dataclass(frozen=True)
class Replay:
    """A simulated campaign on a finished table: steps of growing cost; the last has all runs."""

    steps: list[ReplayStep]

    @property
    def enough(self) -> ReplayStep:
        """The first step whose error is about that of all runs."""
        last = self.steps[-1].error
        limit = max(CLOSE[0] * last, last + CLOSE[1])
        return next(step for step in self.steps if step.error <= limit)

    @property
    def saved(self) -> float:
        """Share of the cost that the campaign would have saved for about the same error."""
        return 1 - self.enough.spent / max(self.steps[-1].spent, 1e-300)

    def to_dict(self) -> dict[str, Any]:
        """The replay as plain values, ready for JSON."""
        steps = [dict(step.__dict__) for step in self.steps]
        return {"steps": steps, "enough": self.enough.share, "saved": self.saved}


def replay(
    pool: Any,
    *,
    variables: Sequence[str],
    target: Any,
    response: str = "loss",
    cost: str | Sequence[float] = "cost",
    shares: Sequence[float] = SHARES,
    roles: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Replay:
    """What a campaign by `choose_runs` would have reached on a finished table, and at what cost.

    The runs are chosen one after another: after each one its response is revealed and the next
    one chosen anew, and after every 20 % of more runs once there are ten. At each share of the
    whole cost a law is fitted.

    Args:
        pool: Finished runs: columns with the variables, the cost and the response.
        variables: Columns that the law depends on.
        target: Rows to predict, with the response.
        response: The column to predict.
        cost: Column, expression of columns, or numbers.
        shares: Shares of the cost of all runs at which a law is fitted.
        roles: Roles of some variables.
        seed: Seed of the choices.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> N = np.logspace(6, 9, 30)
        >>> pool = {"N": N, "loss": 1.5 + 30 / N**0.25, "cost": N}
        >>> goal = {"N": np.array([4e9]), "loss": np.array([1.5 + 30 / 4e9**0.25])}
        >>> steps = laws.replay(pool, variables=["N"], target=goal, shares=[0.1]).steps
        >>> bool(steps[0].error < 0.02 and steps[0].spent < 0.1 * N.sum())
        True
    """
    paid = costs(pool, cost)
    assert paid is not None
    for share in shares:
        require(0 < share < 1, "replay.shares", "be between 0 and 1", share)
    require(
        response in column_names(target),
        "replay.target",
        f"have the column {response!r}, with which predictions are compared",
        column_names(target),
    )
    truth = numeric(target, response, "replay.target")
    require(bool(np.isfinite(truth).all()), "replay.target", "have finite responses", response)
    y = numeric(pool, response, "replay.pool")
    require(len(y) == len(paid), "replay.cost", f"have {len(y)} rows", len(paid))
    usable = np.flatnonzero(np.isfinite(y) & np.isfinite(paid) & (paid >= 0))
    total = float(paid[usable].sum())
    have: list[int] = []
    steps = []
    for share in sorted(shares):
        limit = share * total
        while rest := _affordable(usable, have, paid, limit):
            more = choose_runs(
                _rows(pool, np.array(rest)),
                _rows(pool, np.array(have, int)),
                variables=variables,
                response=response,
                cost=paid[rest].tolist(),
                target=target,
                budget=limit - float(paid[have].sum()),
                seed=seed,
                roles=roles,
                most=looks(len(have)),
            )
            if not more:
                break
            have += [rest[i] for i in more]
        if have:
            steps.append(_step(pool, np.array(have), paid, total, target, truth, variables,
                               response, roles, seed))  # fmt: skip
    steps.append(_step(pool, usable, paid, total, target, truth, variables, response, roles, seed))
    return Replay(steps)


def _affordable(
    usable: Int[ndarray, "..."], have: list[int], paid: Float[ndarray, " n"], limit: float
) -> list[int]:
    """Rows that are left, if the cost of one of them is within the limit; else none."""
    left = limit - float(paid[have].sum())
    rest = [int(i) for i in np.setdiff1d(usable, have)]
    return rest if any(paid[i] <= left for i in rest) else []


def _rows(data: Any, rows: Int[ndarray, "..."]) -> dict[str, Any]:
    return {
        name: np.asarray(data[name], dtype=object).reshape(-1)[rows] for name in column_names(data)
    }


def _step(
    pool: Any,
    rows: Int[ndarray, "..."],
    paid: Float[ndarray, " n"],
    total: float,
    target: Any,
    truth: Float[ndarray, " t"],
    variables: Sequence[str],
    response: str,
    roles: Mapping[str, str] | None,
    seed: int,
) -> ReplayStep:
    law = fit_variables(
        _rows(pool, rows),
        variables=variables,
        response=response,
        cost=paid[rows].tolist(),
        roles=roles,
        seed=seed,
    )
    at: dict[str, Any] = {name: np.asarray(target[name]).reshape(-1) for name in law.variables}
    lower, value, upper = law.band(**at)
    away = value - truth
    level = float(np.sqrt(np.mean(truth**2))) or 1.0
    around = float(((truth - truth.mean()) ** 2).sum())
    spent = float(paid[rows].sum())
    return ReplayStep(
        share=spent / max(total, 1e-300),
        runs=len(rows),
        spent=spent,
        error=float(np.sqrt(np.mean(away**2))) / level,
        width=float(np.mean(upper - lower)) / 2 / level,
        coverage=float(np.mean((lower <= truth) & (truth <= upper))),
        r2=1 - float((away**2).sum()) / around if around else float("nan"),
    )
