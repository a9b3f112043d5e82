r"""The noise of two recipes from the runs of others in the same table.

Letters: n runs, q columns.

With few runs, two recipes hardly identify their noise. Further recipes of the table do if all have
the same noise: in $y_{jk} = b_j + s_j\,(\delta_k + \nu_k x_j) + \varepsilon_{jk}$, with a level
$b_j$ for each size and seed, the residual sum of squares of all recipes exceeds that of the two
by a sum that is independent of both, as recursive residuals are. If recipes have few sizes and
seeds in common, the shared law, linearised, takes the place of the levels.

Noise differs between recipes. Between 22 groups of replicas of speed runs, the log variance has a
variance of 0.47 beyond that of its estimates, which is that of 5 degrees of freedom. So the pooled
noise counts as `MOST_DEGREES` replicates, however many runs it comes from.

References:
    `brown1975` for recursive residuals.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry.laws.comparison.joint_fit import null_mode
from allometry.laws.comparison.paired_runs import RecipeRuns
from allometry.laws.comparison.run_noise import RunNoise
from allometry.laws.comparison.shared_law import SharedLaw

MOST_DEGREES = 4.0
"""Most replicates that a pooled noise counts as."""

LEAST = 1e-6
"""Least standard deviation: equal losses to this precision are no noise."""


def pooled_noise(runs: RecipeRuns, first: int, second: int) -> RunNoise | None:
    """The noise of two recipes from the others; `None` if these leave no degree of freedom."""
    if len(runs.names) < 3:
        return None
    two = runs.two(first, second)
    law, mode = null_mode(two)
    kept = runs.take(np.flatnonzero(np.isin(runs.recipe, _distinct(runs, (first, second)))))
    ours = np.isin(kept.recipe, (first, second))
    paired = two.mostly_paired(1)
    if paired:
        single = _single(kept)
        kept, ours = kept.take(np.flatnonzero(single)), ours[single]
    whole = _extended(law, kept, two)
    slope = whole.slope(mode)[:, None]
    columns = slope * (kept.recipe[:, None] == np.unique(kept.recipe))
    trends = columns * (kept.x - float(two.x.mean()))[:, None]
    y, groups, others = kept.y, kept.slot, np.empty((len(kept.y), 0))
    if not paired:
        step = 1e-5 * np.eye(len(mode))
        others = (whole.log_loss(mode + step) - whole.log_loss(mode - step)).T / 2e-5
        y, groups = y - whole.log_loss(mode[None])[0], np.zeros(len(y), int)
    # Two sizes do not separate trends from noise, so trends count as noise there.
    for chosen in (np.hstack([columns, trends, others]), np.hstack([columns, others])):
        every, free = _residual(y, chosen, groups)
        mine, own = _residual(y[ours], chosen[ours], groups[ours])
        if free - own >= 1:
            sd = float(np.sqrt(max(every - mine, 0.0) / (free - own)))
            return RunNoise(max(sd, LEAST), min(float(free - own), MOST_DEGREES))
    return None


def _distinct(runs: RecipeRuns, first: tuple[int, int]) -> list[int]:
    """The recipes without those whose runs repeat another's: copies have no noise of their own."""
    order = [*first, *(i for i in range(len(runs.names)) if i not in first)]
    seen: dict[tuple[float, ...], int] = {}
    for i in order:
        rows = runs.recipe == i
        key = tuple(np.sort(runs.y[rows]).tolist())
        if i in first or key not in seen:
            seen[key] = i
    return sorted({*first, *seen.values()})


def _single(runs: RecipeRuns) -> ndarray:
    """Rows in slots in which no recipe has several runs: those have no seeds to pair by."""
    keys = runs.slot * len(runs.names) + runs.recipe
    several = np.bincount(keys)[keys] > 1
    return ~np.isin(runs.slot, runs.slot[several])


def _extended(law: SharedLaw, runs: RecipeRuns, two: RecipeRuns) -> SharedLaw:
    """The law of two recipes, without a gain, at the runs of all."""
    side = np.zeros(len(runs.y))
    if law.nd is None:
        return replace(law, x=runs.x - law.centre, side=side)
    means = [float(two.logs[name].mean()) for name in ("N", "D")]
    nd = np.stack([runs.logs[name] - m for name, m in zip(("N", "D"), means, strict=True)])
    return replace(law, x=nd.sum(0), nd=nd, side=side)


def _residual(
    y: Float[ndarray, " n"], columns: Float[ndarray, "n q"], groups: Int[ndarray, " n"]
) -> tuple[float, int]:
    """Residual sum of squares with a level for each group, and its degrees of freedom."""
    if not len(y):
        return 0.0, 0
    _, index = np.unique(groups, return_inverse=True)
    count = np.bincount(index)

    def centred(v: ndarray) -> ndarray:
        return v - (np.bincount(index, v) / count)[index]

    table = np.stack([centred(column) for column in columns.T], 1)
    scale = np.abs(table).max(0)
    table = table[:, scale > 1e-12] / scale[scale > 1e-12]
    basis, values, _ = np.linalg.svd(table, full_matrices=False)
    basis = basis[:, values > 1e-7 * values.max(initial=0)]
    r = centred(y)
    r = r - basis @ (basis.T @ r)
    return float(r @ r), len(y) - len(count) - basis.shape[1]
