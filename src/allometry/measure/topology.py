r"""Geometry score: comparison of the topology of samples and data.

Letters: $\alpha$ the scale of a witness complex, $\beta_1(\alpha)$ its number of loops.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require, require_extra
from allometry._core.estimate import Estimate
from allometry.measure.pair_blocks import differences
from allometry.measure.sample_inputs import Array, Map, generator, pair, subset


def relative_living_times(
    rows: Float[Tensor, "n d"],
    *,
    landmarks: int = 32,
    repeats: int = 100,
    gamma: float = 1 / 8,
    holes: int = 20,
    rng: torch.Generator | None = None,
) -> Float[ndarray, "r i"]:
    r"""For each repeat, the share of scales with exactly i loops.

    Landmarks are random, all rows are witnesses, and $\alpha$ ranges from 0 to
    $\gamma$ times the largest distance between landmarks.

    References: `khrulkov2018`
    """
    gudhi = require_extra("gudhi", "topology")
    rng = generator(rng)
    require(len(rows) >= landmarks, "rows", f"be at least {landmarks}", len(rows))
    found = np.zeros((repeats, holes))
    for r in range(repeats):
        marks = subset(rows, landmarks, rng)
        far = differences(rows, marks).numpy()
        most = gamma * float(differences(marks, marks).max())
        if most == 0:  # equal landmarks have no loops at any scale
            found[r, 0] = 1.0
            continue
        # A witness supports simplices of its nearest landmarks; eight suffice for loops.
        near = np.argsort(far, axis=1, kind="stable")[:, :8]
        table = [
            list(zip(line.tolist(), far[i, line].tolist(), strict=True))
            for i, line in enumerate(near)
        ]
        complex_ = gudhi.WitnessComplex(nearest_landmark_table=table)
        tree = complex_.create_simplex_tree(max_alpha_square=most, limit_dimension=2)
        tree.compute_persistence(homology_coeff_field=2)
        loops = tree.persistence_intervals_in_dimension(1)
        found[r] = _shares(np.asarray(loops).reshape(-1, 2), most, holes)
    return found


def _shares(intervals: Float[ndarray, "k 2"], most: float, holes: int) -> Float[ndarray, " i"]:
    births, deaths = intervals[:, 0], np.minimum(intervals[:, 1], most)
    times = np.concatenate([[0.0, most], births, deaths]).clip(0, most)
    changes = np.concatenate([[0, 0], np.ones(len(births)), -np.ones(len(deaths))])
    order = np.argsort(times, kind="stable")
    alive = np.cumsum(changes[order])[:-1].astype(int)
    lengths = np.diff(times[order])
    shares = np.zeros(holes)
    np.add.at(shares, alive.clip(0, holes - 1), lengths)
    return shares / most


def geometry_score(
    real: Array,
    samples: Array,
    *,
    landmarks: int = 32,
    repeats: int = 50,
    gamma: float = 1 / 8,
    most: int = 1000,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Squared distance between the mean relative living times of loops; 0 for one topology.

    Unbiased over the choice of landmarks: the variance between repeats is subtracted, so that it
    may be below 0 by chance. The interval is about this choice alone, given both sets of rows.

    Args:
        real: Real data.
        samples: Samples of the model.
        landmarks: Points per complex.
        repeats: Complexes per set.
        gamma: The largest scale, relative to the diameter of the landmarks.
        most: Largest number of rows used of each set.
        features: Feature map.
        rng: Random generator for rows and landmarks.

    References: `khrulkov2018`; `gudhi2015` for the complexes.
    """
    from scipy import stats  # imported here because it is slow

    require(repeats >= 3, "geometry_score.repeats", "be at least 3", repeats)
    x, y = pair(real, samples, features=features)
    rng = generator(rng)
    a, b = (
        relative_living_times(
            subset(s, most, rng).double(),
            landmarks=landmarks,
            repeats=repeats,
            gamma=gamma,
            rng=rng,
        )
        for s in (x, y)
    )
    gap = a.mean(0) - b.mean(0)
    noise = (a.var(0, ddof=1).sum() + b.var(0, ddof=1).sum()) / repeats
    value = float(gap @ gap - noise)
    g, h = 2 * (a - a.mean(0)) @ gap, 2 * (b - b.mean(0)) @ gap
    first = (g.var(ddof=1) + h.var(ddof=1)) / repeats
    # 2 tr(S^2) is the variance of the squared noise; the plain variance includes it twice.
    S = np.atleast_2d(np.cov(a.T) + np.cov(b.T)) / repeats
    second = 2 * float((S * S).sum())
    se = math.sqrt(max(first - 2 * second, 0.0) + second)
    method = f"{repeats} draws of {landmarks} landmarks; about their choice, given the rows"
    half = float(stats.t.ppf(0.975, repeats - 1)) * se
    return Estimate(value, se=se, lo=value - half, hi=value + half, n=2 * repeats, method=method)
