import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics.pairwise import polynomial_kernel
from torch import nn

from allometry import InputError
from allometry.measure import energy_distance, kernels, kid, mmd2
from allometry.measure.cubic_kernel import cubic_discrepancies
from allometry.measure.pair_blocks import BLOCK, pair_sums, self_sums


def brute(x, y, K):
    n, m = len(x), len(y)
    xx, yy, xy = K(x, x), K(y, y), K(x, y)
    a = (xx.sum() - np.trace(xx)) / (n * (n - 1)) + (yy.sum() - np.trace(yy)) / (m * (m - 1))
    return a - 2 * xy.mean()


def test_gaussians_have_their_closed_form():
    # E exp(-|X-Y|^2/2h^2) for X-Y ~ N(mu, s I): (h^2/(h^2+s))^{d/2} exp(-|mu|^2/2(h^2+s)).
    d, h, mu, var = 3, 1.5, 0.5, 1.44
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(8_000, d, generator=rng)
    y = mu + math.sqrt(var) * torch.randn(8_000, d, generator=rng)

    def mean(shift, s):
        return (h * h / (h * h + s)) ** (d / 2) * math.exp(-d * shift**2 / (2 * (h * h + s)))

    truth = mean(0, 2) + mean(0, 2 * var) - 2 * mean(mu, 1 + var)
    found = mmd2(x, y, kernel=kernels.rbf(h))
    assert abs(found.value - truth) < 5 * found.se
    assert found.se < 0.1 * truth


@pytest.mark.parametrize("n", [7, 60, BLOCK + 3])
def test_blocks_give_the_whole_sums(n):
    rng = np.random.default_rng(n)
    x, y = torch.as_tensor(rng.normal(size=(n, 2))), torch.as_tensor(rng.normal(size=(9, 2)))
    kernel = kernels.polynomial()
    whole = kernel(x, y)
    sums = pair_sums(x, y, kernel)
    torch.testing.assert_close(sums.rows, whole.sum(1))
    torch.testing.assert_close(sums.columns, whole.sum(0))
    assert sums.squares == pytest.approx(float((whole**2).sum()))
    own = kernel(x, x).fill_diagonal_(0)
    sums = self_sums(x, kernel)
    torch.testing.assert_close(sums.rows, own.sum(1))
    assert sums.squares == pytest.approx(float((own**2).sum()))


@given(st.integers(2, 40), st.integers(2, 40), st.integers(0, 99))
def test_every_kernel_agrees_with_brute_force(n, m, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(m, 3)) + 1
    for kernel in (
        kernels.rbf(1.3),
        kernels.laplacian(2.0),
        kernels.rational_quadratic(),
        kernels.polynomial(2, 0.5),
        kernels.distance_kernel(),
    ):

        def K(a, b, kernel=kernel):
            return kernel(torch.as_tensor(a), torch.as_tensor(b)).numpy()

        # Distances by |a|^2 + |b|^2 - 2ab lose half of the digits on equal rows: 1e-7.
        assert mmd2(x, y, kernel=kernel).value == pytest.approx(brute(x, y, K), abs=1e-6)


def test_kid_agrees_with_references():
    # 10,000 x 64. One subset of all rows is the plain discrepancy: scikit-learn's kernel in full.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, 64)).astype(np.float32)
    y = (0.1 + 1.1 * rng.normal(size=(10_000, 64))).astype(np.float32)
    a, b = x[:2000].astype(float), y[:2000].astype(float)

    def K(p, q):
        return polynomial_kernel(p, q, degree=3, gamma=1 / 64, coef0=1)

    reference = brute(a, b, K)
    assert kid(a, b, subsets=1, subset_size=2000).value == pytest.approx(reference, abs=1e-9)
    single = float(cubic_discrepancies([torch.as_tensor(x[:2000])], [torch.as_tensor(y[:2000])]))
    assert single == pytest.approx(reference, abs=1e-4)
    # The mean over subsets varies with the draw; the standard error includes this noise.
    found = kid(x, y)

    class Given(nn.Module):
        num_features = 64

        def forward(self, z):
            return z

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchmetrics.image.kid import KernelInceptionDistance, poly_mmd

        metric = KernelInceptionDistance(feature=Given(), subsets=100, subset_size=1000)
        metric.update(torch.as_tensor(x), real=True)
        metric.update(torch.as_tensor(y), real=False)
        theirs, spread = (float(v) for v in metric.compute())
        same = float(poly_mmd(torch.as_tensor(a), torch.as_tensor(b)))
    assert same == pytest.approx(reference, abs=1e-4)
    assert abs(found.value - theirs) < 5 * math.sqrt(2) * spread / 10


def test_energy_distance_in_one_dimension_is_scipys():
    # scipy gives the square root of the V-statistic; ours is the U-statistic: add the diagonal.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=80), rng.normal(size=70) + 1
    between = np.abs(x[:, None] - y).mean()
    inside = [np.abs(z[:, None] - z).sum() / (len(z) * (len(z) - 1)) for z in (x, y)]
    found = energy_distance(x, y).value
    assert found == pytest.approx(2 * between - sum(inside))
    biased = found + sum(i / len(z) for i, z in zip(inside, (x, y), strict=True))
    assert biased == pytest.approx(stats.energy_distance(x, y) ** 2)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.8])
def test_intervals_cover_with_and_without_a_difference(shift):
    # At 0 the U-statistic is degenerate, at 0.2 it is between the two regimes.
    d, h, runs = 3, 2.0, 300
    rng = torch.Generator().manual_seed(0)
    draws = torch.randn(runs, 180, d, generator=rng)
    draws[:, 100:] += shift
    found = [mmd2(z[:100], z[100:], kernel=kernels.rbf(h)) for z in draws]
    base = (h * h / (h * h + 2)) ** (d / 2)
    truth = 2 * base * (1 - math.exp(-d * shift**2 / (2 * (h * h + 2))))
    covered = np.mean([e.covers(truth) for e in found])
    assert abs(covered - 0.95) < 0.03 + 3 * math.sqrt(0.95 * 0.05 / runs)
    values = np.array([e.value for e in found])
    assert abs(values.mean() - truth) < 5 * values.std() / math.sqrt(runs)


def test_invalid_input_raises():
    x = np.ones((4, 2))
    with pytest.raises(InputError, match="bandwidth must be positive"):
        kernels.rbf(0)
    with pytest.raises(InputError, match="subsets must be at least 1"):
        kid(x, x, subsets=0)
