"""Rolling-origin backtests: fit the small runs, predict the larger ones.

Letters: n runs, k held-out runs.
"""

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.calibration import Calibration, calibrate, e_folds_beyond, kind_of, pulled_back
from allometry.laws.calibration_table import USUAL_NOISE, constants
from allometry.laws.component import fit_subsets
from allometry.laws.forms import Form
from allometry.laws.intervals import (
    BETWEEN_FORMS,
    ExtrapolationError,
    covered,
    extrapolation_posterior,
)
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable


@final
@dataclass(frozen=True)
class Fold:
    """One backtest: the log errors of runs beyond the fitted ones, with their variance.

    `error` is the log loss minus its prediction, `decline` the predicted decline of the log loss
    from the nearest point within the fitted runs, `beyond` the e-folds from there.
    """

    error: Float[ndarray, " k"]
    variance: Float[ndarray, " k"]
    distance: Float[ndarray, " k"]
    noise: float
    dof: int
    trained: int
    decline: Float[ndarray, " k"] = field(default_factory=lambda: np.zeros(0))
    beyond: Float[ndarray, " k"] = field(default_factory=lambda: np.zeros(0))

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
    masks = [(configurations <= level + 1e-6)[table.cluster] for level in levels]
    # Two levels may differ by the rounding alone; the lower then leaves no run to predict.
    return [mask for mask in masks if not mask.all()]


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
    variables: tuple[str, ...] | None = None,
) -> list[Fold]:
    """Fit the form to the runs of each mask and predict all other runs.

    Args:
        form: The form.
        table: The runs.
        masks: The runs to fit on.
        objective: What each fit minimises.
        rng: Generator of the starts.
        starts: Starts of each fit.
        variables: Variables of the average that the form is part of. Default: its own.
    """
    if not masks:
        return []
    folds = []
    members = fit_subsets(form, table, masks, objective, starts=starts, rng=rng)
    for mask, member in zip(masks, members, strict=True):
        small, ahead = table.take(mask), table.take(~mask)
        value = member.value(ahead.logs)
        back = pulled_back(ahead.logs, small.logs, variables or form.variables)
        variance = member.variance(small, objective, ahead.logs)
        far = distance(form, ahead.logs, small.logs)
        folds.append(
            Fold(
                ahead.y - value,
                variance,
                far,
                member.noise,
                member.dof,
                small.n,
                member.value(back) - value,
                e_folds_beyond(ahead.logs, back),
            )
        )
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
        fall = (w * np.stack([fold.decline for fold in same])).sum(0)
        least = min(same, key=lambda fold: fold.noise)
        folds.append(
            replace(
                least,
                error=mean,
                variance=parameters + between,
                distance=far,
                decline=fall,
                trained=same[0].trained,
            )
        )
    return folds


def error_prior(table: RunsTable, noise: float = USUAL_NOISE) -> tuple[float, float]:
    """Prior of the extrapolation error: large along a learning curve, small along sizes.

    Args:
        table: The runs.
        noise: Their noise in log loss.
    """
    known = constants(kind_of(table))
    return known.median_error(noise), known.tau_sd


def extrapolation_error(
    folds: list[Fold], prior: tuple[float, float], calibration: Calibration | None = None
) -> ExtrapolationError:
    """Posterior of the extrapolation error given the errors of the folds.

    Args:
        folds: The backtests.
        prior: Prior of tau.
        calibration: The correction of the predictions whose errors count.
    """
    folds = [fold if calibration is None else corrected(fold, calibration) for fold in folds]
    return extrapolation_posterior(
        [fold.error for fold in folds],
        [fold.variance + fold.noise**2 for fold in folds],
        [fold.distance for fold in folds],
        prior,
        power=1.0 if calibration is None else constants(calibration.kind).trust,
    )


def corrected(fold: Fold, calibration: Calibration) -> Fold:
    """The fold with the correction of a calibration and its variance."""
    decline = np.maximum(fold.decline, 0.0)
    return replace(
        fold,
        error=fold.error + calibration.correction(decline, fold.beyond),
        variance=fold.variance + (calibration.spread * decline) ** 2,
    )


def summary(
    folds: list[Fold], table: RunsTable, form: str | None = None, *, irreducible: float = 1.0
) -> Backtest:
    """Mean error, and the coverage of intervals that use only the preceding folds.

    The correction and the interval of each fold use what smaller folds alone show, as in actual
    use.

    Args:
        folds: The backtests.
        table: The runs.
        form: Name of the form if it was asked for by name.
        irreducible: Weight of the forms with an irreducible loss.
    """
    if not folds:
        return Backtest(None, None, 0)
    errors, inside = [], []
    for i, fold in enumerate(folds):
        calibration = calibrate(folds[:i], table, form, irreducible=irreducible)
        extra = extrapolation_error(folds[:i], error_prior(table, fold.noise), calibration)
        now = corrected(fold, calibration)
        prior = calibration.noise_prior
        hit = covered(
            now.error, now.variance, now.noise, now.dof, now.distance, extra, prior=prior
        )
        inside.append(float(hit.mean()))
        errors.append(now.size if calibration.moves_value else fold.size)
    return Backtest(float(np.mean(errors)), float(np.mean(inside)), len(folds))
