r"""Decisions from small-scale experiments: which model to grow, and which runs did not converge.

A power law is a line in logs. Its exact prediction intervals (Student's t) say how a larger model
should do, before it is trained.

Letters: n runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.laws.allometric import t_quantile


@final
@dataclass(frozen=True)
class ConvergenceCheck:
    """A run compared with the power law of the other runs.

    Args:
        x: Its size.
        loss: Its loss.
        expected: The loss that the other runs predict, with the 95 % interval of a new run.
        p: One-sided p-value of a loss so far above the law, times the number of runs.
        converged: False if `p` is below the level: the run lies above the law.
    """

    x: float
    loss: float
    expected: Estimate
    p: float
    converged: bool


def check_convergence(x: Any, loss: Any, *, level: float = 0.05) -> list[ConvergenceCheck]:
    r"""Which runs lie above the power law of the others, as runs that did not converge do.

    Each run has its externally studentised residual of $\log L$ on $\log x$: the law is fitted
    without it. Bonferroni's factor n accounts for the number of runs.

    Args:
        x: Sizes.
        loss: Losses, or errors.
        level: Probability of a false alarm in any run.

    Example:
        >>> from allometry.laws import small_scale
        >>> size = [1e5, 3e5, 1e6, 3e6, 1e7, 3e7]
        >>> loss = [3.01, 2.63, 2.30, 2.02, 1.93, 1.56]
        >>> [run.x for run in small_scale.check_convergence(size, loss) if not run.converged]
        [10000000.0]

    References: `ivgi2022` for the use; `cook1982` Sec. 2.2 for the residual.
    """
    u, v = _logs(x, loss, 4, "check_convergence")
    sizes, losses = np.asarray(x, float).reshape(-1), np.exp(v).tolist()
    n = len(u)
    out = []
    for i in range(n):
        rest = np.arange(n) != i
        mean, sd, dof = _predict(u[rest], v[rest], u[i])
        p = min(1.0, n * float(special.stdtr(dof, -(v[i] - mean) / sd)))
        out.append(
            ConvergenceCheck(sizes[i].item(), losses[i], _loss(mean, sd, dof), p, p >= level)
        )
    return out


@final
@dataclass(frozen=True)
class ModelSelection:
    """The model to grow, chosen by its predicted loss at a larger size.

    Args:
        winner: Name of the model with the lowest predicted loss.
        probability: That a run of the winner has the lowest loss of all at that size.
        predictions: The predicted loss of a run of each model.
        largest_run: Name of the model that is best at the largest size tried by all.
        backtest: Whether laws without the largest runs choose the model that is best there; None
            if there are too few runs.
    """

    winner: str
    probability: float
    predictions: dict[str, Estimate]
    largest_run: str
    backtest: bool | None


def select_model(
    families: Mapping[str, tuple[Any, Any]], at: float, *, draws: int = 20_000, seed: int = 0
) -> ModelSelection:
    """Choose between models by power laws of their small runs, rather than by the largest of them.

    Args:
        families: Sizes and losses of each model's runs.
        at: The size to decide for.
        draws: Number of draws for the probability.
        seed: Of the draws.

    References: `ivgi2022`.
    """
    require(len(families) >= 2, "select_model.families", "have at least 2 models", len(families))
    require(at > 0, "select_model.at", "be positive", at)
    logs = {k: _logs(x, y, 3, f"select_model.{k}") for k, (x, y) in families.items()}
    rng = np.random.default_rng(seed)
    predictions, samples = {}, []
    for name, (u, v) in logs.items():
        mean, sd, dof = _predict(u, v, math.log(at))
        predictions[name] = _loss(mean, sd, dof)
        samples.append(mean + sd * rng.standard_t(dof, draws))
    winner = min(predictions, key=lambda name: predictions[name].value)
    best = np.argmin(samples, 0) == list(logs).index(winner)
    common = min(float(u.max()) for u, _ in logs.values())
    reached = {k: float(v[np.abs(u - common).argmin()]) for k, (u, v) in logs.items()}
    largest = min(reached, key=lambda name: reached[name])
    return ModelSelection(winner, float(best.mean()), predictions, largest, _backtest(logs))


def _backtest(logs: dict[str, tuple[ndarray, ndarray]]) -> bool | None:
    """Whether laws of all but the largest run of each model choose the best of those runs."""
    if min(len(u) for u, _ in logs.values()) < 4:
        return None
    predicted, actual = {}, {}
    target = min(float(u.max()) for u, _ in logs.values())
    for name, (u, v) in logs.items():
        smaller = u < u.max()
        if smaller.sum() < 3:
            return None
        predicted[name] = _predict(u[smaller], v[smaller], target)[0]
        actual[name] = float(v[np.abs(u - target).argmin()])
    return min(predicted, key=predicted.__getitem__) == min(actual, key=actual.__getitem__)


def _predict(
    u: Float[ndarray, " n"], v: Float[ndarray, " n"], at: float
) -> tuple[float, float, int]:
    """Mean, standard deviation and degrees of freedom of a new log loss."""
    n, centre = len(u), float(u.mean())
    spread = float(((u - centre) ** 2).sum())
    slope = float(((u - centre) * v).sum()) / spread
    rest = v - v.mean() - slope * (u - centre)
    # Rounding keeps an exact line from a variance of zero.
    s2 = max(float((rest**2).sum()) / (n - 2), 1e-24)
    sd = math.sqrt(s2 * (1 + 1 / n + (at - centre) ** 2 / spread))
    return float(v.mean()) + slope * (at - centre), sd, n - 2


def _loss(mean: float, sd: float, dof: int) -> Estimate:
    half = t_quantile(dof) * sd
    ends = (math.exp(min(mean + s * half, 700.0)) for s in (-1, 1))
    lo, hi = ends
    return Estimate(math.exp(mean), lo=lo, hi=hi, method="power law, Student's t")


def _logs(
    x: Any, y: Any, least: int, name: str
) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    u, v = np.asarray(x, float).reshape(-1), np.asarray(y, float).reshape(-1)
    require(len(u) == len(v), name, "have as many losses as sizes", (len(u), len(v)))
    require(len(u) >= least, name, f"have at least {least} runs", len(u))
    require(bool((u > 0).all() and (v > 0).all()), name, "have positive sizes and losses", x)
    require(len(np.unique(u)) >= least - 1, name, "have several sizes", x)
    return np.log(u), np.log(v)
