"""What the runs can't tell: in words, as errors, and as profiles of the objective.

Letters: n runs, g grid points.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import UnidentifiedError, require
from allometry._core.estimate import Estimate
from allometry.laws.backtest import Backtest
from allometry.laws.forms import Form
from allometry.laws.objective import FORECAST
from allometry.laws.solve import minimise
from allometry.laws.table import Table

if TYPE_CHECKING:
    from allometry.laws.law import Law


def doubts(form: Form, params: dict[str, Estimate], table: Table, backtest: Backtest) -> list[str]:
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
    falling = {"a": -1.0, "alpha": 1.0, "beta": 1.0}
    pairs = {"a": form.variables[0], "alpha": form.variables[0], "beta": form.variables[-1]}
    for letter, sign in falling.items():
        if letter not in params or form.name == "transfer":
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
    if len(form.variables) > 1:
        for name in form.variables:
            if len(np.unique(np.round(table.logs[name], 3))) == 2:
                said.append(
                    f"{name} takes two values only, so that its exponent is not determined: what "
                    f"the law says of other {name} rests on what is usual. Add a third."
                )
    if backtest.folds == 0:
        said.append(
            "There are too few runs to backtest the law, so how well it extrapolates is unknown "
            "and its intervals rest on a typical drift."
        )
    return said


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

    `rise` is twice the rise of the log likelihood; the interval is where it stays below 3.84, the
    95 % point of chi-square with one degree of freedom.
    """

    letter: str
    value: Float[ndarray, " g"]
    rise: Float[ndarray, " g"]
    interval: tuple[float, float]


def profile(law: "Law", letter: str, *, points: int = 41, span: float = 4.0) -> Profile:
    """Profile likelihood of a parameter of the law's first form, others refitted at each value.

    Residuals count as normal with the law's noise; an end of the interval is infinite where the
    rise stays below 3.84 as far as `span` standard errors (or log units) away.

    Args:
        law: A fitted law.
        letter: Which parameter.
        points: Values at which to refit.
        span: How far to look, in standard errors of the draws.
    """
    member = law.members[0]
    require(letter in law.params, "profile.letter", f"be one of {list(law.params)}", letter)
    j = list(member.form.letters).index(letter)
    X, y = member.at(law.table.logs), law.table.y
    weights = FORECAST.weights(law.table) if len(law.members) > 1 or member.prior else None
    sd = float(member.draws[:, j].std()) if len(member.draws) > 1 else 0.3
    grid = member.theta[j] + np.linspace(-span, span, points) * max(sd, 1e-3)
    starts = np.repeat(member.theta[None], points, 0)
    starts[:, j] = grid
    # A very stiff pull holds the parameter at each value while the rest is refitted.
    stiff = np.zeros(member.form.p)
    stiff[j] = 1e6
    found = minimise(
        member.form, X, y, starts, weights=weights, delta=np.inf, prior=(starts.copy(), stiff)
    )
    held = (0.5 * stiff * (found.theta - starts) ** 2).sum(1)
    rise = 2 * (found.objective - held - (found.objective - held).min())
    rise = rise / max(member.noise, 1e-9) ** 2
    public = [member.form.public(t[None], member.centre)[letter][0] for t in found.theta]
    values = np.array(public)
    inside = rise <= 3.841458820694124
    lo = -np.inf if inside[0] else float(values[inside].min())
    hi = np.inf if inside[-1] else float(values[inside].max())
    return Profile(letter, values, rise, (min(lo, hi), max(lo, hi)))
