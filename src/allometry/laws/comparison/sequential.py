r"""Evidence that one recipe is better, valid at every look.

Letters: n observations.

The log ratio of a pair is $z_i = s_i\,[\delta + \nu\,(x_i - x^*)] + \varepsilon_i$, where $s_i$
is the slope of the law that the recipes share, and $\delta$ the log of the compute multiplier at
the scale $x^*$ that was asked for. The hypothesis is $\delta = 0$, with any trend $\nu$ and any
noise. With $\delta \mid \sigma \sim N(0, g\sigma^2 / \bar s^2)$ and right-Haar priors of $\nu$ and
$\sigma$, the Bayes factor is an e-process: its expectation under the hypothesis is 1 at any
stopping time. So a verdict only when it exceeds 20 errs in at most 5 % of comparisons, however
often one looks. A mean over several g is an e-process too.

If the noise is known apart from the two recipes, stated or pooled over others, $\sigma$ has a
proper prior around it and $\nu$ a normal prior of mean 0. The Bayes factor then needs no
replicates. With $\sigma$ known, the paths without a verdict form a symmetric convex set of the
ratios, to which equal recipes ($\nu = 0$) give at least the probability that the prior of $\nu$
gives it, 95 % or more (Anderson's inequality).

References:
    `lindon2022`; `perezortiz2024`; `vovk2021` for the mean; `anderson1955`.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry.laws.comparison.joint_fit import null_mode
from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import USUAL_TREND, RunNoise
from allometry.laws.comparison.shared_law import SharedLaw

DECISIVE = 20.0
"""Least e-value of a verdict: one error in twenty."""

MOST_MORE = 1000.0
"""Largest factor of further runs that is reported."""

WIDTHS = (1.0, 10.0, 100.0)
"""Prior variances g of a standardised difference."""

NEAR = float(np.log(3.0))
"""Runs of one size are evidence for scales up to this many e-folds away."""


@final
@dataclass(frozen=True)
class Evidence:
    """An e-value against equal recipes, and the sign of the gain of the second.

    `more` is how many times as many runs of the same kind would be expected to reach `DECISIVE`;
    `None` if the runs give no such estimate.
    """

    value: float = 1.0
    sign: int = 0
    pairs: int = 0
    more: float | None = None


def evidence(runs: RecipeRuns, at: float, noise: RunNoise | None = None) -> Evidence:
    """The e-value of the runs of two recipes against equal losses at log scale `at`.

    Paired runs enter by their log ratio. If most runs have no partner, all runs enter, and the
    shared law is estimated with the gain. `noise` is given if it is known apart from these runs.
    """
    pairs = runs.pairs()
    fewest = min(int((runs.recipe == r).sum()) for r in (0, 1))
    least = 2 if noise is None else 1
    one_size = bool(np.ptp(runs.x) < 1e-9)
    if fewest < least or (one_size and abs(at - float(runs.x.mean())) > NEAR):
        return Evidence(pairs=len(pairs))
    law, mode = null_mode(runs, noise)
    slope = law.slope(mode)
    paired = runs.mostly_paired(least)
    if paired:
        y = runs.y[pairs[:, 0]] - runs.y[pairs[:, 1]]
        s, x = slope[pairs].mean(1), runs.x[pairs].mean(1)
        nuisance = np.empty((len(y), 0))
    else:
        y = runs.y - law.log_loss(mode[None])[0]
        s, x = -law.side * slope, runs.x
        step = 1e-5 * np.eye(len(mode))
        nuisance = (law.log_loss(mode + step) - law.log_loss(mode - step)).T / 2e-5
    if not one_size:
        nuisance = np.column_stack([nuisance, s * (x - at)])
    if noise is None:
        fit = LinearFit.of(y, s, nuisance)
    else:
        # What a seed does to both recipes cancels, so a ratio varies by sqrt(2) noise at most.
        scale = noise.sd * float(np.sqrt(2.0 if paired else 1.0))
        prior = None if paired else (law, mode)
        known = _prior_rows(scale, prior, trend=not one_size)
        fit = LinearFit.of(
            y, s, nuisance, known, degrees=noise.degrees, added=noise.degrees * scale**2
        )
    if fit is None:
        return Evidence(pairs=len(pairs))
    return Evidence(fit.e_value(), int(np.sign(fit.estimate)), len(pairs), fit.repetitions())


def _prior_rows(
    scale: float, law: tuple[SharedLaw, Float[ndarray, " k"]] | None, *, trend: bool
) -> tuple[Float[ndarray, "m k"], Float[ndarray, " m"]]:
    """Normal priors of the nuisances as observations with noise `scale`: columns, response."""
    mean, sd = np.empty(0), np.empty(0)
    if law is not None:
        centre, sd = law[0].prior
        mean = centre - law[1]
    if trend:
        mean, sd = np.append(mean, 0.0), np.append(sd, USUAL_TREND)
    # The level of the law, its first parameter, has no prior.
    rows = np.diag(scale / sd)[(0 if law is None else 1) :]
    return rows, rows @ mean


@final
@dataclass(frozen=True)
class LinearFit:
    """Sums of squares of a linear model after its nuisance columns are projected out.

    `square` is that of the effect's column, `unit` its mean square before, `total` that of the
    response. `nuisances` is the number of nuisance columns without a prior, and `added` the sum
    of squares that a known noise adds; it counts as `degrees` observations.
    """

    estimate: float
    square: float
    unit: float
    total: float
    least: float
    n: int
    nuisances: int
    added: float = 0.0
    degrees: float = 0.0

    @classmethod
    def of(
        cls,
        y: Float[ndarray, " n"],
        effect: Float[ndarray, " n"],
        nuisance: Float[ndarray, "n k"],
        prior: tuple[Float[ndarray, "m k"], Float[ndarray, " m"]] | None = None,
        *,
        added: float = 0.0,
        degrees: float = 0.0,
    ) -> "LinearFit | None":
        """The sums; `None` if they leave no freedom for the noise or for the effect.

        Args:
            y: Response.
            effect: Column of the effect.
            nuisance: Columns of the nuisances.
            prior: Rows of the nuisances' columns and of the response that stand for a prior.
            added: Sum of squares of a known noise.
            degrees: Number of observations that it counts as.
        """
        n, rows = len(y), 0
        if prior is not None:
            rows = len(prior[1])
            nuisance, y = np.vstack([nuisance, prior[0]]), np.append(y, prior[1])
            effect = np.append(effect, np.zeros(rows))
        columns = nuisance / np.maximum(np.abs(nuisance).max(0, initial=1e-300), 1e-300)
        basis, values, _ = np.linalg.svd(columns, full_matrices=False)
        basis = basis[:, values > 1e-7 * values.max(initial=0)]
        z = effect - basis @ (basis.T @ effect)
        r = y - basis @ (basis.T @ y)
        square, total = float(z @ z), float(r @ r)
        # Rounding leaves this much where noise is zero.
        least = n * (1e-9 * max(float(np.abs(y).max()), 1e-9)) ** 2
        used = basis.shape[1] - rows
        free = n - used + degrees
        if free < 2 or square <= 1e-14 * float(effect @ effect) or total + added <= least:
            return None
        unit = float(effect @ effect) / n
        return cls(float(z @ r) / square, square, unit, total, least, n, used, added, degrees)

    def e_value(self, times: float = 1.0) -> float:
        """The e-value of no effect, as expected if there were `times` as many observations."""
        free = times * self.n - self.nuisances + self.degrees
        explained, added = self.estimate**2 * self.square, self.added / times
        total = self.total + added
        logs = []
        for width in WIDTHS:
            ratio = width * times * self.square / self.unit
            remaining = max(total - explained * ratio / (1 + ratio), self.least)
            logs.append(-0.5 * np.log1p(ratio) + free / 2 * np.log(total / remaining))
        return float(np.exp(min(special.logsumexp(logs) - np.log(len(WIDTHS)), 600.0)))

    def repetitions(self) -> float | None:
        """How many times as many observations are expected to decide; `None` if too many."""
        if self.e_value(MOST_MORE) < DECISIVE:
            return None
        low, high = 0.0, np.log(MOST_MORE)
        for _ in range(40):
            middle = (low + high) / 2
            decided = self.e_value(float(np.exp(middle))) >= DECISIVE
            low, high = (low, middle) if decided else (middle, high)
        return float(np.exp(high))
