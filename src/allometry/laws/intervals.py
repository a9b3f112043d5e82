"""Intervals: bootstrap draws of the parameters, and the predictive interval of a new run.

Letters: m draws, p parameters, n runs, v variables, k points asked for.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy import special

from allometry.laws.forms import Form
from allometry.laws.solver import Prior, minimise, negligible

Resample = Literal["auto", "pairs", "cluster", "residual", "delta"]

MANY = 5000
"""From so many runs on, a bootstrap and the delta method agree and the latter is used."""

ENOUGH = 1e-5
"""Promised decrease of the objective, relative to it and times n, at which a draw is done: that
is a few millionths of a unit of log likelihood, a third of a hundredth of a standard error."""

LIMIT = 45
"""Steps that a draw is given: from the optimum of all runs a handful will do, and a draw that
needs more creeps towards infinity."""

PUBLISHED = 42
"""The seed of the published bootstrap of the Chinchilla points, whose draws are the default's."""

FEW = 40
"""Below this many configurations a pairs bootstrap often draws too few distinct runs to fit."""


def resampled(
    form: Form,
    X: Float[ndarray, "v n"],
    y: Float[ndarray, " n"],
    theta: Float[ndarray, " p"],
    *,
    draws: int,
    rng: np.random.Generator,
    cluster: Int[ndarray, " n"],
    resample: Resample = "auto",
    weights: Float[ndarray, " n"] | None = None,
    scale: Float[ndarray, " n"] | None = None,
    delta: float = 1e-3,
    prior: Prior | None = None,
    noise: float = 0.0,
    raw: bool = False,
    seed: int = 0,
) -> tuple[Float[ndarray, "m p"], str]:
    """Refitted parameters of resampled runs, and the name of the resampling.

    `pairs` draws runs, `cluster` whole configurations (all their seeds together), `residual` puts
    resampled, leverage-corrected residuals on the fitted curve, `delta` draws from the normal
    distribution of the parameters that large samples have. `auto` takes residuals when there are
    few configurations, the delta method when there are thousands of runs, clusters when some
    configurations have several seeds, and pairs otherwise.

    Pairs are drawn from numpy's legacy generator by `seed`, as published analyses draw them, so
    that theirs can be repeated draw for draw; the default seed of 0 stands for their usual 42.

    Where habits pull on the parameters, each draw is pulled towards its own draw of them, so that
    a direction in which the runs are silent is as uncertain as the habits, not certain.
    """
    groups = int(cluster.max()) + 1
    if resample == "auto":
        resample = "cluster" if groups < len(y) else "pairs"
        if groups < FEW:
            resample = "residual"
        elif len(y) >= MANY:
            resample = "delta"
    starts = np.repeat(theta[None], draws, 0)
    if resample == "delta":
        _, cov = sandwich(form, X, y, theta, cluster, weights, delta, prior, raw)
        spread = rng.multivariate_normal(np.zeros(form.p), cov, size=draws, method="eigh")
        return theta + spread, resample
    if prior is not None:
        sd = noise / np.sqrt(prior[1])
        prior = prior[0] + sd * rng.standard_normal((draws, form.p)), prior[1]
    goal, w = y, weights
    if resample == "residual":
        goal = _noisy(form, X, y, theta, draws, rng, weights, scale)
    else:
        if resample == "pairs":
            counts = pair_counts(len(y), draws, seed)
        else:
            counts = rng.multinomial(groups, np.full(groups, 1 / groups), size=draws)[:, cluster]
        w = counts.astype(float) * (1.0 if weights is None else weights)
    found = minimise(
        form,
        X,
        np.exp(goal) if raw else goal,
        starts,
        weights=w,
        delta=delta,
        prior=prior,
        tolerance=ENOUGH / len(y),
        iterations=LIMIT,
        crawl=negligible(len(y)),
        raw=raw,
    )
    bad = ~np.isfinite(found.objective)
    return np.where(bad[:, None], theta, found.theta), resample


def curvature(r: Float[ndarray, " n"], delta: float, p: int) -> Float[ndarray, " n"]:
    r"""$\rho''_\delta$ at the residuals, in the mean.

    Where few residuals lie within delta, those within half their own scale stand for them, each
    for its share, as the kinks of a robust loss are met in the mean only. The scale leaves out
    the p residuals that a robust fit brings to zero.
    """
    rest = np.sort(np.abs(r))[min(p, len(r) - 1) :]
    window = max(delta, 0.5 * 1.4826 * float(np.median(rest)), 1e-12)
    if not np.isfinite(window):
        return np.ones(len(r))
    inside = np.abs(r) <= window
    return np.where(inside, min(delta / window, 1.0), 0.0)


