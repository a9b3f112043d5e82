"""Choice of forms by backtests: how well each predicts the larger runs from the smaller.

Letters: n runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from allometry._core.errors import InputError
from allometry.laws import forms
from allometry.laws.backtests import Fold, average_folds, run_folds, training_masks
from allometry.laws.compute_cost import path_of, vary_independently
from allometry.laws.coupled_forms import Coupled, Kaplan
from allometry.laws.forms import Form
from allometry.laws.frontier_form import Frontier
from allometry.laws.learning_curves import Broken, Shifted, Sigmoid
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable

SPARE = 2
"""Configurations beyond the number of parameters that a backtest fit must have."""

RESOLUTION = 0.003
"""Differences of relative error below this are not significant; added to scores in quadrature."""

MIN_WEIGHT = 0.02
"""A form with less than this share of the average is left out."""

TRUST = 40
"""Configurations at which the weights depend on backtests half as strongly as for many."""

POWER_WEIGHT = 0.5
"""Prior weight of a power law in one variable relative to the other forms: losses level off, and
backtests on few runs may not show it."""


@final
@dataclass(frozen=True)
class Selection:
    """The forms to average with their weights, best first; their folds; the reason."""

    forms: list[Form]
    weights: list[float]
    folds: list[Fold]
    why: str


def one_variable(table: RunsTable) -> str:
    """The variable of a one-variable law: compute, unless only N or D varies."""
    moving = [name for name in ("N", "D", "C") if table.varies(name)]
    if not moving:
        table.order()  # raises the error
    if "N" in moving and "D" not in moving:
        return "N"
    if "D" in moving and "N" not in moving:
        return "D"
    if path_of(table) is not None:
        return "N"
    return "C" if "C" in moving else moving[0]


def candidates(table: RunsTable, x: str | None = None) -> list[Form]:
    """The forms that the runs can determine, simplest first."""
    name = x or one_variable(table)
    distinct = len(np.unique(np.round(table.logs[name], 6)))
    if x is None and vary_independently(table):
        levels = [len(np.unique(np.round(table.logs[v], 3))) for v in ("N", "D")]
        # Two levels of one variable do not identify its exponent, which comes from the prior:
        # still far better than a law in compute, where the two levels give two curves.
        if min(levels) >= 2 and table.configurations >= 6:
            # The additive law is a special case of both the coupled and the frontier form.
            return [
                forms.floor(name),
                Kaplan(),
                Frontier(irreducible=False),
                Coupled(),
                Frontier(),
            ]
    found: list[Form] = [forms.power(name)]
    if distinct >= 4:
        found.append(forms.floor(name))
    if distinct >= 6:
        found += [Shifted(name), Broken(name, flat=True), Sigmoid(name), Broken(name)]
    return found


def choose(
    table: RunsTable, *, x: str | None, objective: Objective, rng: np.random.Generator
) -> Selection:
    """An average of the forms, weighted by their error in shared backtests.

    The weight of a form is an inverse power of its error (softened by `RESOLUTION`), with the
    penalty of the final prediction error, p / (n - p), for its parameters. The power is
    4 n / (n + `TRUST`) for n configurations: with few runs the differences between backtests are
    mostly chance, and an average errs less than a choice. A power law in one variable has the
    prior weight `POWER_WEIGHT`.
    """
    if table.configurations < 3:
        raise InputError(
            f"data must have at least 3 different sizes; got {table.configurations}. "
            "Two points fit any law: add runs."
        )
    options = candidates(table, x)
    # Priors regularise a rich form, so one configuration more than its parameters suffices.
    able = [f for f in options if table.configurations >= f.p + 1] or options[:1]
    masks = training_masks(table, 4)
    count = np.array([POWER_WEIGHT if f.name == "power" else 1.0 for f in able])
    if not masks:
        picked, weights = able[::-1], (count / count.sum())[::-1].tolist()
        why = f"{table.configurations} sizes are too few to backtest: {_listed(picked, weights)}."
        return Selection(picked, weights, [], why)
    names = tuple(dict.fromkeys(v for f in able for v in f.variables))
    results = [run_folds(f, table, masks, objective, rng, variables=names) for f in able]
    scores = [_score(folds) for folds in results]
    n = table.configurations
    cost = np.array(
        [
            (s**2 + RESOLUTION**2) * (1 + f.p / max(n - f.p, 1))
            for f, s in zip(able, scores, strict=True)
        ]
    )
    weight = count * cost ** (-2 * n / (n + TRUST))
    weight = weight / weight.sum()
    weight = np.where(weight < MIN_WEIGHT, 0.0, weight)
    order = [int(i) for i in np.argsort(-weight) if weight[i] > 0]
    weights = [float(weight[i] / weight.sum()) for i in order]
    errors = ", ".join(f"{display_name(able[i])} {scores[i]:.2%}" for i in np.argsort(scores))
    picked = [able[i] for i in order]
    why = (
        f"{_listed(picked, weights)}: in {len(masks)} backtests on larger runs the errors were "
        f"{errors}."
    )
    return Selection(picked, weights, average_folds([results[i] for i in order], weights), why)


def _score(folds: list[Fold]) -> float:
    """Root mean square backtest error, weighted by the number of runs fitted in each fold."""
    weight = [fold.trained for fold in folds]
    return float(np.sqrt(np.average([fold.size**2 for fold in folds], weights=weight)))


def _listed(picked: list[Form], weights: list[float]) -> str:
    if len(picked) == 1:
        return f"{display_name(picked[0])} was chosen"
    return "An average of " + ", ".join(
        f"{display_name(f)} ({w:.0%})" for f, w in zip(picked, weights, strict=True)
    )


def display_name(form: Form) -> str:
    """The name of a form, with its variable if it has one variable."""
    return form.name + (f" in {form.variables[0]}" if len(form.variables) == 1 else "")
