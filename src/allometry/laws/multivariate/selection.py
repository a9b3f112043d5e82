"""Choice among composed candidates by backtests, and their average.

Letters: n runs, k points asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.multivariate.backtests import (
    BETWEEN,
    Errors,
    Fold,
    distance,
    folds,
    main_order,
    weights,
)
from allometry.laws.multivariate.expression_forms import ExpressionForm
from allometry.laws.multivariate.groups import Fitted, fit_groups
from allometry.laws.multivariate.processes import PROCESS, WITH_PROCESS, Process, fit_process
from allometry.laws.multivariate.variable_runs import Table

RESOLUTION = 0.003
"""Differences of error below this are not significant; added to scores in quadrature."""

SHARPNESS = 4.0
"""Weights are inverse to this power of the mean squared error, for many runs."""

TRUST = 20
"""Runs at which the weights depend on backtests half as strongly as for many."""

NOISE_SHARE = 0.8
"""Share of the variance of the noise that is taken off the squared errors of many runs."""

LEAST_SHARE = 0.1
"""Least share of a squared error that remains."""

MIN_WEIGHT = 0.03
"""A form with less than this share of the average is left out."""

DELTA = 0.03
"""Threshold of Huber's loss for composed candidates."""

PROCESS_PENALTY = 1.5
"""Factor of the baseline's squared error: it is chosen only where forms fail."""

FEWEST_FOR_PROCESS = 12
"""Runs from which a Gaussian process competes with the forms."""

FEWEST_FOR_TREND = 24
"""Runs from which the best form also competes with a Gaussian process on what it leaves over."""

NOISE_ROWS = 150
"""Runs from which the noise is estimated."""

Predictor = Fitted | Process


@final
@dataclass(frozen=True)
class Selection:
    """The chosen candidates with weights, best first, and the errors of their average."""

    names: list[str]
    weights: list[float]
    errors: list[Errors]
    why: str


def choose(
    table: Table,
    forms: Sequence[ExpressionForm],
    rows: Int[ndarray, "..."],
    rng: np.random.Generator,
    *,
    process: bool = True,
    starts: int = 6,
) -> Selection:
    """Weights of the candidates by their errors in shared backtests.

    The score of a candidate is the geometric mean over folds of its mean squared error, without
    the part that is noise, with the penalty of the final prediction error, p / (n - p). The
    weight is an inverse power of it.
    """
    n = len(rows)
    able = [f for f in forms if f.p < n] or list(forms[:1])
    parts = folds(table, rows, rng)
    parts = [part for part in parts if len(part.train) >= 5]
    if not parts or not able:
        few = able[: max(1, min(3, len(able)))]
        names = [f.name for f in few] or [PROCESS]
        why = f"{n} runs are too few to backtest: the simplest forms are averaged."
        return Selection(names, [1 / len(names)] * len(names), [], why)
    found = run_noise(table, rows, rng)
    heavy = weights(table, found)
    errors, size, fitted = _backtested(table, able, parts, rows, rng, heavy, process, starts)
    noise = min(found, fitted)
    scores = {name: _score(each) for name, each in errors.items()}
    cost = {
        name: _score(errors[name], noise)
        * (1 + size[name] / max(n - size[name], 1))
        * (PROCESS_PENALTY if name == PROCESS else 1.0)
        for name in scores
    }
    power = SHARPNESS * n / (n + TRUST)
    least = min(cost.values())
    raw = {name: (least / c) ** power for name, c in cost.items()}
    for name in [k for k in raw if k.endswith(WITH_PROCESS)]:
        # Beside each other, a form and the same with a process have the weight of one form.
        pair = (name.removesuffix(WITH_PROCESS), name)
        share = max(raw[k] for k in pair) / sum(raw[k] for k in pair)
        raw |= {k: share * raw[k] for k in pair}
    total = sum(raw.values())
    kept = {k: w / total for k, w in raw.items() if w / total >= MIN_WEIGHT}
    total = sum(kept.values())
    order = sorted(kept, key=lambda name: -kept[name])
    shares = [kept[name] / total for name in order]
    listed = ", ".join(f"{name} {w:.0%}" for name, w in zip(order, shares, strict=True))
    shown = ", ".join(
        f"{name} {np.sqrt(s):.2%}" for name, s in sorted(scores.items(), key=lambda kv: kv[1])
    )
    why = f"{listed}: in {len(parts)} backtests the errors were {shown}."
    return Selection(order, shares, _average([errors[k] for k in order], shares), why)


