r"""A law that two recipes share, with the gain of the second as a factor of compute.

Letters: s draws, n runs, k parameters.

On a ladder, where size determines data, with $x = \log C - c_0$,
$$L = L_0\,[e + (1 - e)\, e^{-a\, u}],\quad u = x \pm \tfrac12 h(x),\quad h = \mu + \nu x,$$
with + for the second recipe: it acts as if its compute were multiplied. Equal losses need compute
in the ratio $e^{h}$ up to $O(\nu)$, whatever $e$ and $a$ are. The form is that of two power laws
with a shared irreducible loss and their own coefficients and exponents. `floors` instead lets the
irreducible losses differ, $e\,e^{\pm\epsilon/2}$ with $\nu = 0$. If size and data vary
independently, the reducible part is $w e^{-\alpha n} + (1 - w) e^{-\beta d}$; a gain multiplies
both by $e^{h/2}$.

References:
    `hoffmann2022` Eq. (2) for the form in N and D.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry.laws.comparison.paired_runs import RecipeRuns

Gain = Literal["none", "exponents", "floors"]

EXPONENT = {"C": 0.15, "N": 0.3, "D": 0.3, "ND": 0.35}
"""Centre of the prior of the exponents, by the variables of the law."""

GAIN, TREND, FLOOR = 2.0, 0.2, 0.05
"""Standard deviations of the priors of mu, nu and epsilon."""


@final
@dataclass(frozen=True)
class SharedLaw:
    """The log loss of each run as a function of parameters.

    `x` is the centred log scale; `nd` the centred logs of size and data if both vary on their own.
    `offset` has the mean log FLOPs per parameter and token of each recipe, `centre` the log scale
    at x = 0 without it. `trend` is the standard deviation of the prior of nu.
    """

    x: Float[ndarray, " n"]
    nd: Float[ndarray, "2 n"] | None
    side: Float[ndarray, " n"]
    centre: float
    offset: tuple[float, float]
    scale: str
    gain: Gain
    trend: float = TREND

    @property
    def shape_count(self) -> int:
        """Number of parameters before the gain: level, irreducible share, exponents."""
        return 3 if self.nd is None else 5

    @property
    def prior(self) -> tuple[ndarray, ndarray]:
        """Means and standard deviations of the normal priors; the level has none."""
        key = self.scale if self.nd is None else "ND"
        mean, sd = [0.0, 0.0, np.log(EXPONENT[key])], [1e3, 1.5, 0.8]
        if self.nd is not None:
            mean, sd = [*mean, mean[-1], 0.0], [*sd, 0.8, 1.5]
        extra = {"none": [], "exponents": [GAIN, self.trend], "floors": [GAIN, FLOOR]}[self.gain]
        return np.array([*mean, *([0.0] * len(extra))]), np.array([*sd, *extra])

    def gains(self, theta: Float[ndarray, "s k"]) -> tuple[ndarray, ndarray, ndarray]:
        """Mu, nu and epsilon of each draw."""
        zero, k = np.zeros(len(theta)), self.shape_count
        if self.gain == "none":
            return zero, zero, zero
        mu, other = theta[:, k], theta[:, k + 1]
        return (mu, other, zero) if self.gain == "exponents" else (mu, zero, other)

    def log_loss(self, theta: Float[ndarray, "s k"]) -> Float[ndarray, "s n"]:
        """Log loss of every run by every draw of the parameters."""
        mu, nu, epsilon = (v[:, None] for v in self.gains(theta))
        shift = self.side * (mu + nu * self.x)
        return theta[:, :1] + self.relative(theta, self.x, self.nd, shift, self.side * epsilon)

    def relative(
        self, theta: ndarray, x: ndarray, nd: ndarray | None, shift: ndarray, floor: ndarray
    ) -> ndarray:
        """Log of loss over level at positions shifted by a gain."""
        share = theta[:, 1:2]
        falling = self.falling(theta, x, nd, shift)
        # log of e = sigmoid(share) and of 1 - e, stable at both ends.
        return np.logaddexp(-np.logaddexp(0, -share) + floor, -np.logaddexp(0, share) + falling)

    def falling(self, theta: ndarray, x: ndarray, nd: ndarray | None, shift: ndarray) -> ndarray:
        """Log of the reducible part, 0 at the centre."""
        a = np.exp(np.clip(theta[:, 2:3], -12, 3))
        if self.nd is None:
            return -a * (x + shift)
        b = np.exp(np.clip(theta[:, 3:4], -12, 3))
        n, d = (x / 2, x / 2) if nd is None else nd
        w = theta[:, 4:5]
        return np.logaddexp(
            -np.logaddexp(0, -w) - a * (n + shift / 2), -np.logaddexp(0, w) - b * (d + shift / 2)
        )

    def slope(self, theta: Float[ndarray, " k"]) -> Float[ndarray, " n"]:
        """How much the log loss of each run falls per e-fold of compute."""
        step, zero = 1e-4, np.zeros(len(self.x))
        up, down = (
            self.relative(theta[None], self.x, self.nd, zero + s, zero)[0] for s in (step, -step)
        )
        return np.maximum((down - up) / (2 * step), 1e-9)

    def log_multiplier(
        self, theta: Float[ndarray, "s k"], at: float, winner: int
    ) -> Float[ndarray, " s"]:
        """Log of the scale that the other recipe needs over that of `winner`, at log scale `at`.

        Infinite if the other never reaches that loss.
        """
        sign = 1.0 if winner == 1 else -1.0
        mu, nu, epsilon = (sign * v for v in self.gains(theta))
        cost = self.offset[1 - winner] - self.offset[winner]
        x = at - self.offset[winner] - self.centre
        # h is odd in the recipes: winner at x + h/2, other at x' - h(x')/2.
        other = (x * (1 + nu / 2) + mu) / np.maximum(1 - nu / 2, 0.05)
        if self.gain == "floors":
            other = self._equal_loss(theta, x + mu / 2, epsilon) + mu / 2
        return other - x + cost

    def _equal_loss(self, theta: ndarray, u: ndarray, epsilon: ndarray) -> ndarray:
        """Position at which the loss with the other's irreducible part equals that at `u`."""
        share = special.expit(theta[:, 1])
        own = np.exp(self.falling(theta, u[:, None], None, np.zeros((len(u), 1)))[:, 0])
        wanted = own + share / np.maximum(1 - share, 1e-12) * 2 * np.sinh(epsilon / 2)
        reached = wanted > 0
        goal = np.log(np.where(reached, wanted, 1.0))
        if self.nd is None:
            a = np.exp(np.clip(theta[:, 2], -12, 3))
            return np.where(reached, -goal / a, np.inf)
        low, high = np.full(len(u), -500.0), np.full(len(u), 500.0)
        for _ in range(60):
            middle = (low + high) / 2
            above = self.falling(theta, middle[:, None], None, np.zeros((len(u), 1)))[:, 0] > goal
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(reached, (low + high) / 2, np.inf)


