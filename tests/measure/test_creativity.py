"""The frontier of novelty and quality against closed forms of capacity and capacity-cost."""

import math
import time

import numpy as np
import pytest
from scipy import optimize

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
    assert found.novelty == pytest.approx(h(mixed) - h(flip), abs=1e-7)
    assert found.quality >= least


def test_an_identity_channel():
    """An identity channel: novelty is the entropy of p; with price s, p is a softmax of s q."""
    k = 5
    assert best_maker(np.eye(k), np.zeros(k)).novelty == pytest.approx(math.log(k))
    q = np.arange(k) / k
    found = best_maker(np.eye(k), q, price=2.0)
    expected = np.exp(2 * q) / np.exp(2 * q).sum()
    np.testing.assert_allclose(found.distribution, expected, atol=1e-6)


def test_useless_channels_have_no_novelty():
    assert best_maker(np.full((3, 4), 0.25), np.zeros(3)).novelty == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("seed", "k"), [(0, 4), (1, 3)])
def test_the_frontier_decreases_and_is_concave(seed, k):
    rng = np.random.default_rng(seed)
    found = creativity_frontier(rng.dirichlet(np.ones(3), size=k), rng.normal(size=k), 4)
    novelty = np.array([m.novelty for m in found])
    assert (np.diff(novelty) <= 1e-5).all()
    assert (np.diff(novelty, 2) <= 1e-4).all()


STRAIGHT = np.array([[1.0, 0], [0, 1], [0.5, 0.5]])


@pytest.mark.parametrize("least", [0.01, 0.1, 0.5, 0.99, 1 - 1e-9])
def test_a_linear_piece_of_the_frontier_is_solved_between_its_ends(least):
    """The good artefact teaches nothing: S(Q) = (1 - Q) log 2, with one price for all of Q."""
    found = creativity(STRAIGHT, np.array([0.0, 0.0, 1.0]), least)
    truth = (1 - least) * math.log(2)
    assert found.quality >= least
    assert found.novelty <= truth + 1e-12
    assert truth - found.novelty <= found.gap + 1e-12 <= 1e-8 + 1e-12


def solved(channel, quality, least):
    """S(Q) by scipy's sequential quadratic programming, from several starts."""
    keep = channel.max(0) > 0

    def loss(p):
        p = np.clip(p, 0, None)
        r = p @ channel[:, keep]
        own = np.where(channel > 0, channel * np.log(np.where(channel > 0, channel, 1)), 0).sum(1)
        return float(-(p @ own) + (r * np.log(np.where(r > 0, r, 1))).sum())

    constraints = [
        {"type": "eq", "fun": lambda p: p.sum() - 1},
        {"type": "ineq", "fun": lambda p: p @ quality - least},
    ]
    best = -math.inf
    for share in (0.02, 0.3, 0.9):
        start = np.full(len(quality), (1 - share) / len(quality))
        start[quality.argmax()] += share
        found = optimize.minimize(
            loss,
            start,
            method="SLSQP",
            bounds=[(0, 1)] * len(quality),
            constraints=constraints,
            options={"ftol": 1e-13, "maxiter": 500},
        )
        if found.x @ quality >= least - 1e-9 and abs(found.x.sum() - 1) < 1e-9:
            best = max(best, -found.fun)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_an_independent_solver_agrees(seed):
    """Random channels: sharp, soft, with rows that repeat, and with ties of quality."""
    rng = np.random.default_rng(seed)
    a, k = rng.integers(2, 7), rng.integers(2, 5)
    channel = rng.dirichlet(np.full(k, rng.choice([0.05, 0.3, 1.0])), size=a)
    if seed % 3 == 0:
        channel = np.concatenate([channel, channel[:1], np.eye(k)])
    quality = rng.normal(size=len(channel)).round(1 if seed % 2 else 6)
    least = float(rng.uniform(quality.min(), quality.max()))
    ours, theirs = creativity(channel, quality, least), solved(channel, quality, least)
    assert ours.quality >= least - 1e-12
    assert ours.gap <= 1e-8
    # SLSQP stops within about 1e-7 of the best; neither may exceed what the gap allows.
    assert theirs - 1e-9 <= ours.novelty + ours.gap
    assert ours.novelty >= theirs - 1e-7
    assert ours.novelty <= theirs + 2e-6


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e9])
@pytest.mark.parametrize("origin", [0.0, -40.0])
def test_the_unit_and_origin_of_quality_do_not_matter(unit, origin):
    rng = np.random.default_rng(3)
    channel, quality = rng.dirichlet(np.ones(3), size=5), rng.uniform(size=5)
    base = creativity(channel, quality, 0.8 * quality.max())
    moved = creativity(
        channel, unit * (quality + origin), unit * (0.8 * float(quality.max()) + origin)
    )
    assert moved.novelty == pytest.approx(base.novelty, abs=3e-8)


def test_order_and_repeats_of_artefacts_do_not_matter():
    rng = np.random.default_rng(4)
    channel, quality = rng.dirichlet(np.ones(4), size=6), rng.uniform(size=6)
    base = creativity(channel, quality, 0.7).novelty
    turned = creativity(channel[::-1].copy(), quality[::-1].copy(), 0.7).novelty
    twice = creativity(np.tile(channel, (2, 1)), np.tile(quality, 2), 0.7).novelty
    assert turned == pytest.approx(base, abs=3e-8)
    assert twice == pytest.approx(base, abs=3e-8)


def test_two_hundred_artefacts_take_less_than_a_second():
    rng = np.random.default_rng(5)
    channel, quality = rng.dirichlet(np.full(30, 0.3), size=200), rng.normal(size=200)
    started = time.process_time()
    assert creativity(channel, quality, 1.0).gap <= 1e-8
    # 0.1 s on one idle core; the search for a price took 14 to 31 s on smaller cases.
    assert time.process_time() - started < 5


def test_surprise_of_samples():
    found = bayesian_surprise(np.array([[1.0, 0], [0, 1.0]] * 50), np.array([0.5, 0.5]))
    assert found.value == pytest.approx(math.log(2))
    assert bayesian_surprise(np.full((4, 2), 0.5), np.array([0.5, 0.5])).value == 0


def test_infeasible_input_raises():
    with pytest.raises(InputError, match="at most 1, the best"):
        creativity(symmetric(0.1), np.array([0.0, 1.0]), 1.5)
    with pytest.raises(InputError, match="sum to 1"):
        best_maker(np.ones((2, 2)), np.zeros(2))
    with pytest.raises(InputError, match="price must be finite"):
        best_maker(symmetric(0.1), np.zeros(2), price=math.inf)
