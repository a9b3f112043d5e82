"""Two-sample tests keep their level on discrete data; `bench/levels.py` has the long version."""

import math

import numpy as np
import pytest
import torch

from allometry.measure import (
    classifier_p_value,
    efron_p_value,
    nearest_neighbour_p_value,
    retrieval_p_value,
)
from allometry.measure.threads import one_thread
from tests.measure.test_ties import KINDS, discrete

REPEATS = 60


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def draws(kind, seed, *sizes):
    rng = np.random.default_rng(seed)
    return [
        [discrete(kind, rng, n) for n in sizes]
        if kind != "continuous"
        else [rng.normal(size=(n, 3)) for n in sizes]
        for _ in range(REPEATS)
    ]


TESTS = {
    "nearest": lambda x, y, _, g: nearest_neighbour_p_value(x, y, permutations=99, rng=g),
    "classifier": lambda x, y, _, g: classifier_p_value(x, y, permutations=99, steps=5, rng=g),
    "efron": lambda x, y, _, g: efron_p_value(x, y, resamples=99, rng=g),
    "retrieval": lambda x, y, z, g: retrieval_p_value(x, y, z, permutations=99, rng=g),
}


@pytest.mark.parametrize("kind", [*KINDS, "continuous"])
@pytest.mark.parametrize("test", TESTS)
def test_the_level_is_five_per_cent(test, kind):
    """Within 5 standard errors; the 1-NN test used to reject 85 to 100 % of repeats."""
    repeats = 30 if test == "classifier" else REPEATS  # it trains a network each time
    found = [
        TESTS[test](*sets, torch.Generator().manual_seed(i)).value <= 0.05
        for i, sets in enumerate(draws(kind, 7, 80, 25, 25)[:repeats])
    ]
    assert abs(np.mean(found) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("test", ["nearest", "efron", "retrieval"])
def test_p_values_of_equal_distributions_are_uniform(test, kind):
    """Their mean is 1/2 (12^-1/2 is the spread of a uniform number), within 5 standard errors."""
    found = [
        TESTS[test](*sets, torch.Generator().manual_seed(i)).value
        for i, sets in enumerate(draws(kind, 8, 40, 25, 25))
    ]
    assert abs(np.mean(found) - 0.5) < 5 / math.sqrt(12 * REPEATS)
