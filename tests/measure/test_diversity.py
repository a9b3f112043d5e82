import math

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import birthday_support, different_bins, kernels, vendi_score


@pytest.mark.parametrize("support", [10, 100, 1000])
@pytest.mark.parametrize("noise", [0.0, 0.001])
def test_birthday_estimates_the_support(support, noise):
    rng = np.random.default_rng(support)
    real = rng.normal(size=(2000, 16))
    atoms = rng.normal(size=(support, 16))
    samples = atoms[rng.integers(support, size=1000)]
    samples = samples + noise * rng.normal(size=samples.shape)
    found = birthday_support(real, samples)
    assert found.value == pytest.approx(support, rel=0.3)
    assert abs(found.value - support) < 5 * found.se + 1e-9


def test_a_continuous_distribution_has_infinite_support():
    real, samples = np.random.default_rng(0).normal(size=(2, 500, 16))
    found = birthday_support(real, samples)
    assert math.isinf(found.value)
    # 124,750 pairs and no coincidence: with 97.5 % no fewer than pairs / 3.69.
    assert found.lo == pytest.approx(500 * 499 / 2 / -math.log(0.025))


def test_unequal_probabilities_give_the_simpson_number():
    probabilities = np.array([0.5, 0.25, 0.125, 0.125])
    rng = np.random.default_rng(0)
    samples = rng.choice(4, size=3000, p=probabilities)[:, None].astype(float)
    found = birthday_support(samples, samples, tolerance=0)
    assert found.covers(float(1 / (probabilities**2).sum()))


def test_vendi_counts_orthogonal_vectors():
    rng = np.random.default_rng(0)
    y = np.eye(6)[rng.integers(6, size=3000)]
    assert vendi_score(y).value == pytest.approx(6, abs=0.02)
    assert vendi_score(np.ones((50, 3))).value == pytest.approx(1)
    probabilities = np.array([0.6, 0.3, 0.1])
    y = np.eye(3)[rng.choice(3, size=4000, p=probabilities)]
    found = vendi_score(y)
    assert (
        abs(found.value - math.exp(-(probabilities * np.log(probabilities)).sum())) < 5 * found.se
    )


def test_vendi_by_kernel_is_vendi_by_features():
    # The cosine kernel as a function of blocks gives the n x n route.
    y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y = y / y.norm(dim=1, keepdim=True)
    whole, blocks = vendi_score(y), vendi_score(y, kernel=lambda a, b: a @ b.T)
    # Halves are drawn differently, which moves the correction a little.
    assert blocks.value == pytest.approx(whole.value, rel=0.02)
    assert blocks.se == pytest.approx(whole.se, rel=0.02)
    assert vendi_score(y, kernel=kernels.rbf(1e-3)).value > 59


def test_bins_differ_at_their_level_for_equal_distributions():
    rng = np.random.default_rng(0)
    shares = [
        different_bins(*rng.normal(size=(2, 600, 2)), bins=20, rng=_rng(i)).value
        for i in range(40)
    ]
    # Tests of one partition are dependent, so the spread over runs is used.
    assert abs(np.mean(shares) - 0.05) < 5 * np.std(shares) / math.sqrt(40)
    x = rng.normal(size=(600, 2))
    x[::2] += 9
    assert different_bins(x, rng.normal(size=(600, 2)), bins=20).value > 0.5


def _rng(seed):
    return torch.Generator().manual_seed(seed)


def test_invalid_input_raises():
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InputError, match="tolerance must not be negative"):
        birthday_support(x, x, tolerance=-1.0)
    with pytest.raises(InputError, match="no row of zeros"):
        vendi_score(np.zeros((20, 3)))
