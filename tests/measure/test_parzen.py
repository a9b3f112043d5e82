import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KernelDensity

from allometry import InputError
from allometry.measure import (
    bits_per_dimension,
    coverage_metric,
    mean_log_likelihood,
    parzen_log_likelihood,
)
from allometry.measure.parzen import parzen_bandwidth, parzen_log_density


def test_density_is_scikit_learns():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)), rng.normal(size=(4000, 3))
    ours = parzen_log_density(torch.as_tensor(x), torch.as_tensor(y), 0.4).numpy()
    np.testing.assert_allclose(ours, KernelDensity(bandwidth=0.4).fit(y).score_samples(x))


def test_likelihood_of_a_gaussian_is_near_its_entropy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 1)), rng.normal(size=(5000, 1))
    found = parzen_log_likelihood(x, y)
    truth = -0.5 * math.log(2 * math.pi * math.e)
    # The estimate smooths a little: it lies below by KL ~ n^{-4/5}, under a hundredth here.
    assert truth - 0.01 - 5 * found.se < found.value < truth + 5 * found.se


def test_the_bandwidth_is_optimal():
    rng = np.random.default_rng(0)
    v, y = torch.as_tensor(rng.normal(size=(300, 2))), torch.as_tensor(rng.normal(size=(300, 2)))
    h = parzen_bandwidth(v, y)
    best = parzen_log_density(v, y, h).mean()
    for factor in (0.8, 0.95, 1.05, 1.25):
        assert parzen_log_density(v, y, h * factor).mean() < best


def test_coverage_of_equal_distributions_and_of_half_the_modes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1000, 2))
    found = coverage_metric(x, y)
    assert abs(found.value - 0.95) < 5 * found.se
    x[::2, 0] += 20
    found = coverage_metric(x, y)
    assert abs(found.value - 0.475) < 5 * found.se


def test_bits_per_dimension():
    rng = np.random.default_rng(0)
    x = 3 * rng.normal(size=(5000, 4))
    logs = (-0.5 * (x / 3) ** 2 - math.log(3 * math.sqrt(2 * math.pi))).sum(1)
    found = bits_per_dimension(logs, 4, bin_width=0.5)
    truth = 0.5 * math.log2(2 * math.pi * math.e * 9) + 1
    assert abs(found.value - truth) < 5 * found.se
    assert found.lo < found.value < found.hi
    # Scaling the data by 256 and the bins with it changes nothing.
    scaled = bits_per_dimension(logs - 4 * math.log(256), 4, bin_width=128)
    assert scaled.value == pytest.approx(found.value)
    assert mean_log_likelihood(logs).value == pytest.approx(logs.mean())


def test_invalid_input_raises():
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(InputError, match="bandwidth must be positive"):
        parzen_log_likelihood(x, x, bandwidth=0.0)
    with pytest.raises(InputError, match="mass must lie between 0 and 1"):
        coverage_metric(x, x, mass=1.0)
    with pytest.raises(InputError, match="one number for each row"):
        mean_log_likelihood(x)
