"""Choice of form by how well each would have predicted the larger runs from the smaller.

Letters: n runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from allometry._core.errors import InputError
from allometry.laws import forms
from allometry.laws.backtest import Fold, cuts, run_folds
from allometry.laws.cost import path_of
from allometry.laws.forms import Form
from allometry.laws.table import Table

SPARE = 2
"""Configurations a fit must have beyond its parameters before a backtest may use it."""


@final
@dataclass(frozen=True)
class Choice:
    """The form chosen, its backtest folds, and the reason in a sentence."""

    form: Form
    folds: list[Fold]
    why: str


def one_variable(table: Table) -> str:
    """The variable a one-variable law should run in: compute, unless only one thing varies."""
    moving = [name for name in ("N", "D", "C") if table.varies(name)]
    if not moving:
        table.order()  # raises with the right words
    if "N" in moving and "D" not in moving:
        return "N"
    if "D" in moving and "N" not in moving:
        return "D"
    if path_of(table) is not None:
        return "N"
    return "C" if "C" in moving else moving[0]


def candidates(table: Table, x: str | None = None) -> list[Form]:
    """The forms that the runs could determine, simplest first."""
    name = x or one_variable(table)
    found: list[Form] = [forms.power(name)]
    distinct = len(np.unique(np.round(table.logs[name], 6)))
    if distinct >= 4:
        found.append(forms.floor(name))
    if x is None and path_of(table) is None and table.varies("N") and table.varies("D"):
        levels = [len(np.unique(np.round(table.logs[v], 3))) for v in ("N", "D")]
        if min(levels) >= 3 and table.configurations >= 7:
            found.append(forms.chinchilla())
    return found


def choose(
    table: Table,
    *,
    x: str | None,
    delta: float,
    rng: np.random.Generator,
) -> Choice:
    """The form with the least penalised extrapolation error in backtests shared by all."""
    options = candidates(table, x)
    if table.configurations < 3:
        raise InputError(
            f"data must have at least 3 different sizes; got {table.configurations}. "
            "Two points fit any law: add runs."
        )
    # A form too rich for any backtest is only kept if none is simple enough.
    able = [f for f in options if cuts(table, f.p + SPARE)] or options[:1]
    masks = cuts(table, max(f.p for f in able) + SPARE)
    if not masks:
        form = able[0]
        return Choice(
            form, [], f"{_called(form)} is all that {table.configurations} sizes can support."
        )
    results = {f: run_folds(f, table, masks, delta=delta, rng=rng) for f in able}
    scores = {f: _score(f, folds, table.configurations) for f, folds in results.items()}
    best = min(able, key=lambda f: scores[f][1])
    said = ", ".join(f"{_called(f)} {scores[f][0]:.2%}" for f in able)
    why = (
        f"{_called(best)} was chosen: in {len(masks)} backtests on larger runs the mean error was "
        f"{said}, judged with a penalty for parameters."
        if len(able) > 1
        else f"{_called(best)} is the one form that {table.configurations} sizes can support."
    )
    return Choice(best, results[best], why)


def _score(form: Form, folds: list[Fold], configurations: int) -> tuple[float, float]:
    """Mean backtest error, bare and with the penalty that keeps small data simple.

    Folds that saw more runs are more like the fit to come and weigh more. The penalty is that of
    the final prediction error: p more parameters cost a share p / (n - p).
    """
    weight = [fold.trained for fold in folds]
    error = float(np.average([fold.size for fold in folds], weights=weight))
    return error, error * (1 + form.p / max(configurations - form.p, 1))


def _called(form: Form) -> str:
    return form.name + (f" in {form.variables[0]}" if len(form.variables) == 1 else "")
