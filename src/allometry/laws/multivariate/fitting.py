"""Fit a law in any variables.

Letters: n runs, p parameters, v variables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError, require, require_seed
from allometry._core.estimate import Estimate
from allometry.laws.forms import Form
from allometry.laws.formulas import Formula
from allometry.laws.multivariate.backtests import (
    MOST_ROWS,
    Errors,
    error_ratios,
    folds,
    narrowing,
    posterior,
)
from allometry.laws.multivariate.candidates import compose
from allometry.laws.multivariate.expression_forms import ExpressionForm
from allometry.laws.multivariate.form_library import LIBRARY, in_columns, ranged
from allometry.laws.multivariate.groups import Fitted, fit_groups
from allometry.laws.multivariate.law import Predictor, VariableLaw
from allometry.laws.multivariate.law_expressions import parse
from allometry.laws.multivariate.processes import (
    PROCESS,
    WITH_PROCESS,
    Process,
    fit_process,
)
from allometry.laws.multivariate.selection import (
    DELTA,
    Selection,
    choose,
    errors_of,
    recency,
)
from allometry.laws.multivariate.variable_runs import Table, column_names, read

PLAIN_DELTA = 1e-3
"""Threshold of Huber's loss for a form that was asked for, as in published fits."""


def fit_variables(
    data: Any,
    form: str | Form | Callable[..., Any] = "auto",
    *,
    variables: Sequence[str] | Mapping[str, str] | None = None,
    response: str = "loss",
    cost: str | Sequence[float] | None = None,
    roles: Mapping[str, str] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    starts: int = 32,
    delta: float | None = None,
) -> VariableLaw:
    """Fit a law of a response in any variables, with intervals.

    Args:
        data: Mapping of columns or a data frame.
        form: `auto` for candidates composed from roles; an expression such as
            `E + A/N^alpha + B/D^beta`; a name of the library (`allometry list forms`); or a
            Python function of the variables and of parameters with defaults.
        variables: Columns that the law depends on; labels make groups. Default: the names of the
            expression that are columns.
        response: The column to predict; it may have either sign.
        cost: A column, an expression of columns such as `6*N*D`, or numbers. Backtests order the
            runs by it.
        roles: Roles of some variables: scale, tuned, share, bits, fraction or group. Others are
            guessed from names and values.
        parameters: Ranges of starting values of an expression's parameters. A range below or
            across 0 lets a parameter take such values.
        seed: Seed of the starts.
        starts: Number of starting points.
        delta: Threshold of Huber's loss (0.03 for `auto`, else 0.001), relative to the response
            or to its spread if it has both signs.

    Raises:
        InputError: No law can be fitted to the runs.
    """
    require_seed(seed, "fit.seed")
    require(starts >= 1, "fit.starts", "be at least 1", starts)
    require(delta is None or delta > 0, "fit.delta", "be positive", delta)
    rng = np.random.default_rng(seed)
    names = _variables(data, form, variables, response)
    table = read(data, names, response, cost, roles, constant=form != "auto")
    if form == "auto":
        chosen, members = _automatic(table, rng, starts, delta or DELTA)
    else:
        mapping = variables if isinstance(variables, Mapping) else None
        made = _made(form, table, parameters or {}, mapping, rng)
        chosen, members = _asked(made, table, rng, starts, delta or PLAIN_DELTA)
    tau, ratios = posterior(chosen.errors), error_ratios(chosen.errors)
    lead = members[0]
    first = next((fit for m in members if (fit := fitted_form(m)) is not None), None)
    return VariableLaw(
        form=lead.name if isinstance(lead, Process) else lead.form.name,
        equation=first.form.equation if first is not None else "a Gaussian process on logs",
        params={} if first is None else estimates(first, table),
        n=table.n,
        backtest=_summary(chosen.errors, ratios),
        warnings=[*table.notes, *_warnings(table, fitted_form(lead))],
        why=chosen.why,
        members=tuple(members),
        tau=tau,
        errors=tuple(chosen.errors),
        table=table,
        cost=cost if isinstance(cost, str) else None,
        narrowing=narrowing(ratios, table.n),
    )


def _variables(
    data: Any, form: Any, variables: Sequence[str] | Mapping[str, str] | None, response: str
) -> list[str]:
    columns = column_names(data)
    if variables is not None:
        require(not isinstance(variables, str), "fit.variables", "be a list of columns", variables)
        return list(variables.values() if isinstance(variables, Mapping) else variables)
    if isinstance(form, str) and form in LIBRARY:
        return [name for name in LIBRARY[form].variables if name in columns]
    if isinstance(form, str) and form != "auto":
        return [name for name in dict.fromkeys(parse(form).names()) if name in columns]
    raise InputError(
        "fit.variables must name the columns that the law depends on; got none. "
        f"Columns: {', '.join(c for c in columns if c != response)}."
    )


def _constant(table: Table) -> bool:
    """Whether no form can be fitted: the response or every variable takes a single value."""
    flat = float(np.ptp(table.y)) <= 1e-12 * float(np.abs(table.y).max())
    return (flat and table.n > 1) or not table.variables


