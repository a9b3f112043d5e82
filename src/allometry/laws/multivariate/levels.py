"""One form for all groups, which differ by a level on the scale of the link.

Letters: m parameter vectors at once, p parameters of the form, g groups, n runs, v variables.

Where groups have few runs each, a shared shape with a level of its own for every group predicts
better than separate parameters. Backtests choose between the two.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.forms import Draws, Form
from allometry.laws.multivariate.expression_forms import ExpressionForm, Parameter
from allometry.laws.multivariate.law_expressions import Node
from allometry.laws.multivariate.members import Member, fit_sets
from allometry.laws.multivariate.variable_runs import Table

MOST_GROUPS = 48
"""Largest number of groups with a shared shape: the search solves for all levels at once."""

LEVEL = "level"
"""Name of the level among a form's parameters."""


@final
class Levels(Form):
    """A form plus a level for each group; the last variable is the group's index."""

    centred = False

    def __init__(self, form: Form, groups: int, sd: float) -> None:
        self.form, self.groups, self.sd = form, groups, sd
        self.name, self.equation = form.name, form.equation
        self.variables = (*form.variables, "group")
        self.letters = (*form.letters, *(f"{LEVEL}_{g}" for g in range(groups)))

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """The value on the scale of the link."""
        return self.form.value(theta[:, : self.form.p], X[:-1]) + self._level(theta, X[-1])

    def _level(self, theta: ndarray, group: ndarray) -> ndarray:
        index = group.astype(int) + self.form.p
        if index.ndim == 1:
            return theta[:, index]
        return np.take_along_axis(theta, index, 1)

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """The value and its derivative with respect to `theta`."""
        f, J = self.form.evaluate(theta[:, : self.form.p], X[:-1])
        same = X[-1][..., None, :] == np.arange(self.groups)[:, None]
        whole = np.broadcast_to(same.astype(float), (len(theta), self.groups, X.shape[-1]))
        return f + self._level(theta, X[-1]), np.concatenate([J, whole], 1)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Starts of the form for responses without the groups' means, which are the levels."""
        group = X[-1].astype(int)
        size = np.bincount(group, minlength=self.groups)
        level = np.bincount(group, y - y.mean(), minlength=self.groups) / np.maximum(size, 1)
        level -= (level * (size > 0)).sum() / max(int((size > 0).sum()), 1)
        level = np.where(size > 0, level, 0.0)
        begin = self.form.starts(X[:-1], y - level[group], count, rng)
        return np.concatenate([begin, np.tile(level, (count, 1))], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The form's prior, and levels around 0."""
        mean, sd = self.form.prior(X[:-1], y)
        return (
            np.append(mean, np.zeros(self.groups)),
            np.append(sd, np.full(self.groups, self.sd)),
        )

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by their names."""
        return self.form.public(theta[:, : self.form.p], centre)


def fit_levels(
    form: ExpressionForm,
    table: Table,
    sets: Sequence[Int[ndarray, "..."]],
    options: dict[str, Any],
) -> list[tuple[dict[int, Member], Member]]:
    """The form with levels fitted to each set of rows: each group's fit, and that of a new group.

    Args:
        form: The form.
        table: The runs.
        sets: Rows of each problem.
        options: Arguments of `fit_sets`.
    """
    X = np.concatenate([table.X[list(table.places(form.variables))], table.group[None]])
    sd = float(np.clip(table.z.std(), 0.1, 1.0))
    joint = Levels(form, len(table.groups), sd)
    own = with_level(form, sd)
    out = []
    for rows, found in zip(sets, fit_sets(joint, X, table.z, sets, **options), strict=True):
        present = [int(g) for g in np.unique(table.group[rows])]
        members = {g: _member(found, own, form.p, g) for g in present}
        levels = found.theta[form.p :][present]
        between = float(levels.var()) * (1 + 1 / len(present)) + (sd**2) / (4 * len(present))
        cov = np.zeros((form.p + 1, form.p + 1))
        inner = found.factor[: form.p]
        cov[: form.p, : form.p] = inner @ inner.T
        cov[-1, -1] = between
        theta = np.append(found.theta[: form.p], levels.mean())
        pooled = Member(own, theta, found.noise, found.dof, _root(cov), found.objective)
        out.append((members, pooled))
    return out


def _member(found: Member, own: ExpressionForm, p: int, group: int) -> Member:
    """The joint fit as seen by one group."""
    keep = [*range(p), p + group]
    part = found.factor[keep]
    return Member(
        own, found.theta[keep], found.noise, found.dof, _root(part @ part.T), found.objective
    )


def _root(cov: Float[ndarray, "p p"]) -> Float[ndarray, "p p"]:
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def with_level(form: ExpressionForm, sd: float) -> ExpressionForm:
    """The form with a level as a further parameter: a factor, or a term if the link is linear."""
    name = LEVEL
    while name in (*form.letters, *form.variables):
        name += "_"
    level = Node("name", name=name)
    if form.link.log:
        node = Node("*", (form.node, Node("exp", (level,))))
    else:
        unit = Node("number", value=form.link.unit)
        node = Node("+", (form.node, Node("*", (unit, level))))
    known = {p.name: p for p in form.parameters} | {name: Parameter(name, 0, -sd, sd, 0.0, sd)}
    return ExpressionForm(form.name, node, form.variables, form.link, known)
