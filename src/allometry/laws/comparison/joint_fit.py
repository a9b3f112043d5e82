r"""The posterior of a gain: paired noise, two shapes of the gain, importance sampling.

Letters: s draws, n runs, p pairs, k parameters.

Differences of pairs have their own variance, so what a seed does to both recipes cancels. The
variances are integrated out under Jeffreys' prior: with sums of squares $S_d$ of $n_d$ differences
and $S_s$ of $n_s$ sums, the likelihood is $S_d^{-n_d/2} S_s^{-n_s/2}$. Draws come from adaptive
importance sampling around the mode.

References:
    `cappe2004` (population Monte Carlo); `ionides2008` (truncated weights).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import optimize, special

from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import USUAL_TREND, RunNoise
from allometry.laws.comparison.shared_law import TREND, Gain, SharedLaw, shared_law

DRAWS = 3000
ROUNDS = 4
SPREAD = 6.0
"""Degrees of freedom of the proposals."""

ASSUMED_NOISE = 0.003
"""Standard deviation of log loss if there are too few runs to estimate it."""

LEAST_NOISE = 1e-7
"""Standard deviation that rounding leaves in any case."""

STEP = float(np.sqrt(np.finfo(float).eps))
"""Relative step of derivatives."""

STARTS = ((0.0, 0.0), (1.5, 0.7), (-2.0, -0.7))
"""Starting values: logit of the irreducible share; deviation of the log exponents."""


@final
@dataclass(frozen=True)
class Residuals:
    """Residuals of runs as differences of pairs and the rest.

    `extra` is the noise that is assumed or known; it counts as `weight` observations.
    """

    pairs: Int[ndarray, "p 2"]
    single: Int[ndarray, " u"]
    split: bool
    extra: float = 0.0
    weight: float = 0.0
    known: bool = False

    def parts(self, r: Float[ndarray, "s n"]) -> tuple[ndarray, ndarray]:
        """Differences and other residuals; empty differences if one variance serves all."""
        if not self.split:
            return r[:, :0], r
        first, second = r[:, self.pairs[:, 0]], r[:, self.pairs[:, 1]]
        rest = np.concatenate([first + second, np.sqrt(2) * r[:, self.single]], 1)
        return second - first, rest


@final
@dataclass(frozen=True)
class Posterior:
    """Draws of the parameters with equal weights, and the log of the marginal likelihood."""

    law: SharedLaw
    draws: Float[ndarray, "s k"]
    mode: Float[ndarray, " k"]
    evidence: float
    noise: float
    assumed: bool


def residuals_of(runs: RecipeRuns, parameters: int, noise: RunNoise | None) -> Residuals:
    """How to sum the residuals of the runs of two recipes."""
    pairs = runs.pairs()
    single = np.setdiff1d(np.arange(len(runs.y)), pairs.reshape(-1))
    # Two parameters of the gain rest on the differences, the others on the sums.
    split = len(pairs) >= 5 and len(pairs) + len(single) - (parameters - 2) >= 3
    if noise is not None:
        # Differences and sums of two runs have twice the variance of one.
        scale = noise.sd * float(np.sqrt(2.0 if split else 1.0))
        return Residuals(pairs, single, split, scale, noise.degrees, known=True)
    if len(runs.y) - parameters < 3:
        return Residuals(pairs, single, split, ASSUMED_NOISE, 1)
    return Residuals(pairs, single, split)


def sample(
    runs: RecipeRuns, gain: Gain, rng: np.random.Generator, noise: RunNoise | None = None
) -> Posterior:
    """The posterior of the law of two recipes with a gain of the given shape.

    `noise` is that of a run, if it is known apart from these runs.
    """
    stated = noise is not None and noise.stated
    law = shared_law(runs, gain, USUAL_TREND if stated else TREND)
    how = residuals_of(runs, len(law.prior[0]), noise)
    mode, spread = _mode(law, runs.y, how)
    draws, evidence = _importance(law, runs.y, how, mode, spread, rng)
    rest = how.parts(runs.y - law.log_loss(mode[None]))
    left = rest[0] / np.sqrt(2) if how.split else rest[1]
    scale = float(np.sqrt((left**2).sum() / max(left.size - 2, 1)))
    return Posterior(law, draws, mode, evidence, scale, how.weight > 0 and not how.known)


def null_mode(
    runs: RecipeRuns, noise: RunNoise | None = None
) -> tuple[SharedLaw, Float[ndarray, " k"]]:
    """The law that fits both recipes without a gain."""
    law = shared_law(runs, "none")
    none, every = np.empty((0, 2), int), np.arange(len(runs.y))
    how = Residuals(none, every, False)
    if noise is not None:
        how = Residuals(none, every, False, noise.sd, noise.degrees, known=True)
    elif len(runs.y) - len(law.prior[0]) < 3:
        how = Residuals(none, every, False, ASSUMED_NOISE, 1)
    return law, _mode(law, runs.y, how)[0]


def _log_density(
    law: SharedLaw, y: ndarray, how: Residuals, theta: Float[ndarray, "s k"]
) -> Float[ndarray, " s"]:
    """Log posterior up to a constant that is the same for all shapes of the gain."""
    mean, sd = law.prior
    prior = -0.5 * (((theta - mean) / sd) ** 2)[:, 1:].sum(1) - np.log(sd[1:]).sum()
    prior -= 0.5 * np.log(2 * np.pi) * (len(sd) - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = how.parts(y - law.log_loss(theta))
    total = prior
    for r in parts:
        n = r.shape[1]
        if n:
            count = n + how.weight
            floor = how.weight * how.extra**2 + n * LEAST_NOISE**2
            total = total - count / 2 * np.log((r**2).sum(1) + floor)
    return np.where(np.isfinite(total), total, -np.inf)


def _mode(law: SharedLaw, y: ndarray, how: Residuals) -> tuple[ndarray, ndarray]:
    """The posterior mode and a root of its covariance, the best of several starts."""
    mean, _ = law.prior
    found = []
    for share, rate in STARTS:
        start = mean.copy()
        start[0], start[1] = y.mean(), share
        start[2 : 3 if law.nd is None else 4] += rate
        theta, jacobian = _local_mode(law, y, how, start)
        found.append((float(_log_density(law, y, how, theta[None])[0]), theta, jacobian))
    _, theta, jacobian = max(found, key=lambda f: f[0])
    values, vectors = np.linalg.eigh(jacobian.T @ jacobian)
    values = np.maximum(values, 1e-12 * values.max())
    return theta, vectors / np.sqrt(values)


def _local_mode(
    law: SharedLaw, y: ndarray, how: Residuals, start: ndarray
) -> tuple[ndarray, ndarray]:
    """A mode by reweighted least squares, and the Jacobian of its weighted residuals."""
    mean, sd = law.prior
    theta, jacobian = start, np.eye(len(start))
    scales = (max(float(y.std()), 1e-6) * 0.1, max(float(y.std()), 1e-6) * 0.1)
    for _ in range(4):
        weights = scales

        def residuals(t: ndarray, weights: tuple[float, float] = weights) -> ndarray:
            parts = how.parts(y - law.log_loss(np.atleast_2d(t)))
            scaled = [p / w for p, w in zip(parts, weights, strict=True)]
            rows = np.hstack([*scaled, ((np.atleast_2d(t) - mean) / sd)[:, 1:]])
            return rows[0] if t.ndim == 1 else rows

        def derivative(t: ndarray, residuals: Callable[[ndarray], ndarray] = residuals) -> ndarray:
            # One evaluation of all steps takes a fraction of the time of one for each.
            step = STEP * np.where(t >= 0, 1.0, -1.0) * np.maximum(1.0, np.abs(t))
            moved = t + np.diag(step)
            return ((residuals(moved) - residuals(t)) / (np.diag(moved) - t)[:, None]).T

        fit = optimize.least_squares(residuals, theta, derivative, method="lm", max_nfev=200)
        theta, jacobian = fit.x, np.asarray(fit.jac)
        scales = _scales(how, y - law.log_loss(theta[None]), len(mean))
        if np.allclose(scales, weights, rtol=0.02):
            break
    return theta, jacobian


def _scales(how: Residuals, r: ndarray, parameters: int) -> tuple[float, float]:
    """Standard deviations of differences and sums; the parameters' share of freedom taken off."""
    out = []
    parts = how.parts(r)
    for part in parts:
        n = part.shape[1]
        used = 2 if part is parts[0] else parameters - (2 if how.split else 0)
        square = float((part**2).sum()) + how.weight * how.extra**2 + n * LEAST_NOISE**2
        free = max(n - used, 0) + how.weight if how.known else max(n - used, 1)
        out.append(float(np.sqrt(square / free)) if n else 1.0)
    return out[0], out[1]


