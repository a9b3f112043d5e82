import math

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import (
    classifier_accuracy,
    classifier_p_value,
    efron_p_value,
    nearest_neighbour_accuracy,
    nearest_neighbour_p_value,
)


def draws(n, d, k, seed):
    return np.random.default_rng(seed).normal(size=(k, n, d))


def level(test, runs):
    """Share of rejections at 5 %, and its standard error under the null."""
    return np.mean([test(i).value <= 0.05 for i in range(runs)]), math.sqrt(0.05 * 0.95 / runs)


def test_the_neighbour_test_keeps_its_level():
    x, y = draws(60, 3, 300, 0), draws(50, 3, 300, 1)

    def test(i):
        rng = torch.Generator().manual_seed(i)
        return nearest_neighbour_p_value(x[i], y[i], permutations=99, rng=rng)

    found, se = level(test, 300)
    assert abs(found - 0.05) < 5 * se


def test_efrons_test_keeps_its_level():
    x, y = draws(50, 3, 200, 2), draws(60, 3, 200, 3)

    def test(i):
        return efron_p_value(x[i], y[i], resamples=99, rng=torch.Generator().manual_seed(i))

    found, se = level(test, 200)
    assert abs(found - 0.05) < 5 * se


def test_the_network_keeps_its_level():
    x, y = draws(60, 3, 40, 4), draws(60, 3, 40, 5)

    def test(i):
        rng = torch.Generator().manual_seed(i)
        return classifier_p_value(x[i], y[i], permutations=99, steps=20, rng=rng)

    found, se = level(test, 40)
    assert abs(found - 0.05) < 5 * se


@pytest.mark.parametrize("p_value", [nearest_neighbour_p_value, efron_p_value, classifier_p_value])
def test_mode_drop_is_rejected(p_value):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) + 6 * np.eye(2)[rng.integers(2, size=400)]
    y = rng.normal(size=(400, 2)) + 6 * np.eye(2)[0]
    assert p_value(x, y).value < 0.01


def test_a_few_copies_with_noise_are_detected_by_the_sides():
    # A known problem: 3 training rows plus noise have an accuracy near 1/2 over both sides.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = x[rng.integers(3, size=300)] + 0.02 * rng.normal(size=(300, 2))
    samples_side = nearest_neighbour_accuracy(x, y, side="samples")
    real_side = nearest_neighbour_accuracy(x, y, side="real")
    both = nearest_neighbour_accuracy(x, y)
    assert both.value == pytest.approx((samples_side.value + real_side.value) / 2)
    assert samples_side.lo > 0.9
    assert nearest_neighbour_p_value(x, y).value < 0.01


def test_copies_give_accuracy_zero_and_are_rejected():
    x = np.random.default_rng(0).normal(size=(100, 2))
    assert nearest_neighbour_accuracy(x, x + 1e-9).value == 0
    assert nearest_neighbour_p_value(x, x + 1e-9).value < 0.01


def test_accuracy_of_the_network_is_the_bayes_rate_on_gaussians():
    # N(0, I) against N(mu, I): best accuracy Phi(|mu|/2); a small network nearly reaches it.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2))
    y[:, 0] += 2
    found = classifier_accuracy(x, y)
    best = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    assert best - 0.02 - 5 * found.se < found.value < best + 5 * found.se


def test_invalid_input_raises():
    x = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(InputError, match="permutations must be at least 19"):
        nearest_neighbour_p_value(x, x, permutations=3)