def sandwich(
    form: Form,
    X: Float[ndarray, "v n"],
    y: Float[ndarray, " n"],
    theta: Float[ndarray, " p"],
    cluster: Int[ndarray, " n"],
    weights: Float[ndarray, " n"] | None,
    delta: float,
    prior: Prior | None,
    raw: bool,
) -> tuple[Float[ndarray, "p p"], Float[ndarray, "p p"]]:
    r"""$H^{-1}$ and the delta-method covariance $H^{-1} (\sum_g s_g s_g^T) H^{-1}$ of a fit.

    $s_g$ is the sum of $w \psi_\delta(r) J$ over the runs of configuration g and
    $H = E\rho''_\delta \sum w J J^T$.

    References:
        `huber1964` section 4.
    """
    f, J = form.evaluate(theta[None], X)
    value, slope = (np.exp(f[0]), J[0] * np.exp(f[0])) if raw else (f[0], J[0])
    r = (np.exp(y) if raw else y) - value
    w = np.ones(len(y)) if weights is None else weights
    # In the mean over runs: which of them lie within delta is chance.
    curved = float(curvature(r, delta, form.p).mean())
    scores = np.zeros((int(cluster.max()) + 1, form.p))
    np.add.at(scores, cluster, (w * np.clip(r, -delta, delta) * slope).T)
    H = (slope * (w * curved)) @ slope.T
    if prior is not None:
        H = H + np.diag(prior[1])
    inverse = np.linalg.pinv(H, hermitian=True)
    return inverse, inverse @ (scores.T @ scores) @ inverse


def pair_counts(n: int, draws: int, seed: int) -> Int[ndarray, "m n"]:
    """How often each of n runs is drawn in each resample of n runs."""
    rows = np.random.RandomState(seed or PUBLISHED).randint(0, n, size=(draws, n))
    flat = rows + n * np.arange(draws)[:, None]
    return np.bincount(flat.reshape(-1), minlength=draws * n).reshape(draws, n)


def _noisy(
    form: Form,
    X: Float[ndarray, "v n"],
    y: Float[ndarray, " n"],
    theta: Float[ndarray, " p"],
    draws: int,
    rng: np.random.Generator,
    weights: Float[ndarray, " n"] | None,
    scale: Float[ndarray, " n"] | None,
) -> Float[ndarray, "m n"]:
    """Log losses on the fitted curve with resampled errors, each run's own scale kept."""
    f, J = form.evaluate(theta[None], X)
    own = np.ones(len(y)) if scale is None else scale / scale.mean()
    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    # Residuals are smaller than errors by sqrt(1 - h), h being the run's pull on its own fit.
    q, _ = np.linalg.qr((J[0] * root).T)
    pull = np.minimum((q**2).sum(1), 0.9)
    errors = (y - f[0]) / own / np.sqrt(1 - pull)
    errors -= errors.mean()
    return f[0] + rng.choice(errors, (draws, len(y))) * own


def noise_of(
    r: Float[ndarray, " n"], p: int, weights: Float[ndarray, " n"] | None = None
) -> tuple[float, int]:
    """Standard deviation of the residuals with few outliers' say, and its degrees of freedom.

    Where large runs weigh more, they do so here by the root of their weight: the noise of a large
    run is asked for, but two or three runs can't tell it.
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
    r"""What a form gets wrong when it extrapolates, learnt from backtests.

    The log error $d$ e-folds beyond the data has standard deviation $\tau d$ on top of parameter
    uncertainty and noise. `tau` is a grid and `weight` its posterior.
    """

    tau: Float[ndarray, " t"]
    weight: Float[ndarray, " t"]

    @property
    def typical(self) -> float:
        """Posterior root mean square of tau."""
        return float(np.sqrt((self.weight * self.tau**2).sum()))


TAU = np.exp(np.linspace(np.log(2e-4), np.log(0.2), 33))
USUAL = (0.0025, 0.8)
"""Median of tau before any backtest, and standard deviation of its log, among sizes and data."""

LINE = (0.001, 0.6)
"""The same for runs along one line: a family's sizes, or size and data that grow together."""

ALONG = (0.015, 0.9)
"""The same for a learning curve: runs that differ in data alone, whose slope often breaks."""

BETWEEN = 0.15
"""Share of the variance between forms that their average is charged with: forms err to either
side, so that their average misses by less than they differ."""

BIN = 0.7
"""Distances, in e-folds, at which a form's errors count as separate."""

