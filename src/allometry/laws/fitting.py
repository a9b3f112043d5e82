"""Fit a scaling law to runs.

Letters: m draws, p parameters, n runs, v variables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError, require, require_seed
from allometry.laws.averages import estimates
from allometry.laws.backtests import (
    error_prior,
    extrapolation_error,
    run_folds,
    summary,
    training_masks,
)
from allometry.laws.bootstrap import Resample, bootstrap_draws
from allometry.laws.calibration import calibrate, calibration_warnings, irreducible_weight
from allometry.laws.component import Component, fit_component, subsample
from allometry.laws.compute_cost import cost_of, path_of, vary_independently
from allometry.laws.form_names import FORMS, named
from allometry.laws.forms import Form
from allometry.laws.identifiability import (
    identifiability_warnings,
    irreducible_loss_warning,
)
from allometry.laws.lack_of_fit import evidence_for_forms
from allometry.laws.law import Law, Starts
from allometry.laws.objective import (
    EFFICIENT,
    FORECAST,
    PLAIN,
    SPREAD,
    Objective,
    grid_objective,
)
from allometry.laws.runs_table import VARIABLES, RunsTable, read
from allometry.laws.selection import SPARE, Selection, choose, one_variable

if TYPE_CHECKING:
    from allometry.laws.multivariate.law import VariableLaw


class FitOptions(TypedDict, total=False):
    """Keyword arguments of `fit` that `extrapolate`, `fit_many` and `transfer` pass on."""

    bootstrap: int
    resample: Resample
    seed: int
    drop_highest: int
    delta: float | None
    weighted: bool
    raw: bool
    efficient: bool
    starts: int


@overload
def fit(
    data: Mapping[str, Any] | Any,
    form: str | Form | Callable[..., Any] = "auto",
    *,
    x: str | None = None,
    **options: Unpack[FitOptions],
) -> Law: ...
@overload
def fit(
    data: Mapping[str, Any] | Any,
    form: str | Form | Callable[..., Any] = "auto",
    *,
    variables: Sequence[str] | Mapping[str, str],
    response: str = "loss",
    cost: str | Sequence[float] | None = None,
    roles: Mapping[str, str] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    starts: int = 32,
    delta: float | None = None,
) -> "VariableLaw": ...
def fit(
    data: Mapping[str, Any] | Any,
    form: str | Form | Callable[..., Any] = "auto",
    *,
    x: str | None = None,
    bootstrap: int = 1000,
    resample: Resample = "auto",
    seed: int = 0,
    drop_highest: int = 0,
    delta: float | None = None,
    weighted: bool = False,
    raw: bool = False,
    efficient: bool = False,
    starts: int = 32,
    variables: Sequence[str] | Mapping[str, str] | None = None,
    response: str = "loss",
    cost: str | Sequence[float] | None = None,
    roles: Mapping[str, str] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
) -> "Law | VariableLaw":
    r"""Fit a scaling law to runs, with intervals and warnings on what is not identified.

    A named form minimises $\sum_i \rho_\delta(\log L_i - \log \hat L_i)$, Huber's loss on the log,
    from many starts at once. `auto` is for predicting larger runs: it averages forms by their
    backtests, gives large runs more weight and uses weakly informative priors (see
    `allometry.laws.objective`); its `params` are those of the form with the largest weight.

    Args:
        data: Mapping of columns or a data frame: `loss` and at least one of `N`, `D`, `C`.
        form: `auto`, a form's name (`FORMS`), a form, or your own formula as a function.
        x: The variable of a one-variable law. Default: compute, unless only N or D varies.
        bootstrap: Number of bootstrap draws for the intervals.
        resample: Kind of bootstrap; see `allometry.laws.bootstrap.bootstrap_draws`.
        seed: Seed of the starts and the draws.
        drop_highest: Number of highest losses to leave out.
        delta: Threshold of Huber's loss (1e-3; 0.03 for `auto`, half of that if size and data
            vary independently); 0 for absolute deviations (a Laplace likelihood), infinity for
            least squares.
        weighted: Weight each run by the inverse square of its `loss_se`.
        raw: Residuals of the losses themselves rather than of their logs.
        efficient: Weight runs by their distance from the compute-optimal frontier: better for
            predicting compute-optimal runs where size and data both vary, worse for runs far
            from it.
        starts: Number of starting points.
        variables: Columns of a law in any variables; `fit` then returns a `VariableLaw`. So does
            an expression as `form`, such as `E + A/N^alpha`. See
            `allometry.laws.multivariate.fitting.fit_variables` for these arguments.
        response: The column to predict, if `variables` are given.
        cost: A column or an expression such as `6*N*D` that orders the runs in backtests.
        roles: Roles of some variables.
        parameters: Ranges of starting values of an expression's parameters.

    Raises:
        InputError: If no law can be fitted to the runs.

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
    if variables is not None or _is_expression(form):
        # Imported here: fits in size and data do without, and start in half the time.
        from allometry.laws.multivariate.fitting import fit_variables

        return cast(
            "Law",  # the overloads say which
            fit_variables(
                data,
                form,
                variables=variables,
                response=response,
                cost=cost,
                roles=roles,
                parameters=parameters,
                seed=seed,
                starts=starts,
                delta=delta,
            ),
        )
    most = 100_000
    require(0 <= bootstrap <= most, "fit.bootstrap", f"be from 0 to {most:,}", bootstrap)
    require_seed(seed, "fit.seed")
    require(starts >= 1, "fit.starts", "be at least 1", starts)
    require(delta is None or delta >= 0, "fit.delta", "be 0 or more", delta)
    require(x is None or x in VARIABLES, "fit.x", "be N, D or C", x)
    make = None if form == "auto" else named(form)
    table = read(
        data, drop_highest=drop_highest, extra=() if make is None else make("N").variables
    )
    _check(table)
    if x is not None:
        require(x in table.logs, "fit.x", "be a column of the runs", x)
    if weighted:
        require(
            table.se is not None, "fit.weighted", "have a positive loss_se for every run", None
        )
    rng = np.random.default_rng(seed)
    part = subsample(table, rng)
    objective = PLAIN
    if make is None:
        grid = x is None and vary_independently(table)
        objective = _auto_objective(part, grid, efficient, weighted)
    changes: dict[str, Any] = {} if delta is None else {"delta": delta}
    if efficient:
        changes["frontier"] = EFFICIENT
    objective = replace(objective, raw=raw, measured=weighted, **changes)
    if make is None:
        chosen = choose(part, x=x, objective=objective, rng=rng)
    else:
        chosen = _named_form(part, make(x or one_variable(table)), objective, rng)
    if part.n < table.n:
        why = f"{chosen.why} Backtests used {part.n} of the {table.n} runs, drawn at random."
        chosen = replace(chosen, why=why)
    name = None if make is None else chosen.forms[0].name
    return _law(table, chosen, objective, rng, bootstrap, resample, starts, seed, name)


