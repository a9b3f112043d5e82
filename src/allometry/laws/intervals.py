"""Prediction intervals of a new run: noise, extrapolation error and their quantiles.

Letters: n runs, k points asked for, t grid values of tau, s components of a mixture.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import special

from allometry.laws.calibration_table import constants as table_constants

GRID = table_constants("grid")
"""Constants that are used where no law names its own."""

TAU = np.exp(np.linspace(np.log(2e-4), np.log(0.2), 33))
GRID_PRIOR = (0.0025, 0.8)
"""Default prior of tau: median, and standard deviation of its log."""

BETWEEN_FORMS = 0.15
"""Share of the variance between forms that counts towards the error of their average. The errors
of different forms partly cancel in the average."""

BIN = 0.7
"""Distance in e-folds beyond which errors of one form count as independent."""


def curvature(r: Float[ndarray, " n"], delta: float, p: int) -> Float[ndarray, " n"]:
    r"""An estimate of $E\rho''_\delta$ per residual.

    If few residuals lie within delta, the window grows to half the scale of the residuals and
    each residual inside counts for its share. The scale leaves out the p residuals that a robust
    fit brings to zero.
    """
    rest = np.sort(np.abs(r))[min(p, len(r) - 1) :]
    window = max(delta, 0.5 * 1.4826 * float(np.median(rest)), 1e-12)
    if not np.isfinite(window):
        return np.ones(len(r))
    inside = np.abs(r) <= window
    return np.where(inside, min(delta / window, 1.0), 0.0)


def noise_of(
    r: Float[ndarray, " n"], p: int, weights: Float[ndarray, " n"] | None = None
) -> tuple[float, int]:
    """Standard deviation of the residuals, robust to outliers, and its degrees of freedom.

    Weighted runs count by the root of their weight: the noise of large runs matters most, but two
    or three runs do not estimate it.
    """
    w = np.ones(len(r)) if weights is None else np.sqrt(weights / weights.max())
    effective = float(w.sum() ** 2 / (w**2).sum())
    free = max(effective * (1 - p / len(r)), 1.0) if len(r) > p else 1.0
    spread = 1.4826 * float(np.median(np.abs(r)))
    if spread > 0 and len(r) >= 10:
        r = np.clip(r, -3.5 * spread, 3.5 * spread)
    mean = float((w * r**2).sum() / w.sum())
    return float(np.sqrt(mean * effective / free)), max(round(free), 2)


@final
@dataclass(frozen=True)
class ExtrapolationError:
    r"""The error of a form beyond its runs, learnt from backtests.

    At $d$ e-folds beyond the data the log error has standard deviation $\tau d$, in addition to
    parameter uncertainty and noise. `tau` is a grid and `weight` its posterior.
    """

    tau: Float[ndarray, " t"]
    weight: Float[ndarray, " t"]

    @property
    def typical(self) -> float:
        """Posterior root mean square of tau."""
        return float(np.sqrt((self.weight * self.tau**2).sum()))


def few_runs_variance(
    distance: Float[ndarray, " k"],
    configurations: int,
    variables: int,
    decline: Float[ndarray, " k"] | float = 0.0,
    constants: tuple[float, float, float] | None = None,
) -> Float[ndarray, " k"]:
    """Variance of the log error of a law of few runs that resampling does not show.

    A fit of three or four runs passes through them, so there are no residuals to resample and no
    backtests. The error grows with the distance and the predicted decline, and falls with a power
    of the degrees of freedom: with a dozen runs, residuals and backtests show it.

    Args:
        distance: Distance beyond the runs, in e-folds.
        configurations: Different configurations; seeds of one count once.
        variables: Variables of the law.
        decline: Predicted decline of the log loss beyond the runs.
        constants: Error per e-fold and per unit of decline with one degree of freedom, and the
            power of the degrees of freedom; by default those of the table.
    """
    dof = max(configurations - variables - 1, 1)
    per_e_fold, per_decline, power = constants or GRID.few_runs
    return (per_e_fold * distance / dof**power) ** 2 + (per_decline * decline / dof**1.5) ** 2


def bin_shares(distance: Float[ndarray, " k"]) -> Float[ndarray, " k"]:
    """The share of each held-out run: those at about the same distance count as one."""
    bins = np.unique(np.floor(distance / BIN).astype(int), return_inverse=True)[1]
    return 1 / np.bincount(bins)[bins]


def extrapolation_posterior(
    error: list[Float[ndarray, "..."]],
    variance: list[Float[ndarray, "..."]],
    distance: list[Float[ndarray, "..."]],
    prior: tuple[float, float] = GRID_PRIOR,
    tau: Float[ndarray, " t"] = TAU,
    power: float = 1.0,
) -> ExtrapolationError:
    """Posterior of the extrapolation error from backtest errors.

    In each fold the runs at about the same distance count as one observation, because a form errs
    alike for all of them.

    Args:
        error: Log errors of the held-out runs, one array per fold.
        variance: Their variance from parameters and noise.
        distance: Distance of each beyond the fold's data, in e-folds.
        prior: Median of tau and standard deviation of its log before any backtest.
        tau: The grid.
        power: Power of the likelihood; below 1 if the folds are not independent.
    """
    log_posterior = -0.5 * ((np.log(tau) - np.log(prior[0])) / prior[1]) ** 2
    for e, v, d in zip(error, variance, distance, strict=True):
        total = v[None] + tau[:, None] ** 2 * d[None] ** 2
        each = -0.5 * (np.log(total) + e[None] ** 2 / total)
        log_posterior = log_posterior + power * (each @ bin_shares(d))
    weight = np.exp(log_posterior - log_posterior.max())
    return ExtrapolationError(tau, weight / weight.sum())


def half_width(
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extrapolation: ExtrapolationError,
    level: float = 0.95,
    prior: tuple[float, float] | None = None,
) -> Float[ndarray, " k"]:
    """Half-width in log loss of the interval that covers a new run with probability `level`.

    The error is a mixture of normals: parameter variance and noise are known up to a chi-square,
    the extrapolation error up to its posterior. The chi-square has `dof` degrees of freedom from
    the runs plus those of a prior (so many runs of this noise; by default the table's), because
    two or three residuals do not determine the noise.
    """
    scales = mixture_scales(variance, noise, dof, distance, extrapolation, prior)
    return mixture_half_width(*scales, level)


def mixture_half_width(
    scale: Float[ndarray, "k s"], weight: Float[ndarray, " s"], level: float = 0.95
) -> Float[ndarray, " k"]:
    """Half-width around zero that covers a mixture of centred normals with probability `level`."""
    target = 0.5 + level / 2
    # The coverage is concave in the half-width, so Newton steps from below never pass the root.
    half = special.ndtri(target) * scale.min(1)
    for _ in range(60):
        z = half[:, None] / scale
        short = target - special.ndtr(z) @ weight
        slope = (np.exp(-0.5 * z**2) / scale) @ weight / np.sqrt(2 * np.pi)
        move = np.maximum(short, 0.0) / np.maximum(slope, 1e-300)
        half = half + np.minimum(move, half)
        if float(move.max(initial=0.0)) <= 1e-9 * float(half.max(initial=1.0)):
            break
    return half


def covered(
    error: Float[ndarray, " k"],
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extrapolation: ExtrapolationError,
    level: float = 0.95,
    prior: tuple[float, float] | None = None,
) -> Bool[ndarray, " k"]:
    """Whether each log error is at most the `half_width`, without computing it."""
    scale, weight = mixture_scales(variance, noise, dof, distance, extrapolation, prior)
    return special.ndtr(np.abs(error)[:, None] / scale) @ weight <= 0.5 + level / 2


def mixture_scales(
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extrapolation: ExtrapolationError,
    prior: tuple[float, float] | None = None,
) -> tuple[Float[ndarray, "k s"], Float[ndarray, " s"]]:
    """Standard deviations and weights of the mixture of normals of a new run's error."""
    prior_dof, prior_noise = prior or GRID.noise_prior
    noise = float(np.sqrt((dof * noise**2 + prior_dof * prior_noise**2) / (dof + prior_dof)))
    free = dof + prior_dof
    nodes = (np.arange(9) + 0.5) / 9
    inflation = free / special.chdtri(free, nodes)  # upper tail at each node
    known = (variance + noise**2)[:, None, None] * inflation[:, None]
    beyond = extrapolation.tau**2 * distance[:, None, None] ** 2
    scale = np.sqrt(known + beyond).reshape(len(variance), -1)
    return scale, np.tile(extrapolation.weight / len(nodes), len(nodes))