def _backtested(
    table: Table,
    forms: Sequence[ExpressionForm],
    parts: Sequence[Fold],
    rows: Int[ndarray, "..."],
    rng: np.random.Generator,
    heavy: Float[ndarray, " n"] | None,
    process: bool,
    starts: int,
) -> tuple[dict[str, list[Errors]], dict[str, int], float]:
    """Errors and numbers of parameters of the forms, the process, and the best form with one.

    The last value is the least noise that a form leaves in the largest set.
    """
    sets = [part.train for part in parts]
    fits = {
        f.name: fit_groups(f, table, sets, starts=starts, rng=rng, delta=DELTA, weights=heavy)
        for f in forms
    }
    errors = {name: errors_of(table, parts, each) for name, each in fits.items()}
    size = {f.name: f.p for f in forms}
    # A quadratic is no trend for a process: near the runs the process makes up for what it
    # misses, so it wins backtests, and far from them it alone is left and leaves any bounds.
    trends = [name for name in fits if not name.startswith("quadratic")]
    if process and trends and len(rows) >= FEWEST_FOR_TREND:
        lead = min(trends, key=lambda name: _score(errors[name]))
        both = [
            fit_process(table, s, rng, trend=fit) for s, fit in zip(sets, fits[lead], strict=True)
        ]
        errors[both[0].name], size[both[0].name] = errors_of(table, parts, both), size[lead]
    if process and len(rows) >= FEWEST_FOR_PROCESS:
        alone = [fit_process(table, s, rng) for s in sets]
        errors[PROCESS], size[PROCESS] = errors_of(table, parts, alone), 0
    most = max(range(len(sets)), key=lambda k: len(sets[k]))
    return errors, size, min(each[most].noise for each in fits.values())


def recency(
    table: Table, rows: Int[ndarray, "..."], rng: np.random.Generator
) -> Float[ndarray, " n"] | None:
    """Weights of the runs, given their noise."""
    return weights(table, run_noise(table, rows, rng))


def run_noise(table: Table, rows: Int[ndarray, "..."], rng: np.random.Generator) -> float:
    """Noise that a Gaussian process finds in the larger runs; 0 if they are few or unordered."""
    t = main_order(table)
    if t is None or len(rows) < FEWEST_FOR_PROCESS:
        return 0.0
    large = rows[t[rows] >= np.median(t[rows])]
    some = np.sort(rng.permutation(large)[:NOISE_ROWS])
    return fit_process(table, some, rng).noise


def errors_of(table: Table, parts: Sequence[Fold], fits: Sequence[Predictor]) -> list[Errors]:
    """Errors of each fold's fit in its held-out runs."""
    out = []
    for part, fit in zip(parts, fits, strict=True):
        X, group = table.X[:, part.test], table.group[part.test]
        error = table.z[part.test] - fit.value(X, group)
        variance = np.nan_to_num(fit.variance(X, group), nan=1.0, posinf=1.0) + fit.noise**2
        far = distance(table.variables, X, table.X[:, part.train])
        out.append(Errors(np.nan_to_num(error, nan=10.0), variance, far, part.by))
    return out


def _score(errors: Sequence[Errors], noise: float = 0.0) -> float:
    """Geometric mean over folds of the mean squared error.

    Where noise dominates, forms have about the same squared error, though some are biased. So
    most of the variance of the noise is taken off, the less the fewer runs a fold predicts.

    Args:
        errors: Errors in each fold.
        noise: Standard deviation of a run.
    """
    each = []
    for e in errors:
        square = float(np.mean(np.minimum(e.error**2, 100.0)))
        known = NOISE_SHARE * noise**2 * max(0.0, 1 - 2 / np.sqrt(len(e.error)))
        each.append(np.log(max(square - known, LEAST_SHARE * square) + RESOLUTION**2))
    return float(np.exp(np.mean(each)))


def _average(errors: Sequence[Sequence[Errors]], shares: Sequence[float]) -> list[Errors]:
    """Errors of the average of the candidates in each fold."""
    out = []
    for same in zip(*errors, strict=True):
        w = np.array(shares)[:, None]
        each = np.stack([e.error for e in same])
        mean = (w * each).sum(0)
        variance = (w * np.stack([e.variance for e in same])).sum(0)
        between = BETWEEN * (w * (each - mean) ** 2).sum(0)
        out.append(replace(same[0], error=mean, variance=variance + between))
    return out