def _automatic(
    table: Table, rng: np.random.Generator, starts: int, delta: float
) -> tuple[Selection, list[Predictor]]:
    rows = np.arange(table.n)
    if table.n > MOST_ROWS:
        rows = np.sort(rng.permutation(table.n)[:MOST_ROWS])
    if _constant(table):
        only = fit_process(table, np.arange(table.n), rng)
        why = "The response or every variable takes a single value: no form can be fitted."
        return Selection([PROCESS], [1.0], [], why), [only]
    forms = compose(table)
    chosen = choose(table, forms, rows, rng)
    by_name, heavy = {form.name: form for form in forms}, recency(table, rows, rng)
    every, fits = np.arange(table.n), dict[str, Fitted]()
    count = min(starts, 8 if table.n > MOST_ROWS else 16)

    def fitted(name: str) -> Fitted:
        if name not in fits:
            options: dict[str, Any] = {"starts": count, "rng": rng, "delta": delta}
            fits[name] = fit_groups(by_name[name], table, [every], weights=heavy, **options)[0]
        return fits[name]

    members: list[Predictor] = []
    for name, weight in zip(chosen.names, chosen.weights, strict=True):
        if name in by_name:
            members.append(replace(fitted(name), weight=weight))
            continue
        trend = None if name == PROCESS else fitted(name.removesuffix(WITH_PROCESS))
        members.append(replace(fit_process(table, every, rng, trend=trend), weight=weight))
    return chosen, members


def fitted_form(member: Predictor) -> Fitted | None:
    """The fit of a member's form, if it has one."""
    return member.trend if isinstance(member, Process) else member


def _made(
    form: str | Form | Callable[..., Any],
    table: Table,
    ranges: Mapping[str, tuple[float, float]],
    mapping: Mapping[str, str] | None,
    rng: np.random.Generator,
) -> Form:
    """The form asked for, with the signs of its linear parameters taken from the data."""
    if isinstance(form, ExpressionForm):
        return form
    if isinstance(form, Form):
        raise InputError(
            f"fit.form must be an expression or a function for a law in any variables; got the "
            f"form {form.name!r}."
        )
    if callable(form):
        return Formula(form, table.names, table.link)
    made = in_columns(form, table, ranges, mapping, rng)
    if made is not None:
        return made
    return ranged("expression", parse(form), table, ranges, rng)


def _asked(
    form: Form, table: Table, rng: np.random.Generator, starts: int, delta: float
) -> tuple[Selection, list[Predictor]]:
    """The form asked for, without priors, and its backtests."""
    rows = np.arange(table.n)
    if table.n > MOST_ROWS:
        rows = np.sort(rng.permutation(table.n)[:MOST_ROWS])
    require(
        table.n >= form.p,
        "data",
        f"have at least {form.p} runs for an expression of {form.p} parameters",
        table.n,
        "Write a simpler expression, or add runs.",
    )
    grouped = len(table.groups) > 1
    found = fit_groups(
        form,
        table,
        [np.arange(table.n)],
        starts=starts,
        rng=rng,
        delta=delta,
        fine=True,
        shrink=grouped,
    )[0]
    if not np.isfinite(found.pooled.objective):
        raise InputError(
            f"The expression must be finite at the runs; got no finite value of {form.equation} "
            "from any start. Check for logs and powers of numbers that are 0 or negative."
        )
    parts = [part for part in folds(table, rows, rng) if len(part.train) > form.p + 1]
    errors: list[Errors] = []
    if parts:
        sets = [part.train for part in parts]
        again = fit_groups(
            form,
            table,
            sets,
            starts=max(4, starts // 4),
            rng=rng,
            delta=max(delta, 0.01),
            shrink=grouped,
        )
        errors = errors_of(table, parts, again)
    return Selection([form.name], [1.0], errors, f"{form.name} was asked for."), [found]


def estimates(found: Fitted, table: Table) -> dict[str, Estimate]:
    """The parameters with standard errors by linearisation; the mean over groups, if any."""
    member = found.pooled
    sd = np.sqrt((member.factor**2).sum(1))
    natural = found.form.public(member.theta[None], np.empty(0))
    low = found.form.public((member.theta - 1.96 * sd)[None], np.empty(0))
    high = found.form.public((member.theta + 1.96 * sd)[None], np.empty(0))
    out = {}
    for j, name in enumerate(found.form.letters):
        ends = sorted([float(low[name][0]), float(high[name][0])])
        value = float(natural[name][0])
        fitted_log = bool(getattr(found.form, "signs", np.zeros(found.form.p))[j])
        out[name] = Estimate(
            value,
            se=float(abs(value) * sd[j] if fitted_log else sd[j]),
            lo=ends[0],
            hi=ends[1],
            n=table.n,
            method="linearisation",
        )
    return out


def _summary(errors: Sequence[Errors], ratios: Sequence[ndarray]) -> dict[str, float | int | None]:
    """Mean error of the backtests and coverage of their intervals with the other folds' tau."""
    if not errors:
        return {"error": None, "coverage": None, "folds": 0}
    sizes = [float(np.sqrt(np.mean(e.error**2))) for e in errors]
    return {
        "error": float(np.mean(sizes)),
        "coverage": float(np.mean([float((each <= 1).mean()) for each in ratios])),
        "folds": len(errors),
    }


def _warnings(table: Table, lead: Fitted | None) -> list[str]:
    out = []
    if _constant(table):
        what = "Every variable" if not table.variables else table.response
        out.append(
            f"{what} takes a single value in these runs: the law is a constant"
            + (" for each group." if table.by else ".")
        )
    elif table.n < 3:
        out.append(f"{table.n} runs say little of any law: predictions rest on the priors.")
    elif lead is None:
        out.append("No form predicts these runs well: predictions beyond them are unreliable.")
    elif table.n < 2 * lead.form.p:
        out.append(
            f"{table.n} runs determine the {lead.form.p} parameters of {lead.form.name} "
            "weakly: the priors matter."
        )
    for v, x in zip(table.variables, table.X, strict=True):
        if v.role == "tuned" and lead is not None and v.levels < 3:
            out.append(f"{v.name} takes {v.levels} values: its optimum is not identified.")
        if v.role != "share" and len(np.unique(x)) == 2:
            out.append(f"{v.name} takes two values: its exponent comes from the prior.")
    return out
