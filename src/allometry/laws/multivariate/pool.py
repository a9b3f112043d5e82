"""The next runs from a pool of candidates, for predictions at given targets.

Letters: s draws, k candidates, t targets, n runs, v variables.

Forms and parameters that the runs leave open are drawn at random, and each draw predicts every
candidate and every target. A run is worth as much as it lowers the variance of the targets'
predictions over these draws, per cost. Disagreement between forms counts as variance, so that the
design does not rest on one form being right. Before any run, the draws are those of the priors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from allometry._core.errors import require, require_seed
from allometry.laws.multivariate.candidates import BILINEAR_POWER, compose
from allometry.laws.multivariate.draws import of_member
from allometry.laws.multivariate.expression_forms import ExpressionForm, Link
from allometry.laws.multivariate.groups import Fitted, fit_groups
from allometry.laws.multivariate.pool_problem import PoolProblem, assemble, finished, usable
from allometry.laws.multivariate.selection import DELTA
from allometry.laws.multivariate.variable_runs import (
    Table,
    coordinates,
    costs,
)

DRAWS = 400
"""Random laws."""

NOISE = 0.01
"""Least standard deviation of a run as the design counts it: forms are never quite right."""

PRIOR_FREE = 4
"""Runs that the least noise is worth when the noise is estimated."""

DISCREPANCY = 0.02
"""Standard deviation of the part of the response that no form has, on the scale of the link."""

LENGTH = 1.0
"""Its length of correlation, in standard deviations of the coordinates."""

COST_POWER = 0.5
"""A run is judged by its decrease of variance over this power of its cost."""

LEAST = 6
"""Observed runs from which on the draws come from fits rather than from the priors."""


def choose_runs(
    pool: Any,
    observed: Any,
    *,
    variables: Sequence[str],
    response: str = "loss",
    cost: str | Sequence[float] = "cost",
    target: Any,
    budget: float,
    seed: int = 0,
    roles: Mapping[str, str] | None = None,
    most: int | None = None,
) -> list[int]:
    """Positions of the rows of `pool` to run next, the most useful first.

    Args:
        pool: Candidate runs: a frame or mapping of columns with `variables` and the cost.
        observed: Finished runs: the same columns and the response; may be empty or None.
        variables: Columns that the law depends on; labels make groups.
        response: The column to predict.
        cost: Column of the pool, an expression such as `6*N*D`, or numbers.
        target: Rows for which the response is to be predicted.
        budget: Largest sum of the chosen rows' costs.
        seed: Seed of the random laws.
        roles: Roles of some variables, as for `fit`.
        most: Largest number of rows.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> N = np.logspace(6, 9, 7)
        >>> pool = {"N": N, "cost": N}
        >>> rows = laws.choose_runs(
        ...     pool, None, variables=["N"], target={"N": [1e10]}, budget=2e8
        ... )
        >>> bool(N[rows].sum() <= 2e8)
        True
    """
    return design(
        pool,
        observed,
        variables=variables,
        response=response,
        cost=cost,
        target=target,
        budget=budget,
        seed=seed,
        roles=roles,
        most=most,
    ).rows


@final
@dataclass(frozen=True)
class PoolDesign:
    """Rows of a pool to run next, in order, with what they cost and the widths they leave.

    Args:
        rows: Positions in the pool.
        costs: The cost of each.
        widths: Expected half-width of the targets' 95 % intervals after each, relative to the
            response (or to its spread, if it has both signs): the part that runs can lower.
        now: The same before any of them.
    """

    rows: list[int]
    costs: list[float]
    widths: list[float]
    now: float

    @property
    def spent(self) -> float:
        """The cost of all rows."""
        return float(sum(self.costs))

    @property
    def after(self) -> float:
        """The width after all rows."""
        return self.widths[-1] if self.widths else self.now

    def to_dict(self) -> dict[str, Any]:
        """The design as plain values, ready for JSON."""
        return {
            "rows": list(self.rows),
            "costs": list(self.costs),
            "widths": list(self.widths),
            "now": self.now,
            "after": self.after,
            "spent": self.spent,
        }


def design(
    pool: Any,
    observed: Any,
    *,
    variables: Sequence[str],
    response: str,
    cost: str | Sequence[float],
    target: Any,
    budget: float,
    seed: int,
    roles: Mapping[str, str] | None = None,
    most: int | None = None,
    width: float = 0.0,
) -> PoolDesign:
    """The rows that `choose_runs` gives, with the width after each.

    Args:
        pool: Candidate runs.
        observed: Finished runs.
        variables: Columns that the law depends on.
        response: The column to predict.
        cost: The cost of the candidates.
        target: Rows to predict.
        budget: Largest sum of costs.
        seed: Seed of the random laws.
        roles: Roles of some variables.
        most: Largest number of rows.
        width: Stop when the expected width is no larger.
    """
    require_seed(seed, "choose_runs.seed")
    budget = float(budget)
    require(budget >= 0, "choose_runs.budget", "be 0 or more", budget)
    require(most is None or most >= 0, "choose_runs.most", "be 0 or more", most)
    paid = costs(pool, cost)
    assert paid is not None
    require(not np.any(paid < 0), "choose_runs.cost", "be 0 or more in every row", cost)
    names = list(variables)
    require(bool(names), "choose_runs.variables", "name at least one column", names)
    have = usable(pool, names, "pool")
    require(len(paid) == len(have), "choose_runs.cost", f"have {len(have)} rows", len(paid))
    have &= np.isfinite(paid)
    asked = usable(target, names, "target")
    seen = finished(observed, names, response)
    finite = "have a row with finite variables and cost"
    require(bool(have.any()), "choose_runs.pool", finite, "none")
    require(bool(asked.any()), "choose_runs.target", "have a row with finite variables", "none")
    problem = assemble((observed, seen), (pool, have), (target, asked), names, response, roles)
    rng = np.random.default_rng(seed)
    few = _too_few(problem)
    S, noise = (_prior_draws(problem, rng), NOISE) if few else _posterior_draws(problem, rng)
    rows = np.flatnonzero(have)
    limit = problem.k if most is None else most
    covariances = _covariances(problem, S, noise, condition=few)
    chosen, widths = _greedy(problem, covariances, noise, paid[rows], budget, limit, width)
    picked = [int(rows[i]) for i in chosen]
    return PoolDesign(picked, [float(paid[i]) for i in picked], widths[1:], widths[0])


def _too_few(problem: PoolProblem) -> bool:
    """Whether the observed runs allow no fit, so that laws are drawn from the priors."""
    table, n = problem.table, problem.n
    return n < LEAST or float(np.ptp(table.y[:n])) == 0 or not table.variables


def _forms(table: Table, rows: Int[ndarray, "..."] | None = None) -> list[ExpressionForm]:
    """The candidates, without the bilinear power law: its wide priors make designs worse."""
    return [f for f in compose(table, rows) if not f.name.startswith(BILINEAR_POWER)]


def _posterior_draws(
    problem: PoolProblem, rng: np.random.Generator
) -> tuple[Float[ndarray, "s all"], float]:
    """Values of random laws given the observed runs, on the scale of the link, and the noise."""
    table, n = problem.table, problem.n
    rows = np.arange(n)
    every = _forms(table, rows)
    forms = [f for f in every if f.p <= max(n, 4)] or every[:1]
    fits = [fit_groups(f, table, [rows], starts=6, rng=rng, delta=DELTA)[0] for f in forms]
    noise = np.array([max(f.noise, NOISE) for f in fits])
    # Forms with larger residuals are less plausible; the power allows for misspecification.
    weight = (noise.min() / noise) ** min(n / 4, 8.0)
    counts = np.maximum(np.round(DRAWS * weight / weight.sum()).astype(int), 0)
    parts = [
        of_member(f, table.X, table.group, int(c), rng)
        for f, c in zip(fits, counts, strict=True)
        if c
    ]
    return _bounded(np.concatenate(parts), table.z[:n]), _noise(fits, weight)


def _noise(fits: Sequence[Fitted], weight: Float[ndarray, " f"]) -> float:
    """Standard deviation of a run: that of the plausible forms, shrunk to the least with few."""
    squares = np.array([f.noise**2 for f in fits])
    free = np.array([f.dof for f in fits])
    each = (free * squares + PRIOR_FREE * NOISE**2) / (free + PRIOR_FREE)
    return max(float(np.sqrt((weight * each).sum() / weight.sum())), NOISE)


def _prior_draws(problem: PoolProblem, rng: np.random.Generator) -> Float[ndarray, "s all"]:
    """Values of random forms with random parameters from their priors."""
    table = problem.table
    size = table.X.shape[1]
    if not table.variables:
        return rng.normal(size=(DRAWS, 1)) * np.ones((1, size))
    typical = replace(
        table, y=np.linspace(1.0, 2.0, size), link=Link(True, 1.5)
    )  # a response of this range sets the priors' levels
    parts = []
    forms = _forms(typical)
    each = max(20, DRAWS // len(forms))
    for form in forms:
        mean, sd = form.prior(typical.X, typical.y)
        theta = mean + np.minimum(sd, 3.0) * rng.normal(size=(each, form.p))
        rows = list(table.places(form.variables))
        values = np.empty((each, size))
        for g in np.unique(table.group):
            at = table.group == g
            own = theta + 0.3 * np.minimum(sd, 3.0) * rng.normal(size=theta.shape)
            values[:, at] = form.value(own, table.X[rows][:, at])
        parts.append(values)
    return _bounded(np.concatenate(parts), np.array([0.0, 0.7]))


def _bounded(S: Float[ndarray, "s all"], z: Float[ndarray, " n"]) -> Float[ndarray, "s all"]:
    """The draws without those that are not finite or leave any plausible range."""
    low, high = float(z.min()), float(z.max())
    room = 3 * max(high - low, 0.1)
    fine = np.isfinite(S).all(1)
    return np.clip(S[fine] if fine.sum() >= 20 else np.nan_to_num(S), low - room, high + room)


def _covariances(
    problem: PoolProblem, S: Float[ndarray, "s all"], noise: float, *, condition: bool
) -> tuple[Float[ndarray, "k k"], Float[ndarray, "k t"], Float[ndarray, " t"]]:
    """Covariances of candidates, of candidates and targets, and the targets' variance.

    What no form has is known near the observed runs. Draws from the priors do not know these runs
    either, so the whole covariance is conditioned on them: the second run differs from the first.

    Args:
        problem: The points.
        S: Values of random laws.
        noise: Standard deviation of a run.
        condition: Whether the draws are yet to be conditioned on the observed runs.
    """
    table, n = problem.table, problem.n
    Z, group = coordinates(table.variables, table.X), table.group
    here, there, seen = problem.candidates, problem.targets, slice(0, n)
    A = (S - S.mean(0)) / np.sqrt(len(S))

    def rest(P: slice, Q: slice) -> Float[ndarray, "a b"]:
        return _discrepancy(Z[:, P], Z[:, Q], group[P], group[Q])

    KC = A[:, here].T @ A[:, here] + rest(here, here)
    KT = A[:, here].T @ A[:, there] + rest(here, there)
    variance = (A[:, there] ** 2).sum(0) + DISCREPANCY**2
    if n:
        K, B, C = rest(seen, seen), rest(seen, here), rest(seen, there)
        if condition:
            K = K + A[:, seen].T @ A[:, seen]
            B = B + A[:, seen].T @ A[:, here]
            C = C + A[:, seen].T @ A[:, there]
        K = K + noise**2 * np.eye(n)
        solved = np.linalg.solve(K, B)
        KC, KT = KC - B.T @ solved, KT - solved.T @ C
        variance = variance - np.einsum("nt,nt->t", C, np.linalg.solve(K, C))
    return KC, KT, variance


def _greedy(
    problem: PoolProblem,
    covariances: tuple[Float[ndarray, "k k"], Float[ndarray, "k t"], Float[ndarray, " t"]],
    noise: float,
    paid: Float[ndarray, " k"],
    budget: float,
    most: int,
    enough: float,
) -> tuple[list[int], list[float]]:
    """Rows that lower the targets' mean variance most per cost, and widths before and after."""
    KC, KT, variance = covariances
    left, chosen = budget, []
    widths = [_width(variance)]
    free: Bool[ndarray, " k"] = np.ones(problem.k, bool)
    price = np.maximum(paid, 1e-12 * max(float(paid.max()), 1e-300)) ** COST_POWER
    while len(chosen) < most and widths[-1] > enough:
        able = free & (paid <= left * (1 + 1e-12))
        if not able.any():
            break
        gain = (KT**2).mean(1) / (np.maximum(np.diag(KC), 0.0) + noise**2) / price
        i = int(np.argmax(np.where(able, gain, -np.inf)))
        chosen.append(i)
        free[i] = False
        left -= float(paid[i])
        down = KC[i, i] + noise**2
        variance = variance - KT[i] ** 2 / down
        widths.append(_width(variance))
        row = KC[i] / down
        KT = KT - np.outer(row, KT[i])
        KC = KC - np.outer(row, KC[i])
    return chosen, widths


def _width(variance: Float[ndarray, " t"]) -> float:
    """Half-width of a 95 % interval with the targets' mean variance."""
    return 1.96 * float(np.sqrt(np.maximum(variance, 0.0).mean()))


def _discrepancy(
    P: Float[ndarray, "v a"],
    Q: Float[ndarray, "v b"],
    gp: Int[ndarray, " a"],
    gq: Int[ndarray, " b"],
) -> Float[ndarray, "a b"]:
    """Covariance of what no form has: smooth over the coordinates, separate between groups."""
    square = sum(
        ((p[:, None] - q) ** 2 for p, q in zip(P, Q, strict=True)), np.zeros((len(gp), len(gq)))
    )
    same = np.where(gp[:, None] == gq, 1.0, 0.3)
    return DISCREPANCY**2 * same * np.exp(-0.5 * square / LENGTH**2)
