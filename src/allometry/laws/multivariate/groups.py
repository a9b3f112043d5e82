"""Partial pooling: one form fitted to several groups of runs, which share a prior.

Letters: p parameters, g groups, n runs, v variables, k points asked for.

The parameters of a group are drawn from a normal distribution over groups. Its mean and standard
deviations come from the groups' own fits (empirical Bayes), so that a group of few runs borrows
strength from the others and a group of many runs keeps its own parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.forms import Form
from allometry.laws.multivariate.expression_forms import ExpressionForm
from allometry.laws.multivariate.levels import fit_levels
from allometry.laws.multivariate.members import Member, fit_sets
from allometry.laws.multivariate.variable_runs import Table
from allometry.laws.solver import Prior

LEAST_SPREAD = 0.15
"""Least prior standard deviation between groups, relative to that of the form's own prior."""


@final
@dataclass(frozen=True)
class Fitted:
    """A form fitted to the groups of a table.

    Args:
        form: The form.
        rows: Places of the form's variables among those of the table.
        members: The fit of each group, by its index; groups without runs use `pooled`.
        pooled: The mean over groups, with the spread between them as its covariance.
        weight: Its share of the average.
    """

    form: Form
    rows: tuple[int, ...]
    members: dict[int, Member]
    pooled: Member
    weight: float = 1.0

    @property
    def noise(self) -> float:
        """Noise of a run: the median over groups."""
        return float(np.median([m.noise for m in self.members.values()]))

    @property
    def dof(self) -> int:
        """Degrees of freedom of the noise."""
        return sum(m.dof for m in self.members.values())

    def of(self, group: int) -> Member:
        """The fit of a group."""
        return self.members.get(group, self.pooled)

    def value(self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]) -> Float[ndarray, " k"]:
        """Values on the scale of the link."""
        out = np.empty(X.shape[1])
        for g in np.unique(group):
            at = group == g
            out[at] = self.of(int(g)).value(X[self.rows, :][:, at])
        return out

    def variance(
        self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]
    ) -> Float[ndarray, " k"]:
        """Variance of the values from that of the parameters."""
        out = np.empty(X.shape[1])
        for g in np.unique(group):
            at = group == g
            out[at] = (self.of(int(g)).spread(X[self.rows, :][:, at]) ** 2).sum(1)
        return out


def fit_groups(
    form: Form,
    table: Table,
    sets: Sequence[Int[ndarray, "..."]],
    *,
    starts: int,
    rng: np.random.Generator,
    delta: float,
    fine: bool = False,
    shrink: bool = True,
    weights: Float[ndarray, " n"] | None = None,
) -> list[Fitted]:
    """The form fitted to each set of rows; within a set, to each group with partial pooling.

    A form that is `shared` has the same parameters in all groups but for a level.
    """
    places = table.places(form.variables)
    if isinstance(form, ExpressionForm) and form.shared:
        chosen = {"starts": starts, "rng": rng, "delta": delta, "weights": weights}
        return [
            Fitted(pooled.form, places, members, pooled)
            for members, pooled in fit_levels(form, table, sets, chosen)
        ]
    X, z = table.X[list(places)], table.z
    parts = [
        (k, int(g), rows[table.group[rows] == g])
        for k, rows in enumerate(sets)
        for g in np.unique(table.group[rows])
    ]
    options: dict[str, Any] = {"rng": rng, "delta": delta, "weights": weights, "shrink": shrink}
    first = fit_sets(
        form, X, z, [rows for _, _, rows in parts], starts=starts, fine=fine, **options
    )
    own: list[list[int]] = [[] for _ in sets]
    for i, (k, _, _) in enumerate(parts):
        own[k].append(i)
    if max(len(each) for each in own) > 1 and shrink:
        priors: list[Prior] = [form.prior(X[:, rows], z[rows]) for _, _, rows in parts]
        for _ in range(2):
            pooled = [_population([first[i] for i in each], priors[each[0]]) for each in own]
            shared = [pooled[k] for k, _, _ in parts]
            first = fit_sets(
                form, X, z, [rows for _, _, rows in parts], starts=starts, priors=shared, **options
            )
    out = []
    for each in own:
        members = {parts[i][1]: first[i] for i in each}
        out.append(Fitted(form, places, members, _pooled(form, list(members.values()))))
    return out


def _population(members: Sequence[Member], prior: Prior) -> Prior:
    """Mean and standard deviation of the parameters over groups, given the form's own prior."""
    theta = np.stack([m.theta for m in members])
    own = np.stack([(m.factor**2).sum(1) for m in members])
    wide = np.minimum(prior[1], 3.0)
    weight = 1 / (own + (0.3 * wide) ** 2)
    mean = (weight * theta).sum(0) / weight.sum(0)
    between = (weight * ((theta - mean) ** 2)).sum(0) / weight.sum(0)
    # A few groups determine their spread badly: half an observation of the form's own prior.
    count = len(members)
    spread = np.sqrt((count * between + 0.5 * wide**2) / (count + 0.5))
    return mean, np.clip(spread, LEAST_SPREAD * wide, wide)


def _pooled(form: Form, members: Sequence[Member]) -> Member:
    if len(members) == 1:
        return members[0]
    theta = np.stack([m.theta for m in members])
    inside = np.mean([m.factor @ m.factor.T for m in members], 0)
    between = np.diag(theta.var(0) * (1 + 1 / len(members)))
    values, vectors = np.linalg.eigh(inside + between)
    return Member(
        form,
        theta.mean(0),
        float(np.median([m.noise for m in members])),
        sum(m.dof for m in members),
        vectors * np.sqrt(np.maximum(values, 0.0)),
    )
