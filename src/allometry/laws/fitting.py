"""Fitting: from runs to a law.

Letters: m draws, p parameters, n runs, v variables.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.laws import forms
from allometry.laws.backtest import cuts, drift_of, run_folds, summary, weak_prior
from allometry.laws.cost import cost_of, path_of
from allometry.laws.forms import Form
from allometry.laws.identify import doubts
from allometry.laws.interval import Resample, noise_of
from allometry.laws.interval import bootstrap as resampled
from allometry.laws.law import Law, Starts
from allometry.laws.select import SPARE, Choice, choose, one_variable
from allometry.laws.solve import search
from allometry.laws.table import VARIABLES, Table, read

FORMS = ("auto", "power", "floor", "chinchilla")
"""Names that `fit(form=...)` takes."""


def fit(
    data: Mapping[str, Any] | Any,
    form: str | Form = "auto",
    *,
    x: str | None = None,
    bootstrap: int = 1000,
    resample: Resample = "auto",
    seed: int = 0,
    drop_highest: int = 0,
    delta: float = 1e-3,
    weighted: bool = False,
    starts: int = 32,
) -> Law:
    r"""The law of some runs, with intervals and with what the runs can't tell.

    Minimises $\sum_i \rho_\delta(\log L_i - \log \hat L_i)$, Huber's loss on the log, from many
    starts at once.

    Args:
        data: Mapping of columns or a data frame: `loss` and at least one of `N`, `D`, `C`.
        form: `auto`, or a form's name, or a form.
        x: The variable of a one-variable law; by default compute, unless only one thing varies.
        bootstrap: Draws behind the intervals.
        resample: Which bootstrap; see `allometry.laws.interval.bootstrap`.
        seed: Of the starts and the draws.
        drop_highest: Leave out so many of the highest losses.
        delta: Where Huber's loss turns linear; `math.inf` for least squares on the log.
        weighted: Weigh each run by the inverse square of its `loss_se`.
        starts: Starting points tried.

    Raises:
        InputError: When the runs can't be fitted at all.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> N = np.logspace(3, 6, 7)
        >>> law = laws.fit({"N": N, "loss": 1.5 + 40 / N**0.5}, form="floor", bootstrap=50)
        >>> round(law.params["alpha"].value, 3)
        0.5

    References:
        `hoffmann2022` section D.2 (Huber's loss on the log).
    """
    require(bootstrap >= 0, "fit.bootstrap", "be 0 or more", bootstrap)
    require(starts >= 1, "fit.starts", "be at least 1", starts)
    require(delta > 0, "fit.delta", "be positive", delta)
    require(x is None or x in VARIABLES, "fit.x", "be N, D or C", x)
    table = read(data, drop_highest=drop_highest)
    _check(table)
    if x is not None:
        require(x in table.logs, "fit.x", "be a column of the runs", x)
    rng = np.random.default_rng(seed)
    weights = _weights(table) if weighted else None
    chosen = (
        choose(table, x=x, delta=delta, rng=rng)
        if form == "auto"
        else _given(table, form, x, delta, rng, weights)
    )
    return _law(table, chosen, rng, bootstrap, resample, delta, weights, starts)


def extrapolate(x: Any, y: Any, x_new: Any, **options: Any) -> ndarray:
    """Predictions of a learning curve at new points, as an array of `Estimate`.

    Args:
        x: What grows: examples, tokens, steps, parameters.
        y: The loss or error at each x.
        x_new: Where to predict.
        **options: As for `fit`.
    """
    return fit({"D": x, "loss": y}, **options).predict(D=x_new)


def _check(table: Table) -> None:
    require(
        table.n >= 3,
        "data",
        "have at least 3 runs",
        table.n,
        "Two points fit any law: add runs of other sizes.",
    )
    table.order()
    if float(np.ptp(table.y)) < 1e-12:
        raise InputError(
            f"loss must vary; got {float(np.exp(table.y[0])):g} in all {table.n} runs. There is "
            "no law to fit: check that the column holds the final loss."
        )


def _weights(table: Table) -> Float[ndarray, " n"]:
    if table.se is None:
        raise InputError("fit.weighted must have a positive loss_se for every run; got none.")
    w = 1 / table.se**2
    return w / w.mean()


def _given(
    table: Table,
    form: str | Form,
    x: str | None,
    delta: float,
    rng: np.random.Generator,
    weights: Float[ndarray, " n"] | None,
) -> Choice:
    """The form asked for, with backtests where the runs allow them."""
    if isinstance(form, str):
        require(form in FORMS, "fit.form", f"be one of {', '.join(FORMS)}", form)
        if form == "chinchilla":
            form = forms.chinchilla()
        else:
            form = (forms.power if form == "power" else forms.floor)(x or one_variable(table))
    for name in form.variables:
        require(
            table.varies(name),
            f"data.{name}",
            f"take several values for the form {form.name!r}",
            "a single value" if name in table.logs else "no such column",
            "Choose a one-variable form, or add runs.",
        )
    require(
        table.configurations >= form.p,
        "data",
        f"have at least {form.p} different configurations for the form {form.name!r}",
        table.configurations,
        "Choose a simpler form, or add runs.",
    )
    masks = cuts(table, form.p + SPARE)
    folds = run_folds(form, table, masks, delta=delta, rng=rng, weights=weights)
    return Choice(form, folds, f"{form.name} was asked for.")


def _law(
    table: Table,
    chosen: Choice,
    rng: np.random.Generator,
    draws: int,
    resample: Resample,
    delta: float,
    weights: Float[ndarray, " n"] | None,
    starts: int,
) -> Law:
    form = chosen.form
    X = np.stack([table.logs[name] for name in form.variables])
    centre = X.mean(1)
    X = X - centre[:, None]
    theta0 = form.starts(X, table.y, starts, rng)
    prior = weak_prior(form, theta0)
    found = search(form, X, table.y, theta0, weights=weights, delta=delta)
    best = int(np.argmin(found.objective))
    theta, objective = found.theta[best], float(found.objective[best])
    agree = int((found.objective <= objective * (1 + 1e-6) + 1e-15).sum())
    residual = table.y - form.value(theta[None], X)[0]
    noise, dof = noise_of(residual, form.p, weights)
    sample, how = np.empty((0, form.p)), "none"
    if draws:
        sample, how = resampled(
            form,
            X,
            table.y,
            theta,
            draws=draws,
            rng=rng,
            cluster=table.cluster,
            resample=resample,
            weights=weights,
            delta=delta,
            prior=prior,
        )
    params = _estimates(form, theta, sample, centre, how, table.n)
    warnings = list(table.notes)
    if not found.converged[best]:
        warnings.append("The fit did not converge: its optimum lies at a bound or at infinity.")
    if agree < max(2, starts // 10) and starts > 1:
        warnings.append(
            f"Only {agree} of {starts} starts reached the best fit found: there may be better."
        )
    backtest = summary(chosen.folds)
    warnings += doubts(form, params, table, backtest)
    return Law(
        form=form.name,
        params=params,
        n=table.n,
        objective=objective,
        starts=Starts(starts, agree),
        backtest=backtest,
        warnings=warnings,
        why=chosen.why,
        shape=form,
        theta=theta,
        draws=sample,
        centre=centre,
        noise=noise,
        dof=dof,
        drift=drift_of(chosen.folds),
        table=table,
        cost=cost_of(table),
        path=path_of(table),
    )


def _estimates(
    form: Form,
    theta: Float[ndarray, " p"],
    draws: Float[ndarray, "m p"],
    centre: Float[ndarray, " v"],
    how: str,
    n: int,
) -> dict[str, Estimate]:
    """Each parameter's value, with standard error and interval from the draws."""
    values = form.public(theta[None], centre)
    if len(draws) < 20:
        return {
            k: Estimate(float(v[0]), n=n, method="no bootstrap draws") for k, v in values.items()
        }
    spread = form.public(draws, centre)
    return {
        k: Estimate(
            float(v[0]),
            se=float(spread[k].std(ddof=1)),
            lo=float(np.quantile(spread[k], 0.025)),
            hi=float(np.quantile(spread[k], 0.975)),
            n=n,
            method=f"{how} bootstrap",
        )
        for k, v in values.items()
    }
