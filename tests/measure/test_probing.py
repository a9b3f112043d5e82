"""Linear probes of features."""

import math

import pytest
import torch

from allometry._core.errors import InputError
from allometry.measure import linear_probe


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_noise_carries_no_information():
    x, y = torch.randn(2000, 3, generator=rng()), torch.arange(2000) % 4
    nats, right = linear_probe(x[:1000], y[:1000], x[1000:], y[1000:])
    assert abs(nats.value - math.log(4)) < 5 * nats.se + 0.02  # 0.02: what the fit overfits
    assert abs(right.value - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 1000)


def test_gaussian_classes_cost_their_conditional_entropy():
    """Two normals at -1 and 1: the log-odds are 2x, and the optimal classifier is linear."""
    y = torch.randint(2, (40_000,), generator=rng())
    x = torch.randn(40_000, generator=rng(1)) + (2.0 * y - 1)
    exact = torch.nn.functional.softplus(-(2 * x) * (2 * y - 1))[20_000:].mean().item()
    nats, _ = linear_probe(x[:20_000, None], y[:20_000], x[20_000:, None], y[20_000:])
    assert nats.value == pytest.approx(exact, abs=2e-3)


def test_scale_and_order_of_features_do_not_matter():
    y = torch.randint(3, (600,), generator=rng())
    x = torch.randn(600, 4, generator=rng(1)) + y[:, None]
    a, _ = linear_probe(x[:400], y[:400], x[400:], y[400:])
    z = (1000 * x + 7)[:, [2, 0, 3, 1]]
    b, _ = linear_probe(z[:400], y[:400], z[400:], y[400:])
    assert a.value == pytest.approx(b.value, rel=1e-3)


def test_one_class_is_refused():
    x, y = torch.randn(10, 2, generator=rng()), torch.zeros(10, dtype=torch.int64)
    with pytest.raises(InputError, match="at least 2 classes"):
        linear_probe(x, y, x, y)
    with pytest.raises(InputError, match="be classes of the training rows"):
        linear_probe(x, torch.arange(10) % 2, x, y + 5)