def _importance(
    law: SharedLaw,
    y: ndarray,
    how: Residuals,
    mode: ndarray,
    root: ndarray,
    rng: np.random.Generator,
) -> tuple[ndarray, float]:
    """Draws of the posterior and the log of its integral."""
    k, centre = len(mode), mode
    draws = weights = np.empty(0)
    logs = np.empty(0)
    for turn in range(ROUNDS):
        count = DRAWS if turn == ROUNDS - 1 else DRAWS // 2
        z = rng.standard_normal((count, k))
        z *= np.sqrt(SPREAD / rng.chisquare(SPREAD, count))[:, None]
        draws = centre + z @ root.T
        proposal = -(SPREAD + k) / 2 * np.log1p((z**2).sum(1) / SPREAD)
        proposal += special.gammaln((SPREAD + k) / 2) - special.gammaln(SPREAD / 2)
        proposal -= k / 2 * np.log(SPREAD * np.pi) + np.linalg.slogdet(root)[1]
        logs = _log_density(law, y, how, draws) - proposal
        # Truncation keeps single draws from dominating.
        top = special.logsumexp(logs) - np.log(count)
        weights = np.exp(np.minimum(logs - top, 0.5 * np.log(count)))
        weights /= weights.sum()
        if turn < ROUNDS - 1 and 1 / (weights**2).sum() > 5 * k:
            centre = weights @ draws
            away = (draws - centre) * np.sqrt(weights)[:, None]
            values, vectors = np.linalg.eigh(away.T @ away)
            root = vectors * np.sqrt(np.maximum(values, 1e-12 * values.max())) * 1.15
    chosen = rng.choice(len(draws), len(draws), p=weights)
    return draws[chosen], float(special.logsumexp(logs) - np.log(len(logs)))
