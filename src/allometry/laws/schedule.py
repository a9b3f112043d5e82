r"""The multi-power law: a loss curve under any learning-rate schedule.

Letters: t steps, k earlier steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require

LETTERS = ("L_0", "A", "alpha", "B", "C", "beta", "gamma")


@final
@dataclass(frozen=True)
class Curve:
    """One training: steps, the learning rate from each step on, the loss where it is known."""

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
    sum of learning rates, less what each fall of the learning rate has gained since.

    Differs from the paper: sums run over the steps that were logged, the learning rate between two
    of them being that of the later.

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
    warmup: float
    error: float

    def __call__(self, step: Any, lr: Any) -> Float[ndarray, " t"]:
        """The loss along a schedule."""
        curve = Curve(np.asarray(step, float), np.asarray(lr, float))
        theta = [getattr(self, letter) for letter in LETTERS]
        return _curve(np.array(theta), _sums(curve, self.warmup))


def fit_schedule(curves: Sequence[Curve], *, warmup: float | None = None) -> MultiPowerLaw:
    """The multi-power law of some training curves, by Huber's loss on the log.

    Args:
        curves: Trainings of one model under different schedules.
        warmup: Sum of learning rates before the first logged step; by default half the first
            learning rate times the first step (a linear warm-up).
    """
    from scipy import optimize  # slow to import, and few need it

    require(len(curves) >= 1, "fit_schedule.curves", "hold at least one curve", len(curves))
    for curve in curves:
        require(curve.loss is not None, "fit_schedule.curves", "have losses", None)
    if warmup is None:
        warmup = float(0.5 * curves[0].step[0] * curves[0].lr[0])
    sums = [_sums(curve, warmup) for curve in curves]
    y = np.concatenate([np.log(c.loss) for c in curves if c.loss is not None])
    best = None
    low = float(np.exp(y.min()))
    for alpha, b, c in ((0.5, 100.0, 1.0), (0.4, 600.0, 0.15), (0.7, 500.0, 0.5)):
        start = np.log([0.9 * low, 0.6, alpha, b, c, 0.5, 0.5])

        def residual(t: Float[ndarray, " p"]) -> Float[ndarray, " n"]:
            theta = np.exp(t)
            loss = np.concatenate([_curve(theta, s) for s in sums])
            return np.log(np.maximum(loss, 1e-3)) - y

        made = optimize.least_squares(
            residual, start, loss="huber", f_scale=1e-3, x_scale=0.3, max_nfev=2000
        )
        if best is None or made.cost < best.cost:
            best = made
    assert best is not None
    theta = np.exp(best.x)
    return MultiPowerLaw(
        *map(float, theta), warmup=warmup, error=float(np.sqrt((best.fun**2).mean()))
    )


def _sums(curve: Curve, warmup: float) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Sums of learning rates from the start and since each change of it, and the changes.

    Returns S_1(t); S_k(t) for each change k and step t; the change's size; the rate after it.
    """
    spent = np.diff(curve.step, prepend=curve.step[0]) * curve.lr
    total = warmup + np.cumsum(spent)
    fall = -np.diff(curve.lr, prepend=curve.lr[0])
    changes = np.flatnonzero(np.abs(fall) > 1e-12)
    if len(changes) > 1000:
        # A smooth schedule changes at every step: gather neighbours, each at its group's middle.
        groups = np.array_split(changes, 1000)
        size = np.array([fall[g].sum() for g in groups])
        changes = np.array([g[len(g) // 2] for g in groups])
    else:
        size = fall[changes]
    before = total[changes] - spent[changes]
    since = np.maximum(total[None, :] - before[:, None], 0.0)
    return total, since, size, curve.lr[changes]


def _curve(
    theta: Float[ndarray, " p"], sums: tuple[ndarray, ndarray, ndarray, ndarray]
) -> Float[ndarray, " t"]:
    L_0, A, alpha, B, C, beta, gamma = theta
    total, since, size, rate = sums
    gain = 1 - (C * rate[:, None] ** -gamma * since + 1) ** -beta
    return L_0 + A * total**-alpha - B * (size[:, None] * gain).sum(0)
