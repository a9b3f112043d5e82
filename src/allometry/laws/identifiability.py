"""What the runs can't tell: in words, as errors, and as profiles of the objective.

Letters: n runs, g grid points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import UnidentifiedError, require
from allometry._core.estimate import Estimate
from allometry.laws.backtests import Backtest
from allometry.laws.component import Component
from allometry.laws.compute_cost import path_of
from allometry.laws.forms import Form
from allometry.laws.intervals import curvature
from allometry.laws.runs_table import RunsTable
from allometry.laws.solver import minimise

if TYPE_CHECKING:
    from allometry.laws.law import Law


_POWERS = ("power", "floor", "chinchilla", "tied", "coupled", "repeated", "kaplan")
"""Forms whose a, alpha and beta are exponents of size and data; in others they are levels."""


RISING = 0.5
"""Rank correlation of size and loss from which on the loss is said to rise."""


def doubts(
    form: Form, params: dict[str, Estimate], table: RunsTable, backtest: Backtest
) -> list[str]:
    """Sentences on a floor, an exponent or an extrapolation that the runs don't settle."""
    said = []
    lowest = float(np.exp(table.y.min()))
    if "E" in params:
        E = params["E"]
        lo, hi = E.interval
        if E.value < 1e-3 * lowest:
            said.append("The floor E is not identified: the best fit has none (E near 0).")
        elif lo < 0.2 * lowest or hi - lo > 0.5 * lowest:
            said.append(
                f"The floor E is not identified: the runs agree with any from {max(lo, 0):.3g} to "
                f"{hi:.3g}, as the lowest loss seen is still {lowest:.3g}."
            )
    falling = {"a": -1.0, "alpha": 1.0, "beta": 1.0, "alpha_N": 1.0}
    pairs = dict.fromkeys(falling, form.variables[0]) | {"beta": form.variables[-1]}
    for letter, sign in falling.items():
        if letter not in params or form.name not in _POWERS:
            continue
        value = sign * params[letter].value
        ends = sorted(sign * e for e in params[letter].interval)
        if value <= 0:
            said.append(
                f"The loss rises with {pairs[letter]}: {letter} = {params[letter].value:.3g}. "
                "Check the columns, or that larger runs were trained as well as smaller ones."
            )
        elif ends[0] <= 0:
            said.append(
                f"The exponent {letter} is not determined: its interval includes zero, so "
                f"{pairs[letter]} may not matter at all."
            )
    # What transfer is worth in data rises, as it should.
    told = any(sentence.startswith("The loss rises") for sentence in said)
    if not told and form.name != "transfer":
        said += _rising(table)
    if {"N", "D"} <= set(form.variables) and path_of(table) is not None:
        said.append(
            "N and D grow together in these runs, so that what each of them does is not "
            "determined, nor are alpha and beta: add runs of other D/N, or fit a form in N alone."
        )
    if len(form.variables) > 1:
        for name in form.variables:
            if len(np.unique(np.round(table.logs[name], 3))) == 2:
                said.append(
                    f"{name} takes two values only, so that its exponent is not determined: what "
                    f"the law says of other {name} rests on what is usual. Add a third."
                )
    if backtest.error is not None and backtest.error > 0.1:
        said.append(
            f"Backtests missed the larger runs by {backtest.error:.0%} in the mean: the law does "
            "not hold these runs together. Are they of several kinds (tasks, data, units)?"
        )
    if backtest.folds == 0:
        said.append(
            "There are too few runs to backtest the law, so how well it extrapolates is unknown "
            "and its intervals rest on a typical drift."
        )
    return said


def floorless(members: Sequence[Component]) -> list[str]:
    """A sentence where laws that fall for ever have their full share of the average or more."""
    bare = [m for m in members if m.form.name == "kaplan" or _falling_power(m)]
    share = sum(m.weight for m in bare)
    if share < len(bare) / len(members) or not bare:
        return []
    if bare[0] is members[0]:
        first = "No floor shows in these runs, so that none is identified: the law falls for ever"
    else:
        first = f"No floor is identified by these runs: {share:.0%} of the average falls for ever"
    return [f"{first}, which a loss does not. Don't trust it far beyond them."]


def _falling_power(member: Component) -> bool:
    return member.form.name == "power" and float(member.theta[1]) > 0


def _rising(table: RunsTable) -> list[str]:
    """A sentence where larger runs lose more, whatever the form made of it."""
    order = table.order()
    ranks = [np.unique(a, return_inverse=True)[1].reshape(-1) for a in (order, table.y)]
    together = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    if together < RISING:
        return []
    name = next(name for name in ("C", "N", "D") if table.varies(name))
    return [
        f"The loss rises with {name} (rank correlation {together:.2f}). Check the columns, or "
        "that larger runs were trained as well as smaller ones."
    ]


