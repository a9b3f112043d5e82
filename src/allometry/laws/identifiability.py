"""What the runs do not identify: warnings, errors, and profiles of the objective.

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
"""Forms whose a, alpha and beta are exponents of size and data."""


RISING = 0.5
"""Rank correlation of size and loss from which a warning says that the loss rises."""


def identifiability_warnings(
    form: Form, params: dict[str, Estimate], table: RunsTable, backtest: Backtest
) -> list[str]:
    """Sentences on an irreducible loss, an exponent or an extrapolation that is not identified."""
    messages = _parameter_warnings(form, params, float(np.exp(table.y.min())))
    # The effective data transferred rise with size, as expected.
    rises = any(sentence.startswith("The loss rises") for sentence in messages)
    if not rises and form.name != "transfer":
        messages += _rising(table)
    if {"N", "D"} <= set(form.variables) and path_of(table) is not None:
        messages.append(
            "N and D grow together in these runs, so their separate effects (alpha and beta) are "
            "not identified: add runs of other D/N, or fit a form in N alone."
        )
    if len(form.variables) > 1:
        for name in form.variables:
            if len(np.unique(np.round(table.logs[name], 3))) == 2:
                messages.append(
                    f"{name} takes two values only, so its exponent is not identified: these runs "
                    f"do not determine predictions at other {name}. Add a third."
                )
    if backtest.error is not None and backtest.error > 0.1:
        messages.append(
            f"The mean backtest error on larger runs is {backtest.error:.0%}: one law does not "
            "fit these runs. Check whether they differ in task, data or unit."
        )
    if backtest.folds == 0:
        messages.append(
            "There are too few runs to backtest the law. Its extrapolation error is unknown, and "
            "its intervals rest on a typical one."
        )
    return messages


def _parameter_warnings(form: Form, params: dict[str, Estimate], lowest: float) -> list[str]:
    """Sentences on the irreducible loss and the exponents."""
    messages = []
    if "E" in params:
        E = params["E"]
        lo, hi = E.interval
        if E.value < 1e-3 * lowest:
            messages.append(
                "The irreducible loss E is not identified: the best fit has none (E near 0)."
            )
        elif lo < 0.2 * lowest or hi - lo > 0.5 * lowest:
            messages.append(
                "The irreducible loss E is not identified: the runs agree with any from "
                f"{max(lo, 0):.3g} to {hi:.3g}, as the lowest loss of a run is {lowest:.3g}."
            )
    if form.name.startswith("frontier"):
        messages += _frontier_warnings(params["gamma"], "E" in params)
    falling = {"a": -1.0, "alpha": 1.0, "beta": 1.0, "alpha_N": 1.0}
    pairs = dict.fromkeys(falling, form.variables[0]) | {"beta": form.variables[-1]}
    for letter, sign in falling.items():
        if letter not in params or form.name not in _POWERS:
            continue
        value = sign * params[letter].value
        ends = sorted(sign * e for e in params[letter].interval)
        if value <= 0:
            messages.append(
                f"The loss rises with {pairs[letter]}: {letter} = {params[letter].value:.3g}. "
                "Check the columns, or that larger runs were trained as well as smaller ones."
            )
        elif ends[0] <= 0:
            messages.append(
                f"The exponent {letter} is not identified: its interval includes zero, so "
                f"{pairs[letter]} may have no effect."
            )
    return messages


def _frontier_warnings(gamma: Estimate, irreducible: bool) -> list[str]:
    """Sentences on the exponent along the frontier.

    With an irreducible loss it trades off against that loss, of which another sentence speaks.
    """
    if gamma.value <= 0:
        return [
            f"The loss rises with compute: gamma = {gamma.value:.3g}. Check the columns, or that "
            "larger runs were trained as well as smaller ones."
        ]
    if gamma.interval[0] <= 0 and not irreducible:
        return [
            "The exponent gamma is not identified: its interval includes zero, so more compute "
            "may have no effect."
        ]
    return []


def irreducible_loss_warning(members: Sequence[Component]) -> list[str]:
    """A warning if forms without an irreducible loss have at least an equal share."""
    bare = [m for m in members if m.form.name in ("kaplan", "frontier_power") or _falling_power(m)]
    share = sum(m.weight for m in bare)
    if share < len(bare) / len(members) or not bare:
        return []
    if bare[0] is members[0]:
        first = "the law has no irreducible term"
    else:
        first = f"{share:.0%} of the average has no irreducible term"
    return [
        f"These runs do not identify an irreducible loss: {first}. Do not use the law far beyond "
        "the runs."
    ]


def _falling_power(member: Component) -> bool:
    return member.form.name == "power" and float(member.theta[1]) > 0


def _rising(table: RunsTable) -> list[str]:
    """A warning if larger runs have higher losses, regardless of the form."""
    order = table.order()
    ranks = [np.unique(a, return_inverse=True)[1].reshape(-1) for a in (order, table.y)]
    correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    if correlation < RISING:
        return []
    name = next(name for name in ("C", "N", "D") if table.varies(name))
    return [
        f"The loss rises with {name} (rank correlation {correlation:.2f}). Check the columns, or "
        "that larger runs were trained as well as smaller ones."
    ]


def identified(law: "Law", letter: str, *, within: float = 0.5) -> Estimate:
    """A parameter if the runs identify it; else raises `UnidentifiedError` with the estimate.

    Args:
        law: A fitted law.
        letter: Which parameter.
        within: Largest half-width of its interval, relative to its value, that counts as
            identified.
    """
    require(letter in law.params, "identified.letter", f"be one of {list(law.params)}", letter)
    estimate = law.params[letter]
    lo, hi = estimate.interval
    if not np.isfinite(hi - lo) or hi - lo > 2 * within * abs(estimate.value):
        raise UnidentifiedError(
            f"{letter} must lie within {within:.0%} to count as identified; the runs allow "
            f"{lo:.3g} to {hi:.3g}. Add larger runs, or use `.estimate` of this error.",
            estimate,
        )
    return estimate


@final
@dataclass(frozen=True)
class Profile:
    """The minimum of the objective at each value of one parameter, and the implied interval.

    `rise` is twice the decrease of the log likelihood (for a robust loss: the rise of the
    objective, scaled like a likelihood). The interval is where it stays below 3.84, the 95 %
    quantile of chi-square with one degree of freedom.
    """

    letter: str
    value: Float[ndarray, " g"]
    rise: Float[ndarray, " g"]
    interval: tuple[float, float]


def profile(law: "Law", letter: str, *, points: int = 41, span: float = 4.0) -> Profile:
    r"""Profile likelihood of a parameter of the law's first form; the others are refitted.

    The objective is the law's own. Its rise is divided by
    $\kappa = E\psi^2 / E\psi'$, which is the noise variance for least squares and its analogue
    for a robust loss. An end of the interval is infinite if the rise stays below 3.84 up to
    `span` standard errors away.

    Args:
        law: A fitted law.
        letter: Which parameter.
        points: Number of values at which to refit.
        span: Range of the values, in standard errors of the draws.

    References:
        `huber1964` section 4 (variance of a robust fit).
    """
    member, objective = law.members[0], law.criterion
    require(letter in law.params, "profile.letter", f"be one of {list(law.params)}", letter)
    j = list(member.form.letters).index(letter)
    X, y = member.at(law.table.logs), law.table.y
    weights = objective.weights(law.table)
    sd = float(member.draws[:, j].std()) if len(member.draws) > 1 else 0.3
    grid = member.theta[j] + np.linspace(-span, span, points) * max(sd, 1e-3)
    starts = np.repeat(member.theta[None], points, 0)
    starts[:, j] = grid
    # A very narrow prior fixes the parameter at each value while the others are refitted.
    mean, precision = (starts.copy(), np.zeros(member.form.p))
    if member.prior is not None:
        precision = member.prior[1].copy()
        mean = np.broadcast_to(member.prior[0], starts.shape).copy()
        mean[:, j] = grid
    precision[j] = 1e6
    problem = objective.problem(member.form, X, y, weights, (mean, precision))
    found = minimise(problem, starts)
    penalty = 0.5 * precision[j] * (found.theta[:, j] - grid) ** 2
    cost = found.objective - penalty
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
    """Where the rise first exceeds 3.84 going outwards; None if it never does."""
    above = np.flatnonzero(rise > 3.841458820694124)
    if not len(above):
        return None
    i = int(above[0])
    part = (3.841458820694124 - rise[i - 1]) / (rise[i] - rise[i - 1]) if i else 0.0
    return float(value[i - 1] + part * (value[i] - value[i - 1])) if i else float(value[0])


def _kappa(law: "Law") -> float:
    """Mean square of the slope of Huber's loss at the residuals over its mean curvature."""
    member, objective = law.members[0], law.criterion
    value = member.value(law.table.logs)
    r = objective.response(law.table.y) - objective.response(value)
    curved = float(curvature(r, objective.delta, member.form.p).mean())
    free = max(law.n - member.form.p, 1) / law.n
    return float((np.clip(r, -objective.delta, objective.delta) ** 2).mean()) / (curved * free)
