"""Choice of forms by how well each would have predicted the larger runs from the smaller.

Letters: n runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from allometry._core.errors import InputError
from allometry.laws import forms
from allometry.laws.backtests import Fold, blend, cuts, run_folds
from allometry.laws.compute_cost import path_of, spread
from allometry.laws.coupled_forms import Coupled, Kaplan
from allometry.laws.forms import Form
from allometry.laws.learning_curves import Broken, Shifted, Sigmoid
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable

SPARE = 2
"""Configurations a fit must have beyond its parameters before a backtest may use it."""

UNSEEN = 0.003
"""Relative error that backtests can't tell from another: their scores are softened by it."""

LEAST = 0.02
"""A form with less than this share of the average is left out."""

TRUST = 40
"""Configurations at which backtests tell forms apart half as sharply as a great many would."""

BARE = 0.5
"""What a power law in one variable counts beside the others before a backtest: losses do level
off, and where few runs don't show it yet, backtests on them don't either."""


@final
@dataclass(frozen=True)
class Selection:
    """The forms to average with their weights, best first; their folds; the reason in words."""

    forms: list[Form]
    weights: list[float]
    folds: list[Fold]
    why: str


def one_variable(table: RunsTable) -> str:
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


def candidates(table: RunsTable, x: str | None = None) -> list[Form]:
    """The forms that the runs could determine, simplest first."""
    name = x or one_variable(table)
    distinct = len(np.unique(np.round(table.logs[name], 6)))
    if x is None and spread(table):
        levels = [len(np.unique(np.round(table.logs[v], 3))) for v in ("N", "D")]
        # Two levels of one of them determine its level but not its exponent, which habits supply:
        # still far better than a law in compute, in which the two levels lie apart.
        if min(levels) >= 2 and table.configurations >= 6:
            return [forms.floor(name), Kaplan(), forms.chinchilla(), Coupled()]
    found: list[Form] = [forms.power(name)]
    if distinct >= 4:
        found.append(forms.floor(name))
    if distinct >= 6:
        found += [Shifted(name), Broken(name, flat=True), Sigmoid(name), Broken(name)]
    return found


def choose(
    table: RunsTable, *, x: str | None, objective: Objective, rng: np.random.Generator
) -> Selection:
    """The forms that did best in backtests shared by all, averaged by how well they did.

    A form's weight is an inverse power of its error beyond `UNSEEN`, with the penalty of the final
    prediction error, p / (n - p), for its parameters. The power is 4 n / (n + `TRUST`) for n
    configurations: a few runs' backtests tell forms apart by luck, and what fits them is nearly
    as good as what fits them best, so that an average misses by less than a choice. A power law
    in one variable counts `BARE`.
    """
    if table.configurations < 3:
        raise InputError(
            f"data must have at least 3 different sizes; got {table.configurations}. "
            "Two points fit any law: add runs."
        )
    options = candidates(table, x)
    # Habits steady a rich form, so that it may be tried with as many runs as it has parameters.
    able = [f for f in options if table.configurations >= f.p + 1] or options[:1]
    masks = cuts(table, 4)
    count = np.array([BARE if f.name == "power" else 1.0 for f in able])
    if not masks:
        picked, weights = able[::-1], (count / count.sum())[::-1].tolist()
        why = f"{table.configurations} sizes are too few to backtest: {_listed(picked, weights)}."
        return Selection(picked, weights, [], why)
    results = [run_folds(f, table, masks, objective, rng) for f in able]
    scores = [_score(folds) for folds in results]
    n = table.configurations
    cost = np.array(
        [
            (s**2 + UNSEEN**2) * (1 + f.p / max(n - f.p, 1))
            for f, s in zip(able, scores, strict=True)
        ]
    )
    weight = count * cost ** (-2 * n / (n + TRUST))
    weight = weight / weight.sum()
    weight = np.where(weight < LEAST, 0.0, weight)
    order = [int(i) for i in np.argsort(-weight) if weight[i] > 0]
    weights = [float(weight[i] / weight.sum()) for i in order]
    said = ", ".join(f"{called(able[i])} {scores[i]:.2%}" for i in np.argsort(scores))
    picked = [able[i] for i in order]
    why = (
        f"{_listed(picked, weights)}: in {len(masks)} backtests on larger runs the errors were "
        f"{said}."
    )
    return Selection(picked, weights, blend([results[i] for i in order], weights), why)


def _score(folds: list[Fold]) -> float:
    """Root mean square backtest error; folds that saw more runs are more like the fit to come."""
    weight = [fold.trained for fold in folds]
    return float(np.sqrt(np.average([fold.size**2 for fold in folds], weights=weight)))


def _listed(picked: list[Form], weights: list[float]) -> str:
    if len(picked) == 1:
        return f"{called(picked[0])} was chosen"
    return "An average of " + ", ".join(
        f"{called(f)} ({w:.0%})" for f, w in zip(picked, weights, strict=True)
    )


def called(form: Form) -> str:
    """A form's name, with its variable where it has one."""
    return form.name + (f" in {form.variables[0]}" if len(form.variables) == 1 else "")
