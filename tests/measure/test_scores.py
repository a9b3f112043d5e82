import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.measure import (
    am_score,
    inception_score,
    label_divergence,
    mode_score,
    modified_inception_score,
)


def one_hot(labels, k):
    return torch.eye(k)[torch.as_tensor(labels)]


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def test_certain_labels_have_the_score_of_their_entropy():
    probabilities = [0.5, 0.25, 0.125, 0.125]
    rng = np.random.default_rng(0)
    found = inception_score(one_hot(rng.choice(4, size=5000, p=probabilities), 4))
    truth = math.exp(entropy(probabilities))
    assert abs(found.value - truth) < 5 * found.se
    assert found.se < 0.03


def test_the_extremes():
    uniform = torch.full((50, 10), 0.1)
    assert inception_score(uniform).value == pytest.approx(1)
    even = one_hot(np.arange(1000) % 10, 10)
    # The jackknife would slightly exceed 10; the score is clipped.
    assert inception_score(even).value == pytest.approx(10)
    assert inception_score(even).hi <= 10


def test_a_noisy_classifier():
    # p(y|x) is e on the true class: mutual information of a symmetric channel, log K - H(row).
    K, e, n = 5, 0.8, 4000
    labels = np.random.default_rng(0).integers(K, size=n)
    p = torch.full((n, K), (1 - e) / (K - 1))
    p[torch.arange(n), torch.as_tensor(labels)] = e
    row = [e] + [(1 - e) / (K - 1)] * (K - 1)
    found = inception_score(p)
    # At uniform labels the error is of second order: K/n at most.
    assert found.value == pytest.approx(K * math.exp(-entropy(row)), abs=10 * K / n)


def test_the_jackknife_removes_the_bias():
    probabilities, n = np.array([0.4, 0.3, 0.2, 0.1]), 15
    rng = np.random.default_rng(0)
    draws = rng.choice(4, size=(400, n), p=probabilities)
    logs = np.log([inception_score(one_hot(d, 4)).value for d in draws])
    plug = [entropy(np.bincount(d, minlength=4) / n) for d in draws]
    se = logs.std() / math.sqrt(400)
    assert np.mean(plug) < entropy(probabilities) - 5 * se
    assert abs(logs.mean() - entropy(probabilities)) < 5 * se


@given(st.integers(2, 6), st.integers(3, 30), st.integers(0, 99))
def test_the_mode_score_is_the_inception_score(k, n, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(k), size=n), rng.dirichlet(np.ones(k) * 3, size=n + 3)
    a, b = mode_score(q, p), inception_score(p)
    assert (a.value, a.se) == pytest.approx((b.value, b.se), rel=1e-9)


def test_am_score_and_label_divergence_have_closed_forms():
    q, p = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    rng = np.random.default_rng(0)
    real, made = rng.choice(3, size=4000, p=q), rng.choice(3, size=5000, p=p)
    truth = sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))
    sharp = label_divergence(one_hot(real, 3), one_hot(made, 3))
    assert abs(sharp.value - truth) < 5 * sharp.se
    # Certain labels have no conditional entropy, so the AM score is the divergence itself.
    assert am_score(one_hot(real, 3), one_hot(made, 3)).value == pytest.approx(sharp.value)
    soft = 0.7 * one_hot(made, 3) + 0.1
    found = am_score(one_hot(real, 3), soft)
    mixed = 0.7 * np.array(p) + 0.1
    truth = sum(a * math.log(a / b) for a, b in zip(q, mixed, strict=True))
    assert abs(found.value - truth - entropy([0.8, 0.1, 0.1])) < 5 * found.se


def test_modified_score_measures_diversity_within_a_class():
    same = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).repeat_interleave(20, 0)
    assert modified_inception_score(same).value == pytest.approx(1)
    a, b = np.array([0.6, 0.3, 0.1]), np.array([0.6, 0.1, 0.3])
    rng = np.random.default_rng(0)
    rows = np.where(rng.random(3000)[:, None] < 0.5, a, b)
    # Two of three ordered pairs of different kinds: KL(a|b)/2 on average.
    truth = math.exp(float((a * np.log(a / b)).sum()) / 2)
    found = modified_inception_score(rows)
    assert found.value == pytest.approx(truth, abs=0.002)


def test_invalid_input_raises():
    with pytest.raises(InputError, match="sum to 1 in each row"):
        inception_score(np.ones((4, 3)))
    with pytest.raises(InputError, match="not be negative"):
        inception_score(np.array([[1.5, -0.5], [1.0, 0.0]]))
    with pytest.raises(InputError, match="have 2 classes like the real ones; got 3"):
        am_score(np.full((3, 2), 0.5), np.full((3, 3), 1 / 3))
