"""The frontier of novelty and quality against closed forms of capacity and capacity-cost."""

import math

import numpy as np
import pytest

from allometry._core.errors import InputError
from allometry.measure.creativity import (
    bayesian_surprise,
    best_maker,
    creativity,
    creativity_frontier,
)


def h(p):
    return -p * math.log(p) - (1 - p) * math.log(1 - p) if 0 < p < 1 else 0.0


def symmetric(flip):
    return np.array([[1 - flip, flip], [flip, 1 - flip]])


@pytest.mark.parametrize("flip", [0.01, 0.1, 0.3])
def test_binary_symmetric_capacity(flip):
    found = best_maker(symmetric(flip), np.zeros(2))
    assert found.novelty == pytest.approx(math.log(2) - h(flip), abs=1e-8)


@pytest.mark.parametrize("least", [0.6, 0.8, 0.95, 1.0])
def test_binary_symmetric_with_quality(least):
    """Quality 1 for one artefact, 0 for the other: E[q] = P(a_1) = Q, I = h(Q*flip) - h(flip)."""
    flip = 0.1
    found = creativity(symmetric(flip), np.array([0.0, 1.0]), least)
    mixed = least * (1 - flip) + (1 - least) * flip
    assert found.novelty == pytest.approx(h(mixed) - h(flip), abs=1e-5)
    assert found.quality >= least - 1e-7


def test_uniform_artefacts_that_are_told_apart():
    """An identity channel: novelty is the entropy of p; with price s, p is a softmax of s q."""
    k = 5
    assert best_maker(np.eye(k), np.zeros(k)).novelty == pytest.approx(math.log(k))
    q = np.arange(k) / k
    found = best_maker(np.eye(k), q, price=2.0)
    expected = np.exp(2 * q) / np.exp(2 * q).sum()
    np.testing.assert_allclose(found.law, expected, atol=1e-6)


def test_useless_channels_have_no_novelty():
    assert best_maker(np.full((3, 4), 0.25), np.zeros(3)).novelty == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("seed", "k"), [(0, 4), (1, 3)])
def test_the_frontier_falls_and_is_concave(seed, k):
    rng = np.random.default_rng(seed)
    found = creativity_frontier(rng.dirichlet(np.ones(3), size=k), rng.normal(size=k), 4)
    novelty = np.array([m.novelty for m in found])
    assert (np.diff(novelty) <= 1e-5).all()
    assert (np.diff(novelty, 2) <= 1e-4).all()


def test_surprise_of_samples():
    found = bayesian_surprise(np.array([[1.0, 0], [0, 1.0]] * 50), np.array([0.5, 0.5]))
    assert found.value == pytest.approx(math.log(2))
    assert bayesian_surprise(np.full((4, 2), 0.5), np.array([0.5, 0.5])).value == 0


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="at most 1, the best"):
        creativity(symmetric(0.1), np.array([0.0, 1.0]), 1.5)
    with pytest.raises(InputError, match="sum to 1"):
        best_maker(np.ones((2, 2)), np.zeros(2))
    with pytest.raises(InputError, match="price must be finite"):
        best_maker(symmetric(0.1), np.zeros(2), price=math.inf)
