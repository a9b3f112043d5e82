r"""The multi-power law: the loss curve of any learning-rate schedule.

Letters: t logged points, k changes of the learning rate, p parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.laws.intervals import curvature

LETTERS = ("L_0", "A", "alpha", "B", "C", "beta", "gamma")

GROUPS = 600
"""Largest number of learning-rate changes; more are merged into so many groups."""

BLOCK = 20
"""Neighbouring points of a curve whose errors may be correlated."""

STARTS = ((0.95, 0.5, 300.0, 1.0, 0.5, 0.5), (0.9, 0.4, 600.0, 0.15, 0.3, 0.8))
"""L_0 as a share of the lowest loss, then alpha, B, C, beta, gamma; A starts at 0.6."""

Sums = tuple[ndarray, ndarray, ndarray, ndarray]


@final
@dataclass(frozen=True)
class LossCurve:
    """One training run: steps, learning rates, and losses if known."""

    step: Float[ndarray, " t"]
    lr: Float[ndarray, " t"]
    loss: Float[ndarray, " t"] | None = None


@final
@dataclass(frozen=True)
class MultiPowerLaw:
    r"""$L(t) = L_0 + A\,S_1(t)^{-\alpha} - LD(t)$ for a learning rate $\eta$.

    $S_1(t) = \sum_{\tau \le t} \eta_\tau$ and
    $LD(t) = B \sum_k (\eta_{k-1} - \eta_k)\, G(\eta_k^{-\gamma} S_k(t))$ with
    $G(x) = 1 - (C x + 1)^{-\beta}$ and $S_k(t) = \sum_{\tau=k}^t \eta_\tau$: a power law in the
    sum of learning rates, minus the gain since each decrease of the learning rate. The warm-up
    counts as a negative decrease, as in the paper.

    Differs from the paper: the learning rate between two logged steps is interpolated; more than
    `GROUPS` changes are merged.

    Args:
        L_0: Irreducible loss at the peak rate.
        A: Level of the power law.
        alpha: Its exponent.
        B: Gain per decrease of the learning rate.
        C: Speed of the gain.
        beta: Exponent of the gain.
        gamma: Dependence of the gain on the rate.
        warmup: Steps of linear warm-up from zero.
        error: Root mean square log error on the curves fitted.
        objective: Sum of Huber's loss on them.
        starts: The number of searches, and how many of them reached this optimum.
        spread: Covariance of the logs of the seven parameters, from blocks of `BLOCK` points.
        folds: Root mean square log error on each curve of a law fitted to the others.

    References:
        `luo2025` Eq. (1).
    """

    L_0: float
    A: float
    alpha: float
    B: float
    C: float
    beta: float
    gamma: float
    warmup: float = 0.0
    error: float = float("nan")
    objective: float = float("nan")
    starts: tuple[int, int] = (0, 0)
    spread: Float[ndarray, "p p"] | None = None
    folds: tuple[float, ...] = ()

    @property
    def params(self) -> dict[str, Estimate]:
        """The parameters with 95 % intervals, symmetric in the logs, if the law was fitted."""
        out = {}
        for i, letter in enumerate(LETTERS):
            value = getattr(self, letter)
            if self.spread is None:
                out[letter] = Estimate(value, method="given, not fitted")
                continue
            sd = float(np.sqrt(self.spread[i, i]))
            away = np.exp(min(1.96 * sd, 700.0))
            out[letter] = Estimate(
                value, se=value * sd, lo=value / away, hi=value * away, method="block delta method"
            )
        return out

    def band(
        self, step: Any, lr: Any, level: float = 0.95
    ) -> tuple[Float[ndarray, " t"], Float[ndarray, " t"], Float[ndarray, " t"]]:
        r"""Lower end, value and upper end of the loss along a schedule.

        The variance of the log error is the sum of three terms: parameter variance, residual
        variance, and the error on a new schedule, the mean square of `folds`, with one degree of
        freedom per fold.

        Raises:
            InputError: If the law was not fitted, or fitted to one curve only.
        """
        require(self.spread is not None, "band", "have a fitted law", "given parameters")
        require(
            len(self.folds) >= 2,
            "band",
            "have a law fitted to at least 2 curves",
            len(self.folds),
            "One curve does not show the error on another schedule.",
        )
        assert self.spread is not None
        curve = LossCurve(np.asarray(step, float), np.asarray(lr, float))
        theta = np.array([getattr(self, letter) for letter in LETTERS])
        value, J = _curve(theta, _sums(curve, self.warmup))
        J = J * theta / value[:, None]
        new_schedule = float(np.mean(np.square(self.folds)))
        variance = np.einsum("tp,pq,tq->t", J, self.spread, J) + self.error**2 + new_schedule
        scale = np.sqrt(variance)
        half = special.stdtrit(len(self.folds), 0.5 + level / 2) * scale
        return value * np.exp(-half), value, value * np.exp(half)

    def predict(self, step: Any, lr: Any) -> ndarray:
        """The loss along a schedule with 95 % intervals, as an array of `Estimate`."""
        out = np.empty(len(np.atleast_1d(step)), dtype=object)
        for i, (lo, mid, hi) in enumerate(zip(*self.band(step, lr), strict=True)):
            out[i] = Estimate(
                float(mid),
                lo=float(lo),
                hi=float(hi),
                method="delta method and held-out schedules",
            )
        return out

    def __call__(self, step: Any, lr: Any) -> Float[ndarray, " t"]:
        """The loss along a schedule."""
        curve = LossCurve(np.asarray(step, float), np.asarray(lr, float))
        theta = np.array([getattr(self, letter) for letter in LETTERS])
        return _curve(theta, _sums(curve, self.warmup))[0]


def fit_schedule(
    curves: Sequence[LossCurve], *, warmup: float | None = None, delta: float = 1e-3
) -> MultiPowerLaw:
    """Fit the multi-power law to training curves, by Huber's loss on the log.

    Args:
        curves: Training runs of one model under different schedules.
        warmup: Steps of linear warm-up. Default: up to the first logged step.
        delta: Threshold of Huber's loss.

    References:
        `luo2025` section 3.
    """
    require(len(curves) >= 1, "fit_schedule.curves", "hold at least one curve", len(curves))
    for curve in curves:
        require(curve.loss is not None, "fit_schedule.curves", "have losses", None)
        require(
            bool((np.diff(curve.step) > 0).all() and curve.step[0] >= 0),
            "fit_schedule.curves",
            "have rising steps",
            curve.step[:3],
        )
        require(bool((curve.lr > 0).all()), "fit_schedule.curves", "have positive rates", "zero")
    if warmup is None:
        warmup = float(min(curve.step[0] for curve in curves))
    sums = [_sums(curve, warmup) for curve in curves]
    y = [np.log(c.loss) for c in curves if c.loss is not None]
    found, residual, slope = _search(sums, y, delta, [_start(y, *start) for start in STARTS])
    theta = np.exp(found[0])
    folds = []
    if len(curves) > 1:
        for k, (mine, own) in enumerate(zip(sums, y, strict=True)):
            others = [i for i in range(len(y)) if i != k]
            rest = [sums[i] for i in others], [y[i] for i in others]
            at = _search(*rest, delta, [found[0]])[0][0]
            folds.append(float(np.sqrt(np.mean(_residual(at, [mine], [own])[0] ** 2))))
    return MultiPowerLaw(
        *map(float, theta),
        warmup=warmup,
        error=float(np.sqrt((residual**2).mean())),
        objective=found[1],
        starts=(len(STARTS), found[2]),
        spread=_spread(residual, slope, delta, [len(own) for own in y]),
        folds=tuple(folds),
    )


def _start(y: list[ndarray], share: float, *rest: float) -> Float[ndarray, " p"]:
    low = float(np.exp(min(own.min() for own in y)))
    return np.log([share * low, 0.6, *rest])


def _residual(
    t: Float[ndarray, " p"], sums: list[Sums], y: list[ndarray]
) -> tuple[Float[ndarray, " t"], Float[ndarray, "t p"]]:
    """Log errors of all curves as a function of the log parameters, and their derivative."""
    theta = np.exp(np.clip(t, -30.0, 30.0))
    parts = [_curve(theta, s) for s in sums]
    # A trial that overflows counts as a large error, so that it is rejected.
    loss = np.nan_to_num(np.concatenate([f for f, _ in parts]), nan=1e9, posinf=1e9)
    slope = np.nan_to_num(np.concatenate([J for _, J in parts]), posinf=0.0, neginf=0.0)
    loss = np.clip(loss, 1e-3, 1e9)
    return np.log(loss) - np.concatenate(y), slope * theta / loss[:, None]


def _search(
    sums: list[Sums], y: list[ndarray], delta: float, starts: list[ndarray]
) -> tuple[tuple[ndarray, float, int], ndarray, ndarray]:
    """The best search: log parameters, objective, number that agree; residuals and slopes."""
    from scipy import optimize  # imported here because it is slow

    found = []
    for start in starts:
        with np.errstate(all="ignore"):
            result = optimize.least_squares(
                lambda t: _residual(t, sums, y)[0],
                start,
                jac=lambda t: _residual(t, sums, y)[1],  # pyright: ignore[reportArgumentType]
                loss="huber",
                f_scale=delta,
                x_scale="jac",
                max_nfev=500,
            )
        found.append(result)
    best = min(found, key=lambda result: result.cost)
    agree = sum(result.cost <= best.cost * (1 + 1e-4) for result in found)
    return (best.x, float(best.cost), int(agree)), *_residual(best.x, sums, y)


def _spread(
    r: Float[ndarray, " t"], J: Float[ndarray, "t p"], delta: float, lengths: list[int]
) -> Float[ndarray, "p p"]:
    """Delta-method covariance with correlated errors within blocks of a curve."""
    block = np.concatenate([1000 * k + np.arange(size) // BLOCK for k, size in enumerate(lengths)])
    block = np.unique(block, return_inverse=True)[1]
    scores = np.zeros((block.max() + 1, J.shape[1]))
    np.add.at(scores, block, np.clip(r, -delta, delta)[:, None] * J)
    inverse = np.linalg.pinv(float(curvature(r, delta, J.shape[1]).mean()) * J.T @ J)
    return inverse @ (scores.T @ scores) @ inverse


def _sums(curve: LossCurve, warmup: float) -> Sums:
    """Sums of learning rates from the start and since each change, and the changes.

    Returns S_1(t); S_k(t) for each change k and logged point t; the change's size; the rate after
    it.
    """
    at, rate = curve.step, curve.lr
    if at[0] > 0:  # a warm-up from zero, and the first rate from its end on
        low = [0.0, warmup] if 0 < warmup < at[0] else [0.0]
        at, rate = np.append(low, at), np.append([0.0, rate[0]][: len(low)], rate)
    steps = np.arange(int(curve.step[-1]) + 1)
    eta = np.interp(steps, at, rate)
    total = np.cumsum(eta)
    rise = np.diff(eta, prepend=eta[0])
    changes = np.flatnonzero((np.abs(rise) > 1e-12 * eta.max()) & (eta > 0))
    size = rise[changes]
    if len(changes) > GROUPS:
        # A smooth schedule changes at every step: merge neighbours at the middle of each group.
        groups = np.array_split(changes, GROUPS)
        size = np.array([rise[g].sum() for g in groups])
        changes = np.array([g[len(g) // 2] for g in groups])
    spent = total[np.round(curve.step).astype(int)]
    before = total[changes] - eta[changes]
    since = np.maximum(spent[None, :] - before[:, None], 0.0)
    return spent, since, size, eta[changes]


def _curve(
    theta: Float[ndarray, " p"], sums: Sums
) -> tuple[Float[ndarray, " t"], Float[ndarray, "t p"]]:
    """The loss at the logged points, and its derivative with respect to each parameter."""
    L_0, A, alpha, B, C, beta, gamma = theta
    spent, since, size, rate = sums
    x = rate[:, None] ** -gamma * since
    base = 1 + C * x
    rest = base**-beta
    power = spent**-alpha
    gained = size @ (1 - rest)
    slope = beta * rest / base
    rows = [
        np.ones_like(spent),
        power,
        -A * power * np.log(spent),
        gained,
        B * (size @ (x * slope)),
        B * (size @ (np.log(base) * rest)),
        B * ((-np.log(rate) * size) @ (C * x * slope)),
    ]
    return L_0 + A * power + B * gained, np.stack(rows, 1)
