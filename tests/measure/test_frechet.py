import warnings

import numpy as np
import ot
import pytest
import torch
from scipy.linalg import sqrtm
from torch import nn

from allometry.measure import frechet_distance, frechet_distance_infinity


def gaussians(n, rng, d=5):
    A = np.diag(np.linspace(0.5, 1.5, d))
    B = np.eye(d) + 0.2
    x = rng.normal(size=(n, d)) @ np.linalg.cholesky(A).T
    y = 0.4 + rng.normal(size=(n, d)) @ np.linalg.cholesky(B).T
    root = sqrtm(A)
    truth = d * 0.4**2 + np.trace(A + B - 2 * sqrtm(root @ B @ root).real)
    return x, y, truth


def test_gaussians_have_their_closed_form():
    x, y, truth = gaussians(100_000, np.random.default_rng(0))
    found = frechet_distance(x, y)
    assert abs(found.value - truth) < 5 * found.se
    assert found.se < 0.02 * truth


def test_agrees_with_torchmetrics_and_pot():
    # 10,000 x 64, as in bench/measures.py: all routes agree to 6 digits.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10_000, 64)), 0.1 + 1.1 * rng.normal(size=(10_000, 64))
    ours = frechet_distance(x, y).value
    pot = ot.gaussian.empirical_bures_wasserstein_distance(x, y, reg=0)
    # POT divides by n, not n - 1, which changes the trace by 1e-4.
    assert ours == pytest.approx(float(pot) ** 2, rel=3e-4)

    class Given(nn.Module):
        num_features = 64

        def forward(self, z):
            return z

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchmetrics.image.fid import FrechetInceptionDistance

        metric = FrechetInceptionDistance(feature=Given(), input_img_size=(64,)).set_dtype(
            torch.float64
        )
        metric.update(torch.as_tensor(x), real=True)
        metric.update(torch.as_tensor(y), real=False)
        theirs = float(metric.compute())
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_infinity_removes_the_bias():
    rng = np.random.default_rng(1)
    plain, limit = [], []
    for _ in range(60):
        x, y, truth = gaussians(200, rng)
        plain.append(frechet_distance(x, y).value - truth)
        limit.append(frechet_distance_infinity(x, y).value - truth)
    error = np.std(limit) / np.sqrt(60)
    assert np.mean(plain) > 3 * error
    assert abs(np.mean(limit)) < 5 * error
    assert abs(np.mean(limit)) < np.mean(plain) / 3


def test_it_is_symmetric_and_rotation_invariant():
    rng = np.random.default_rng(2)
    x, y, _ = gaussians(300, rng)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    a, b = frechet_distance(x, y), frechet_distance(y, x)
    assert (a.value, a.se) == pytest.approx((b.value, b.se))
    assert frechet_distance(x @ turn, y @ turn).value == pytest.approx(a.value)
    assert frechet_distance(x, x).value == pytest.approx(0, abs=1e-12)