def _auto_objective(table: RunsTable, grid: bool, efficient: bool, measured: bool) -> Objective:
    """What `auto` minimises; on a grid it depends on whether a form describes all runs."""
    if not grid:
        return FORECAST
    return SPREAD if efficient else grid_objective(evidence_for_forms(table, measured=measured))


def _is_expression(form: Any) -> bool:
    """Whether a form is an expression or a published form in other variables."""
    if not isinstance(form, str) or form in FORMS:
        return False
    from allometry.laws.multivariate.form_library import LIBRARY

    return form in LIBRARY or any(mark in form for mark in "+-*/^(")


def extrapolate(
    x: Any,
    y: Any,
    x_new: Any,
    form: str | Form | Callable[..., Any] = "auto",
    **options: Unpack[FitOptions],
) -> ndarray:
    """Predictions of a learning curve at new points, as an array of `Estimate`.

    Args:
        x: Examples, tokens, steps or parameters.
        y: The loss or error at each x.
        x_new: Where to predict.
        form: As for `fit`.
        **options: As for `fit`.
    """
    return fit({"D": x, "loss": y}, form, **options).predict(D=x_new)


def _check(table: RunsTable) -> None:
    require(
        table.n >= 3,
        "data",
        "have at least 3 runs",
        table.n,
        "Any law fits two points: add runs of other sizes.",
    )
    table.order()
    if float(np.ptp(table.y)) < 1e-12:
        raise InputError(
            f"loss must vary; got {float(np.exp(table.y[0])):g} in all {table.n} runs. Check that "
            "the column holds the final loss."
        )


def _named_form(
    table: RunsTable, form: Form, objective: Objective, rng: np.random.Generator
) -> Selection:
    """The form asked for, with backtests if the runs suffice."""
    for name in form.variables:
        require(
            name in table.logs and (table.varies(name) or name == "D_unique"),
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
    folds = run_folds(form, table, training_masks(table, form.p + SPARE), objective, rng)
    return Selection([form], [1.0], folds, f"{form.name} was asked for.")


def _law(
    table: RunsTable,
    chosen: Selection,
    objective: Objective,
    rng: np.random.Generator,
    draws: int,
    resample: Resample,
    starts: int,
    seed: int,
    asked: str | None,
) -> Law:
    members = []
    for form, weight in zip(chosen.forms, chosen.weights, strict=True):
        member = fit_component(form, table, objective, starts=starts, rng=rng)
        sample, name = np.empty((0, form.p)), "none"
        if draws:
            sample, name = bootstrap_draws(
                member, table, objective, draws=draws, resample=resample, rng=rng, seed=seed
            )
        members.append(replace(member, draws=sample, resampling=name, weight=weight))
    first = members[0]
    params = estimates(first, table.n)
    level = irreducible_weight(members)
    backtest = summary(chosen.folds, table, asked, irreducible=level)
    calibration = calibrate(chosen.folds, table, asked, irreducible=level)
    warnings = [*table.notes, *_search_warnings(first, starts)]
    warnings += identifiability_warnings(first.form, params, table, backtest)
    warnings += irreducible_loss_warning(members) + calibration_warnings(calibration, asked)
    return Law(
        form=first.form.name,
        params=params,
        n=table.n,
        objective=first.objective,
        starts=Starts(starts, first.agree),
        backtest=backtest,
        warnings=warnings,
        why=chosen.why,
        members=tuple(members),
        folds=tuple(chosen.folds),
        extrapolation_error=extrapolation_error(
            chosen.folds, error_prior(table, min(m.noise for m in members)), calibration
        ),
        table=table,
        cost=cost_of(table),
        path=path_of(table),
        criterion=objective,
        calibration=calibration,
    )


def _search_warnings(member: Component, starts: int) -> list[str]:
    """Sentences on a search that did not converge."""
    best = int(np.argmin(member.solution.objective))
    messages = []
    if not member.solution.converged[best]:
        messages.append("The fit did not converge: its optimum lies at a bound or at infinity.")
    if member.agree < max(2, starts // 10) and starts > 1:
        messages.append(
            f"Only {member.agree} of {starts} starts reached the best fit found: "
            "a better one may exist."
        )
    return messages