def identified(law: "Law", letter: str, *, within: float = 0.5) -> Estimate:
    """A parameter, if the runs determine it; else an `UnidentifiedError` that carries it.

    Args:
        law: A fitted law.
        letter: Which parameter.
        within: Half-width of its interval, relative to its value, beyond which it is not
            determined.
    """
    require(letter in law.params, "identified.letter", f"be one of {list(law.params)}", letter)
    estimate = law.params[letter]
    lo, hi = estimate.interval
    if not np.isfinite(hi - lo) or hi - lo > 2 * within * abs(estimate.value):
        raise UnidentifiedError(
            f"{letter} must lie within {within:.0%} to count as determined; the runs allow "
            f"{lo:.3g} to {hi:.3g}. Add larger runs, or read it off `.estimate` all the same.",
            estimate,
        )
    return estimate


@final
@dataclass(frozen=True)
class Profile:
    """The least objective at each value of one parameter, and the interval that it implies.

    `rise` is twice the rise of the log likelihood (of a robust loss: of the objective, scaled so
    that it rises as a likelihood would); the interval is where it stays below 3.84, the 95 % point
    of chi-square with one degree of freedom.
    """

    letter: str
    value: Float[ndarray, " g"]
    rise: Float[ndarray, " g"]
    interval: tuple[float, float]


def profile(law: "Law", letter: str, *, points: int = 41, span: float = 4.0) -> Profile:
    r"""Profile likelihood of a parameter of the law's first form, others refitted at each value.

    The objective is the law's own. Its rise is divided by
    $\kappa = E\psi^2 / E\psi'$, the noise's variance for least squares and what takes its place
    for a robust loss. An end of the interval is infinite where the rise stays below 3.84 as far
    as `span` standard errors away.

    Args:
        law: A fitted law.
        letter: Which parameter.
        points: Values at which to refit.
        span: How far to look, in standard errors of the draws.

    References:
        `huber1964` section 4 (variance of a robust fit).
    """
    member, objective = law.members[0], law.aim
    require(letter in law.params, "profile.letter", f"be one of {list(law.params)}", letter)
    j = list(member.form.letters).index(letter)
    X, y = member.at(law.table.logs), law.table.y
    weights = objective.weights(law.table)
    sd = float(member.draws[:, j].std()) if len(member.draws) > 1 else 0.3
    grid = member.theta[j] + np.linspace(-span, span, points) * max(sd, 1e-3)
    starts = np.repeat(member.theta[None], points, 0)
    starts[:, j] = grid
    # A very stiff pull holds the parameter at each value while the rest is refitted.
    mean, pull = (starts.copy(), np.zeros(member.form.p))
    if member.prior is not None:
        pull = member.prior[1].copy()
        mean = np.broadcast_to(member.prior[0], starts.shape).copy()
        mean[:, j] = grid
    pull[j] = 1e6
    found = minimise(
        member.form,
        X,
        objective.goal(y),
        starts,
        weights=weights,
        delta=objective.delta,
        prior=(mean, pull),
        raw=objective.raw,
    )
    held = 0.5 * pull[j] * (found.theta[:, j] - grid) ** 2
    cost = found.objective - held
    if member.prior is not None:
        cost = cost + 0.5 * member.prior[1][j] * (grid - member.prior[0][j]) ** 2
    rise = 2 * (cost - cost.min()) / _kappa(law)
    public = [member.form.public(t[None], member.centre)[letter][0] for t in found.theta]
    values = np.array(public)
    least = int(np.argmin(rise))
    ends = [_crossed(values[: least + 1][::-1], rise[: least + 1][::-1])]
    ends.append(_crossed(values[least:], rise[least:]))
    rising = values[-1] >= values[0]
    lo, hi = ends if rising else ends[::-1]
    lo, hi = -np.inf if lo is None else lo, np.inf if hi is None else hi
    return Profile(letter, values, rise, (lo, hi))


def _crossed(value: Float[ndarray, " g"], rise: Float[ndarray, " g"]) -> float | None:
    """Where the rise first passes 3.84 going outwards; None where it never does."""
    above = np.flatnonzero(rise > 3.841458820694124)
    if not len(above):
        return None
    i = int(above[0])
    part = (3.841458820694124 - rise[i - 1]) / (rise[i] - rise[i - 1]) if i else 0.0
    return float(value[i - 1] + part * (value[i] - value[i - 1])) if i else float(value[0])


def _kappa(law: "Law") -> float:
    """Mean square of the loss's slope at the residuals over the mean of its curvature."""
    member, objective = law.members[0], law.aim
    value = member.form.value(member.theta[None], member.at(law.table.logs))[0]
    r = objective.goal(law.table.y) - objective.goal(value)
    bent = float(curvature(r, objective.delta, member.form.p).mean())
    free = max(law.n - member.form.p, 1) / law.n
    return float((np.clip(r, -objective.delta, objective.delta) ** 2).mean()) / (bent * free)
