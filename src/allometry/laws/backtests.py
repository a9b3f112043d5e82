"""Rolling-origin backtests: fit on the small runs, predict the larger ones, see what happens.

Letters: n runs, k held-out runs.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.component import fit_parts
from allometry.laws.compute_cost import spread
from allometry.laws.forms import Form
from allometry.laws.intervals import ALONG, BETWEEN, LINE, USUAL, ExtrapolationError, drift, within
from allometry.laws.objective import Objective
from allometry.laws.runs_table import RunsTable


@final
@dataclass(frozen=True)
class Fold:
    """One backtest: what was predicted for runs beyond the ones fitted, and what they did."""

    error: Float[ndarray, " k"]
    variance: Float[ndarray, " k"]
    distance: Float[ndarray, " k"]
    noise: float
    dof: int
    trained: int

    @property
    def size(self) -> float:
        """Mean absolute log error, which is the relative error."""
        return float(np.abs(self.error).mean())


@final
@dataclass(frozen=True)
class Backtest:
    """Summary of the folds: mean relative error, coverage of the 95 % interval, their number."""

    error: float | None
    coverage: float | None
    folds: int

    def words(self) -> str:
        """What the backtests say, in a sentence."""
        if self.error is None or self.coverage is None:
            return "There are too few runs for backtests."
        return (
            f"In {self.folds} backtests on larger runs the mean error was {self.error:.2%}, and "
            f"95 % intervals held {self.coverage:.0%} of those runs."
        )

    def to_dict(self) -> dict[str, float | int | None]:
        """`{"error", "coverage", "folds"}`."""
        return {"error": self.error, "coverage": self.coverage, "folds": self.folds}


def cuts(table: RunsTable, need: int, limit: int = 6) -> list[ndarray]:
    """Row masks of the runs to fit on, smallest first, each leaving larger runs to predict.

    The smallest fold must hold two fifths of the configurations: a law is not to be judged by
    what it would have made of a small part of its runs.
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
    """How far outside the fitted runs a point lies, in e-folds of the form's variables.

    A corner that no run has, large in both size and data, counts by its compute even where size
    and data by themselves were seen.
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
    """Fit the form to each mask's runs and confront it with all runs beyond."""
    if not masks:
        return []
    folds = []
    members = fit_parts(form, table, masks, objective, starts=starts, rng=rng)
    for mask, member in zip(masks, members, strict=True):
        small, ahead = table.take(mask), table.take(~mask)
        error = ahead.y - form.value(member.theta[None], member.at(ahead.logs))[0]
        variance = member.variance(small, objective, ahead.logs)
        far = distance(form, ahead.logs, small.logs)
        folds.append(Fold(error, variance, far, member.noise, member.dof, small.n))
    return folds


def blend(parts: list[list[Fold]], weights: list[float]) -> list[Fold]:
    """The folds of a weighted average of forms; where they differ, that adds variance.

    The noise is that of the form that leaves least: what the others leave more is their misfit.
    """
    w = np.array(weights)[:, None]
    folds = []
    for same in zip(*parts, strict=True):
        errors = np.stack([fold.error for fold in same])
        mean = (w * errors).sum(0)
        within = (w * np.stack([fold.variance for fold in same])).sum(0)
        between = BETWEEN * (w * (errors - mean) ** 2).sum(0)
        far = np.stack([fold.distance for fold in same]).max(0)
        least = min(same, key=lambda fold: fold.noise)
        folds.append(Fold(mean, within + between, far, least.noise, least.dof, same[0].trained))
    return folds


def usual(table: RunsTable) -> tuple[float, float]:
    """What drift is like before any backtest: much along a learning curve, little along sizes."""
    if set(table.logs) == {"D"}:
        return ALONG
    return USUAL if spread(table) else LINE


def drift_of(folds: list[Fold], before: tuple[float, float]) -> ExtrapolationError:
    """The drift that explains the folds' errors, from what it is like `before` them."""
    return drift(
        [fold.error for fold in folds],
        [fold.variance + fold.noise**2 for fold in folds],
        [fold.distance for fold in folds],
        before,
    )


def summary(folds: list[Fold], before: tuple[float, float]) -> Backtest:
    """Mean error, and the coverage of intervals that knew only the folds before.

    Each fold's interval uses the drift learnt from smaller folds alone, as a user's would have.
    """
    if not folds:
        return Backtest(None, None, 0)
    inside = []
    for i, fold in enumerate(folds):
        extra = drift_of(folds[:i], before)
        held = within(fold.error, fold.variance, fold.noise, fold.dof, fold.distance, extra)
        inside.append(float(held.mean()))
    return Backtest(
        float(np.mean([fold.size for fold in folds])), float(np.mean(inside)), len(folds)
    )
