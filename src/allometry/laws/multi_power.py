r"""The multi-power law: a loss curve under any learning-rate schedule.

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
"""Changes of the learning rate that are followed one by one; more are gathered into so many."""

BLOCK = 20
"""Neighbouring points of a curve whose errors may go together."""

STARTS = ((0.95, 0.5, 300.0, 1.0, 0.5, 0.5), (0.9, 0.4, 600.0, 0.15, 0.3, 0.8))
"""Share of the lowest loss for L_0, then alpha, B, C, beta, gamma; A starts at 0.6."""

Sums = tuple[ndarray, ndarray, ndarray, ndarray]


@final
@dataclass(frozen=True)
class LossCurve:
    """One training: steps, the learning rate at each, the loss where it is known."""

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
    sum of learning rates, less what each fall of the learning rate has gained since. The rise of
    the warm-up counts as a fall below zero, as in the paper.

    Differs from the paper: the learning rate between two logged steps is interpolated; more than
    `GROUPS` changes are gathered.

    Args:
        L_0: Loss that no training goes below at the peak rate.
        A: Level of the power law.
        alpha: Its exponent.
        B: Gain per fall of the learning rate.
        C: How soon the gain comes.
        beta: Its exponent.
        gamma: How it depends on the rate.
        warmup: Steps of linear warm-up from zero.
        error: Root mean square log error on the curves fitted.
        objective: Sum of Huber's loss on them.
        starts: Searches begun, and how many of them came to this optimum.
        spread: Covariance of the logs of the seven parameters, from blocks of `BLOCK` points.
        folds: For each curve left out, the root mean square log error of the law of the others.

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
        """The parameters with 95 % intervals, symmetric in their logs; none without a fit."""
        out = {}
        for i, letter in enumerate(LETTERS):
            value = getattr(self, letter)
            if self.spread is None:
                out[letter] = Estimate(value, method="given, not fitted")
                continue
            sd = float(np.sqrt(self.spread[i, i]))
            away = np.exp(min(1.96 * sd, 700.0))
            out[letter] = Estimate(
                value, se=value * sd, lo=value / away, hi=value * away, method="delta, in blocks"
            )
        return out

    def band(
        self, step: Any, lr: Any, level: float = 0.95
    ) -> tuple[Float[ndarray, " t"], Float[ndarray, " t"], Float[ndarray, " t"]]:
        r"""Lower end, value and upper end of the loss along a schedule.

        The log error has the variance of the parameters, that of the residuals, and what the law
        gets wrong on a schedule it has not seen: the mean square of `folds`, with as many degrees
        of freedom as there were folds.

        Raises:
            InputError: When the law was given rather than fitted, or to one curve alone.
        """
        require(self.spread is not None, "band", "be asked of a fitted law", "given parameters")
        require(
            len(self.folds) >= 2,
            "band",
            "be asked of a law of at least 2 curves",
            len(self.folds),
            "One curve can't tell how the law does on another schedule.",
        )
        assert self.spread is not None
        curve = LossCurve(np.asarray(step, float), np.asarray(lr, float))
        theta = np.array([getattr(self, letter) for letter in LETTERS])
        value, J = _curve(theta, _sums(curve, self.warmup))
        J = J * theta / value[:, None]
        drift = float(np.mean(np.square(self.folds)))
        scale = np.sqrt(np.einsum("tp,pq,tq->t", J, self.spread, J) + self.error**2 + drift)
        half = special.stdtrit(len(self.folds), 0.5 + level / 2) * scale
        return value * np.exp(-half), value, value * np.exp(half)

    def predict(self, step: Any, lr: Any) -> ndarray:
        """The loss along a schedule with 95 % intervals, as an array of `Estimate`."""
        out = np.empty(len(np.atleast_1d(step)), dtype=object)
        for i, (lo, mid, hi) in enumerate(zip(*self.band(step, lr), strict=True)):
            out[i] = Estimate(
                float(mid), lo=float(lo), hi=float(hi), method="delta and schedules left out"
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
    """The multi-power law of some training curves, by Huber's loss on the log.

    Args:
        curves: Trainings of one model under different schedules.
        warmup: Steps of linear warm-up; by default up to the first logged step.
        delta: Where Huber's loss turns linear.

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
    """Log errors of all curves at the logs of the parameters, and their derivative."""
    theta = np.exp(np.clip(t, -30.0, 30.0))
    parts = [_curve(theta, s) for s in sums]
    # A trial that overflows counts as far off, so that it is refused.
    loss = np.nan_to_num(np.concatenate([f for f, _ in parts]), nan=1e9, posinf=1e9)
    slope = np.nan_to_num(np.concatenate([J for _, J in parts]), posinf=0.0, neginf=0.0)
    loss = np.clip(loss, 1e-3, 1e9)
    return np.log(loss) - np.concatenate(y), slope * theta / loss[:, None]


def _search(
    sums: list[Sums], y: list[ndarray], delta: float, starts: list[ndarray]
) -> tuple[tuple[ndarray, float, int], ndarray, ndarray]:
    """The best of some searches: logs of the parameters, objective, how many agree; residuals."""
    from scipy import optimize  # slow to import, and few need it

    found = []
    for start in starts:
        with np.errstate(all="ignore"):
            made = optimize.least_squares(
                lambda t: _residual(t, sums, y)[0],
                start,
                jac=lambda t: _residual(t, sums, y)[1],  # pyright: ignore[reportArgumentType]
                loss="huber",
                f_scale=delta,
                x_scale="jac",
                max_nfev=500,
            )
        found.append(made)
    best = min(found, key=lambda made: made.cost)
    agree = sum(made.cost <= best.cost * (1 + 1e-4) for made in found)
    return (best.x, float(best.cost), int(agree)), *_residual(best.x, sums, y)


def _spread(
    r: Float[ndarray, " t"], J: Float[ndarray, "t p"], delta: float, lengths: list[int]
) -> Float[ndarray, "p p"]:
    """Delta-method covariance in which neighbouring points of a curve may err together."""
    block = np.concatenate([1000 * k + np.arange(size) // BLOCK for k, size in enumerate(lengths)])
    block = np.unique(block, return_inverse=True)[1]
    scores = np.zeros((block.max() + 1, J.shape[1]))
    np.add.at(scores, block, np.clip(r, -delta, delta)[:, None] * J)
    inverse = np.linalg.pinv(float(curvature(r, delta, J.shape[1]).mean()) * J.T @ J)
    return inverse @ (scores.T @ scores) @ inverse


def _sums(curve: LossCurve, warmup: float) -> Sums:
    """Sums of learning rates from the start and since each change of it, and the changes.

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
        # A smooth schedule changes at every step: gather neighbours, each at its group's middle.
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
    """The loss at the logged points, and its derivative by each parameter."""
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