KNOWN = (8, 0.004)
"""What is known of noise before a run is seen: worth so many runs that show so much of it."""


SCANT = 0.09
"""Log error per e-fold of extrapolation of a law with one degree of freedom: what so few runs
can't tell of floor and bend, in the mean over power laws with floors and noise of 0.3 to 3 %."""


def unseen(
    distance: Float[ndarray, " k"], configurations: int, variables: int
) -> Float[ndarray, " k"]:
    """Variance of the log error of a law of few runs, beyond what their resampling shows.

    Resampling says what would have been fitted had the noise fallen otherwise. Of three or four
    runs it can say little: the fit goes through them, so there are no residuals to resample, and
    no backtests. The error grows with the distance. It falls with the square of the degrees of
    freedom: with a dozen runs, residuals and backtests show what is wrong.

    Args:
        distance: How far beyond the runs, in e-folds.
        configurations: Different runs, seeds counted once.
        variables: That the law depends on.
    """
    dof = max(configurations - variables - 1, 1)
    return (SCANT * distance / dof**2) ** 2


def drift(
    error: list[Float[ndarray, "..."]],
    variance: list[Float[ndarray, "..."]],
    distance: list[Float[ndarray, "..."]],
    usual: tuple[float, float] = USUAL,
    tau: Float[ndarray, " t"] = TAU,
) -> ExtrapolationError:
    """Posterior of the drift from backtest errors.

    In each fold, the runs at about the same distance count as one observation, for what a form
    gets wrong there it gets wrong for all of them.

    Args:
        error: Log errors of the held-out runs, one array per fold.
        variance: Their variance from parameters and noise.
        distance: How far beyond the fold's data each lies, in e-folds.
        usual: Median of tau and standard deviation of its log before any backtest.
        tau: The grid.
    """
    log_posterior = -0.5 * ((np.log(tau) - np.log(usual[0])) / usual[1]) ** 2
    for e, v, d in zip(error, variance, distance, strict=True):
        total = v[None] + tau[:, None] ** 2 * d[None] ** 2
        each = -0.5 * (np.log(total) + e[None] ** 2 / total)
        where = np.unique(np.floor(d / BIN).astype(int), return_inverse=True)[1]
        share = 1 / np.bincount(where)[where]
        log_posterior = log_posterior + each @ share
    weight = np.exp(log_posterior - log_posterior.max())
    return ExtrapolationError(tau, weight / weight.sum())


def half_width(
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extra: ExtrapolationError,
    level: float = 0.95,
) -> Float[ndarray, " k"]:
    """Half-width in log loss of the interval that holds a new run with probability `level`.

    The error is a mixture of normals: parameter variance and noise are known up to a chi-square,
    the drift up to its posterior. The chi-square has `dof` degrees of freedom from the runs and
    those of `KNOWN`, for two or three residuals near zero don't make a run without noise, nor two
    or three large ones a run of any noise.
    """
    return mixture_half_width(*_scales(variance, noise, dof, distance, extra), level)


def mixture_half_width(
    scale: Float[ndarray, "k s"], weight: Float[ndarray, " s"], level: float = 0.95
) -> Float[ndarray, " k"]:
    """Within how much of zero a mixture of centred normals lies with probability `level`."""
    target = 0.5 + level / 2
    # The chance of staying within h is concave in h, so that Newton's steps from below never pass
    # the root.
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


def within(
    error: Float[ndarray, " k"],
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extra: ExtrapolationError,
    level: float = 0.95,
) -> Bool[ndarray, " k"]:
    """Whether each log error is at most the `half_width`, which need not be found for that."""
    scale, weight = _scales(variance, noise, dof, distance, extra)
    return special.ndtr(np.abs(error)[:, None] / scale) @ weight <= 0.5 + level / 2


def _scales(
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    distance: Float[ndarray, " k"],
    extra: ExtrapolationError,
) -> tuple[Float[ndarray, "k s"], Float[ndarray, " s"]]:
    """Standard deviations of the normals that a new run's error is a mixture of, and weights."""
    before, usual = KNOWN
    noise = float(np.sqrt((dof * noise**2 + before * usual**2) / (dof + before)))
    dof = dof + before
    nodes = (np.arange(9) + 0.5) / 9
    inflation = dof / special.chdtri(dof, nodes)  # upper tail at each node
    known = (variance + noise**2)[:, None, None] * inflation[:, None]
    drifted = extra.tau**2 * distance[:, None, None] ** 2
    scale = np.sqrt(known + drifted).reshape(len(variance), -1)
    return scale, np.tile(extra.weight / len(nodes), len(nodes))
