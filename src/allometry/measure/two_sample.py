r"""Classifier two-sample tests of samples against data.

Letters: $n$ real rows, $m$ samples, $N = n + m$ rows, $B$ permutations.
"""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.classifier import fit_classifier
from allometry.measure.pair_blocks import squared_distances
from allometry.measure.sample_inputs import Array, Map, generator, halves, pair, subset, whole_seed
from allometry.measure.ties import Neighbours, tied_neighbours

Side = Literal["both", "real", "samples"]


def nearest_neighbour_test(
    real: Array,
    samples: Array,
    *,
    permutations: int = 999,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """Accuracy of the 1-nearest-neighbour classifier on all rows and on each set, and its p-value.

    References: `lopezpaz2017`; `xu2018` for the two sides.
    """
    require(permutations >= 19, "permutations", "be at least 19", permutations)
    x, y = pair(real, samples, features=features)
    rng = generator(rng)
    seed = whole_seed(rng)
    near = tied_neighbours(torch.cat([x, y]), rng)
    is_real = np.arange(len(x) + len(y)) < len(x)
    sides = {"both": np.ones_like(is_real), "real": is_real, "samples": ~is_real}
    found = {side: _share(selected, near, is_real) for side, selected in sides.items()}
    return found | {"p_value": _permuted(near, len(x), permutations, seed)}


def nearest_neighbour_accuracy(
    real: Array, samples: Array, *, side: Side = "both", features: Map | None = None
) -> Estimate:
    """Leave-one-out accuracy of the 1-nearest-neighbour classifier; 1/2 for equal distributions.

    Compare both sides. Samples concentrated in a few places score high on both. Copies of the real
    rows score near 0 on both. A few real rows copied many times, with noise, score near 1 on the
    side of the samples. Tied neighbours share the vote. The standard error allows for shared and
    mutual neighbours; with many ties it is conservative.

    Args:
        real: Real data.
        samples: Samples of the model.
        side: The rows on which accuracy is computed.
        features: Feature map.

    References: `lopezpaz2017`; `xu2018` for the two sides.
    """
    return nearest_neighbour_test(real, samples, permutations=19, features=features)[side]


def _share(
    selected: Bool[ndarray, " N"], near: Neighbours, is_real: Bool[ndarray, " N"]
) -> Estimate:
    """Accuracy on the selected rows, with covariances of rows linked in the neighbour graph."""
    right = near.votes(is_real)
    count = int(selected.sum())
    value = float(right[selected].mean())
    # The size of each set is fixed, so its rows vary about their own mean.
    e = np.zeros(len(right))
    for group in (is_real & selected, ~is_real & selected):
        if group.any():
            e[group] = right[group] - right[group].mean()
    # On one side alone a link that is not mutual has no effect, because the sizes are fixed
    # (found by simulation).
    covariance, own = near.covariance(e, mutual=count < len(right)), float(e @ e)
    # Wilson's interval for the effective number of independent rows.
    inflation = max(1.0, 1 + covariance / own) if own > 1e-12 * count else 1.5
    found = uncertainty.proportion(value * count / inflation, count / inflation)
    return replace(found, n=count, method="variance over the neighbour graph; about this n")


def nearest_neighbour_p_value(
    real: Array,
    samples: Array,
    *,
    permutations: int = 999,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""p-value of the 1-nearest-neighbour test by permutation of which rows are real.

    The statistic is the larger deviation of the two sides from their chance level, in standard
    errors, so that the effects of mode collapse or copying on the two sides do not cancel. Tied
    neighbours share the vote, and permutations with the observed statistic are split at random,
    so that the level is exact for discrete data too.

    References: `lopezpaz2017`; `phipson2010` for the p-value.
    """
    found = nearest_neighbour_test(
        real, samples, permutations=permutations, features=features, rng=rng
    )
    return found["p_value"]


def _permuted(
    near: Neighbours, n: int, permutations: int, seed: int, tie: float | None = None
) -> Estimate:
    """The p-value; `tie` as in `uncertainty.randomised_p_value`."""
    m, seeded = len(near.group) - n, np.random.default_rng(seed)
    is_real = np.arange(n + m) < n

    def statistic(labels: ndarray) -> ndarray:
        worst = np.zeros(len(labels))
        for votes, size in zip(near.sums(labels), (n, m), strict=True):
            chance = (size - 1) / (n + m - 1)
            # A set of one row has no neighbour of its own: its deviation is 0, not 0/0.
            spread = math.sqrt(chance * (1 - chance) / size) or 1.0
            worst = np.maximum(worst, np.abs(votes / size - chance) / spread)
        return worst

    observed = float(statistic(is_real[None])[0])
    drawn = np.concatenate(
        [
            statistic(seeded.permuted(np.tile(is_real, (min(100, permutations - s), 1)), axis=1))
            for s in range(0, permutations, 100)
        ]
    )
    return uncertainty.randomised_p_value(observed, drawn, seeded, tie=tie)


def classifier_scores(
    real: Array,
    samples: Array,
    *,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> tuple[Float[Tensor, " a"], Float[Tensor, " b"]]:
    """P(real) of held-out real rows and samples, by a network trained on the others."""
    x, y = pair(real, samples, rows=4, features=features)
    rng = generator(rng)
    (a, a_test), (b, b_test) = halves(x, rng), halves(y, rng)
    most = min(len(a), len(b))
    a, b = a[:most], b[:most]
    model = fit_classifier(
        torch.cat([b, a]),
        torch.cat([torch.zeros(len(b)), torch.ones(len(a))]).long(),
        classes=2,
        steps=steps,
        decay=1e-2,
        rng=rng,
    )
    # Equal rows need identical scores, or rounding would separate the sets.
    distinct, group = torch.unique(torch.cat([a_test, b_test]), dim=0, return_inverse=True)
    scores = model.probabilities(distinct)[:, 1][group]
    return scores[: len(a_test)], scores[len(a_test) :]


def classifier_test(
    real: Array,
    samples: Array,
    *,
    permutations: int = 999,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """Held-out accuracy of a small network that separates samples from data, and its p-value.

    References: `lopezpaz2017`.
    """
    require(permutations >= 19, "permutations", "be at least 19", permutations)
    rng = generator(rng)
    a, b = classifier_scores(real, samples, features=features, steps=steps, rng=rng)
    scores = torch.cat([a, b]).numpy()
    seeded = np.random.default_rng(whole_seed(rng))
    drawn = np.array([seeded.permutation(scores)[: len(a)].mean() for _ in range(permutations)])
    return {
        "accuracy": _balanced(a, b),
        "p_value": uncertainty.randomised_p_value(float(scores[: len(a)].mean()), drawn, seeded),
    }


def _balanced(on_real: Float[Tensor, " a"], on_samples: Float[Tensor, " b"]) -> Estimate:
    """Balanced accuracy: the mean over both sets, independent of their sizes."""
    method = "held-out rows, given the classifier"
    gap = uncertainty.difference((on_real > 0.5).double(), (on_samples > 0.5).double(), method)
    return uncertainty.transformed(gap, lambda d: (1 + d) / 2, 0.5, floor=0.0, ceiling=1.0)


def classifier_accuracy(
    real: Array,
    samples: Array,
    *,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Held-out accuracy of a small network that separates samples from data; 1/2 if equal.

    References: `lopezpaz2017`.
    """
    found = classifier_test(
        real, samples, permutations=19, features=features, steps=steps, rng=rng
    )
    return found["accuracy"]


def classifier_p_value(
    real: Array,
    samples: Array,
    *,
    permutations: int = 999,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> Estimate:
    """p-value of the network's two-sample test, by permutation of its held-out scores.

    References: `lopezpaz2017`; `phipson2010`.
    """
    found = classifier_test(
        real, samples, permutations=permutations, features=features, steps=steps, rng=rng
    )
    return found["p_value"]


def efron_p_value(
    real: Array,
    samples: Array,
    *,
    resamples: int = 499,
    most: int = 1000,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Efron's achieved significance level: a bootstrap test that the two distributions are equal.

    Both sets are resampled with replacement from the pool of all rows; the level is the share of
    resamples whose energy distance exceeds the observed one, ties split at random.

    Args:
        real: Real data.
        samples: Samples of the model.
        resamples: Number of resamples.
        most: Largest number of rows used of each set.
        features: Feature map.
        rng: Random generator.

    References: `efron1993` Algorithm 16.1; `szekely2013` for the statistic.
    """
    x, y = pair(real, samples, features=features)
    rng = generator(rng)
    x, y = subset(x, most, rng).double(), subset(y, most, rng).double()
    z = torch.cat([x, y]) - x.mean(0)
    D = squared_distances(z, z).sqrt().fill_diagonal_(0).numpy()
    seeded = np.random.default_rng(whole_seed(rng))
    n, N = len(x), len(z)

    def statistic(rows: ndarray) -> ndarray:
        w = np.zeros((len(rows), N))
        lines = np.arange(len(rows))[:, None]
        np.add.at(w, (lines, rows[:, :n]), 1 / n)
        np.add.at(w, (lines, rows[:, n:]), -1 / (N - n))
        return -np.einsum("bi,bi->b", w @ D, w)

    observed = statistic(np.arange(N)[None])[0]
    drawn = statistic(seeded.integers(N, size=(resamples, N)))
    method = "bootstrap of the pooled rows"
    return uncertainty.randomised_p_value(float(observed), drawn, seeded, method=method)
