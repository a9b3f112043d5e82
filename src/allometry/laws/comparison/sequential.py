r"""Evidence that one recipe is better, valid at every look.

Letters: n observations.

The log ratio of a pair is $z_i = s_i\,[\delta + \nu\,(x_i - x^*)] + \varepsilon_i$, where $s_i$
is the slope of the law that the recipes share, and $\delta$ the log of the compute multiplier at
the scale $x^*$ that was asked for. The hypothesis is $\delta = 0$, with any trend $\nu$ and any
noise. With $\delta \mid \sigma \sim N(0, g\sigma^2 / \bar s^2)$ and right-Haar priors of $\nu$ and
$\sigma$, the Bayes factor is an e-process: its expectation under the hypothesis is 1 at any
stopping time. So a verdict only when it exceeds 20 errs in at most 5 % of comparisons, however
often one looks. A mean over several g is an e-process too. So is one over several changes of the
noise with scale, on average over their prior.

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

from allometry.laws.comparison.joint_fit import null_mode
from allometry.laws.comparison.linear_evidence import ScaledFits
from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import USUAL_TREND, RunNoise
from allometry.laws.comparison.shared_law import SharedLaw

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
        fit = ScaledFits.of(y, s, nuisance, x)
    else:
        # What a seed does to both recipes cancels, so a ratio varies by sqrt(2) noise at most.
        scale = noise.sd * float(np.sqrt(2.0 if paired else 1.0))
        prior = None if paired else (law, mode)
        known = _prior_rows(scale, prior, trend=not one_size)
        fit = ScaledFits.of(
            y, s, nuisance, x, known, degrees=noise.degrees, added=noise.degrees * scale**2,
            constant=noise.stated,
        )  # fmt: skip
    if fit is None:
        return Evidence(pairs=len(pairs))
    return Evidence(fit.e_value(), fit.sign, len(pairs), fit.repetitions())


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