def shared_law(runs: RecipeRuns, gain: Gain, trend: float = TREND) -> SharedLaw:
    """The law for the runs of two recipes."""
    side = runs.recipe - 0.5
    if _on_paths(runs):
        centre = float(runs.x.mean())
        return SharedLaw(runs.x - centre, None, side, centre, (0.0, 0.0), runs.scale, gain, trend)
    n, d = runs.logs["N"], runs.logs["D"]
    cost = runs.logs["C"] - n - d
    offset = tuple(float(cost[runs.recipe == r].mean()) for r in (0, 1))
    nd = np.stack([n - n.mean(), d - d.mean()])
    centre = float(n.mean() + d.mean())
    both = (offset[0], offset[1])
    return SharedLaw(nd.sum(0), nd, side, centre, both, runs.scale, gain, trend)


def _on_paths(runs: RecipeRuns) -> bool:
    """Whether size determines data in each recipe, or there are too few sizes for both."""
    if not {"N", "D"} <= set(runs.logs):
        return True
    n, d = runs.logs["N"], runs.logs["D"]
    if len(np.unique(runs.size)) < 6 or np.ptp(n) < 0.1 or np.ptp(d) < 0.1:
        return True
    for recipe in (0, 1):
        rows = runs.recipe == recipe
        x = runs.x[rows]
        if np.ptp(x) < 1e-9:
            continue
        ratio = (n - d)[rows]
        line = np.polyfit(x, ratio, 1) if len(np.unique(x)) > 2 else np.zeros(2)
        if (ratio - np.polyval(line, x)).std() > 0.05 * max(float(x.std()), 0.5):
            return False
    return True
