"""Rolling-origin backtests: fit the small runs, predict the larger ones.

Letters: n runs, k held-out runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.component import fit_subsets
from allometry.laws.compute_cost import vary_independently
from allometry.laws.forms import Form
from allometry.laws.intervals import (
    BETWEEN_FORMS,
    CURVE_PRIOR,
    GRID_PRIOR,
    LINE_PRIOR,
    ExtrapolationError,
    covered,
    extrapolation_posterior,
)
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable


@final
@dataclass(frozen=True)
class Fold:
    """One backtest: the log errors of runs beyond the fitted ones, with their variance."""

    error: Float[ndarray, " k"]
    variance: Float[ndarray, " k"]
    distance: Float[ndarray, " k"]
    noise: float
    dof: int
    trained: int

    @property
    def size(self) -> float:
        """Mean absolute log error, approximately the relative error."""
        return float(np.abs(self.error).mean())


@final
@dataclass(frozen=True)
class Backtest:
    """Mean relative error, coverage of the 95 % interval, and number of folds."""

    error: float | None
    coverage: float | None
    folds: int

    def words(self) -> str:
        """The backtests in one sentence."""
        if self.error is None or self.coverage is None:
            return "There are too few runs for backtests."
        return (
            f"In {self.folds} backtests on larger runs the mean error was {self.error:.2%}, and "
            f"95 % intervals covered {self.coverage:.0%} of those runs."
        )

    def to_dict(self) -> dict[str, float | int | None]:
        """`{"error", "coverage", "folds"}`."""
        return {"error": self.error, "coverage": self.coverage, "folds": self.folds}


def training_masks(table: RunsTable, need: int, limit: int = 6) -> list[ndarray]:
    """Row masks of the runs to fit on, smallest first, each leaving larger runs to predict.

    The smallest fold has at least two fifths of the configurations: fits of fewer say little
    about the fit of all runs.
    """
    t = table.order()
    configurations = np.full(table.configurations, -np.inf)
    np.maximum.at(configurations, table.cluster, t)
    levels = np.unique(np.round(configurations, 6))
    need = max(need, int(np.ceil(0.4 * len(configurations))))
    counts = np.searchsorted(np.sort(configurations), levels + 1e-6)
    levels = [level for level, count in zip(levels[:-1], counts, strict=False) if count >= need]
    if len(levels) > limit:
        picks = np.unique(np.linspace(0, len(levels) - 1, limit).round().astype(int))
        levels = [levels[i] for i in picks]
    return [(configurations <= level + 1e-6)[table.cluster] for level in levels]


def distance(
    form: Form, logs: dict[str, ndarray], seen: dict[str, ndarray]
) -> Float[ndarray, " k"]:
    """Distance of a point from the range of the fitted runs, in e-folds of the form's variables.

    A point that is large in both size and data counts by its compute, even if each alone lies in
    the range of the runs.
    """
    far = np.zeros(len(next(iter(logs.values()))))
    for name in form.variables:
        x, s = logs[name], seen[name]
        far = far + np.maximum(0.0, np.maximum(x - s.max(), s.min() - x)) ** 2
    far = np.sqrt(far)
    if len(form.variables) == 2 and "C" in logs and "C" in seen:
        far = np.maximum(far, (logs["C"] - seen["C"].max()) / np.sqrt(2))
    return far


def run_folds(
    form: Form,
    table: RunsTable,
    masks: list[ndarray],
    objective: Objective,
    rng: np.random.Generator,
    starts: int = 6,
) -> list[Fold]:
    """Fit the form to the runs of each mask and predict all other runs."""
    if not masks:
        return []
    folds = []
    members = fit_subsets(form, table, masks, objective, starts=starts, rng=rng)
    for mask, member in zip(masks, members, strict=True):
        small, ahead = table.take(mask), table.take(~mask)
        error = ahead.y - member.value(ahead.logs)
        variance = member.variance(small, objective, ahead.logs)
        far = distance(form, ahead.logs, small.logs)
        folds.append(Fold(error, variance, far, member.noise, member.dof, small.n))
    return folds


def average_folds(parts: list[list[Fold]], weights: list[float]) -> list[Fold]:
    """The folds of a weighted average of forms; differences between forms add variance.

    The noise is that of the form with the smallest: the excess of the others is misfit.
    """
    w = np.array(weights)[:, None]
    folds = []
    for same in zip(*parts, strict=True):
        errors = np.stack([fold.error for fold in same])
        mean = (w * errors).sum(0)
        parameters = (w * np.stack([fold.variance for fold in same])).sum(0)
        between = BETWEEN_FORMS * (w * (errors - mean) ** 2).sum(0)
        far = np.stack([fold.distance for fold in same]).max(0)
        least = min(same, key=lambda fold: fold.noise)
        folds.append(
            Fold(mean, parameters + between, far, least.noise, least.dof, same[0].trained)
        )
    return folds


def error_prior(table: RunsTable) -> tuple[float, float]:
    """Prior of the extrapolation error: large along a learning curve, small along sizes."""
    if set(table.logs) == {"D"}:
        return CURVE_PRIOR
    return GRID_PRIOR if vary_independently(table) else LINE_PRIOR


def extrapolation_error(folds: list[Fold], prior: tuple[float, float]) -> ExtrapolationError:
    """Posterior of the extrapolation error given the errors of the folds."""
    return extrapolation_posterior(
        [fold.error for fold in folds],
        [fold.variance + fold.noise**2 for fold in folds],
        [fold.distance for fold in folds],
        prior,
    )


def summary(folds: list[Fold], prior: tuple[float, float]) -> Backtest:
    """Mean error, and the coverage of intervals that use only the preceding folds.

    The interval of each fold uses the extrapolation error learnt from smaller folds alone, as in
    actual use.
    """
    if not folds:
        return Backtest(None, None, 0)
    inside = []
    for i, fold in enumerate(folds):
        extra = extrapolation_error(folds[:i], prior)
        inside.append(
            float(
                covered(
                    fold.error, fold.variance, fold.noise, fold.dof, fold.distance, extra
                ).mean()
            )
        )
    return Backtest(
        float(np.mean([fold.size for fold in folds])), float(np.mean(inside)), len(folds)
    )
