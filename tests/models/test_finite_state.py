"""Predictors of a bit with so many states and no more."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry._core.errors import InputError
from allometry.measure import hindsight
from allometry.models import DecayingMemory, SaturatingCounter


@pytest.mark.parametrize("K", [2, 3, 4, 6])
def test_no_sequence_fools_the_counter_more_than_the_bound(K):
    """All sequences of 10 bits, and the one that stays in the middle meets its rate."""
    n = 10
    worst = 0.0
    for bits in itertools.product((0, 1), repeat=n):
        wrong = float(SaturatingCounter(K).update(np.array(bits)).sum())
        worst = max(worst, wrong - min(sum(bits), n - sum(bits)))
    assert worst <= n / (2 * (K - 1)) + K / 4 + 1e-12
    bits = [0, 1] * 500
    wrong = float(SaturatingCounter(K).update(np.array(bits)).sum())
    assert wrong - 500 == pytest.approx(500 / (K - 1), abs=1)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=200), st.integers(2, 20))
def test_counters_keep_their_promise_on_any_bits(bits, K):
    wrong = float(SaturatingCounter(K).update(np.array(bits)).sum())
    best = min(sum(bits), len(bits) - sum(bits))
    assert wrong - best <= len(bits) / (2 * (K - 1)) + K / 4 + 1e-9


def test_memory_is_a_law_and_goes_on_where_it_stopped():
    bits = np.random.default_rng(0).integers(2, size=300)
    whole = DecayingMemory(64, order=2)
    parts = DecayingMemory(64, order=2)
    log_p = whole.update(bits)
    torch.testing.assert_close(
        torch.cat([parts.update(bits[:100]), parts.update(bits[100:])]), log_p
    )
    assert float(whole.probabilities().sum()) == pytest.approx(1, abs=1e-12)
    assert whole.N == 4
    assert torch.isfinite(log_p).all()


def redundancy(K, bits, order=0):
    nats = -float(DecayingMemory(K, order).update(bits).sum())
    return (nats - hindsight(bits, 2, order)) / len(bits)


def test_price_of_few_states_falls_as_their_two_thirds_power():
    """The worst over sources, rare bits among them; measured at 0.4 to 0.8 of the power itself."""
    rng = np.random.default_rng(1)
    K = np.array([16, 64, 256, 1024])
    lost = np.zeros(len(K))
    for p in (0.5, 0.3, 0.1, 0.05, 0.02, 0.005, 0.0):
        bits = (rng.random(20_000) < p).astype(int)
        lost = np.maximum(lost, [redundancy(int(k), bits) for k in K])
    assert (lost < K ** (-2 / 3)).all()
    slope = np.polyfit(np.log(K), np.log(lost), 1)[0]
    assert -0.8 < slope < -0.5


def test_price_does_not_vanish_with_the_length():
    rng = np.random.default_rng(2)
    long = [redundancy(32, (rng.random(n) < 0.4).astype(int)) for n in (4_000, 64_000)]
    assert long[1] > 0.5 * long[0]


def test_contexts_learn_a_chain():
    """Bits that repeat with probability .9: entropy rate of one, against log 2 without context."""
    rng = np.random.default_rng(3)
    flips = rng.random(40_000) < 0.1
    bits = np.cumsum(flips) % 2
    h = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    with_context = -float(DecayingMemory(1024, order=1).update(bits).mean())
    assert h < with_context < h + 0.02
    assert -float(DecayingMemory(1024).update(bits).mean()) > with_context


def test_too_few_states_are_refused():
    with pytest.raises(InputError, match="at least 2"):
        SaturatingCounter(1)
    with pytest.raises(InputError, match="at least 4"):
        DecayingMemory(1)
    with pytest.raises(InputError):
        DecayingMemory(4).update(np.array([0, 2]))
