import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from allometry import InputError
from allometry.measure import sliced_wasserstein, wasserstein, wasserstein_critic


@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 2))
def test_one_dimension_is_scipys_and_pots(n, m, p):
    rng = np.random.default_rng(n + 100 * m)
    x, y = rng.normal(size=n), rng.normal(size=m) + 1
    # In one dimension every direction is the line itself.
    found = sliced_wasserstein(x, y, p=p, projections=2)
    wanted = ot.wasserstein_1d(x, y, p=p) ** (1 / p)
    assert found.value == pytest.approx(float(wanted))
    if p == 1:
        assert found.value == pytest.approx(stats.wasserstein_distance(x, y))
    assert wasserstein(x, y, p=p).value == pytest.approx(found.value)


def test_potentials_of_sliced_and_exact_agree_on_the_line():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300), rng.normal(size=300) * 1.5 + 1
    exact, sliced = wasserstein(x, y), sliced_wasserstein(x, y, projections=2)
    assert exact.se == pytest.approx(sliced.se, rel=0.02)


def test_exact_distance_of_a_shift_is_the_shift():
    x = np.random.default_rng(0).normal(size=(200, 3))
    shift = np.array([1.0, 2.0, 2.0])
    found = wasserstein(x, x + shift)
    assert found.value == pytest.approx(3)
    assert wasserstein(x, x + shift, p=1).value == pytest.approx(3)


def test_gaussians_have_their_closed_form():
    # W2^2 between N(0, I) and N(mu, s^2 I) is |mu|^2 + d (1-s)^2; its slices average that over d.
    rng = np.random.default_rng(0)
    d, s, mu = 4, 1.5, np.array([1.0, 0, 0, 0])
    x, y = rng.normal(size=(20_000, d)), mu + s * rng.normal(size=(20_000, d))
    found = sliced_wasserstein(x, y, projections=300)
    truth = math.sqrt(1 / d + (1 - s) ** 2)
    assert abs(found.value - truth) < 5 * found.se
    # In one dimension the exact distance at 1,500 points is within its error too.
    found = wasserstein(x[:1500, 0], y[:1500, 0])
    assert abs(found.value - math.sqrt(1 + (1 - s) ** 2)) < 5 * found.se


def test_slices_agree_with_pot():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 3)), rng.normal(size=(300, 3)) + 0.5
    found = sliced_wasserstein(x, y, projections=2000)
    wanted = ot.sliced_wasserstein_distance(x, y, n_projections=2000, seed=1)
    # Both draw 2,000 directions; the squared cosine varies by about its mean.
    assert found.value == pytest.approx(float(wanted), rel=5 / math.sqrt(2000))


def test_the_critic_is_a_lower_bound_and_finds_a_shift():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 4)), rng.normal(size=(1000, 4)) + 1
    found = wasserstein_critic(x, y, steps=100)
    # W1 of a shift by (1,1,1,1) is 2, reached by a linear critic.
    assert found.value < 2 + 5 * found.se
    assert found.value > 1.8
    null = wasserstein_critic(x, rng.normal(size=(1000, 4)), steps=60)
    assert abs(null.value) < 5 * null.se


def test_the_critic_is_1_lipschitz():
    from allometry.measure.transport import _critic

    critic = _critic(3, 32)
    x = torch.randn(200, 3, dtype=torch.float32, requires_grad=True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x)
    assert float(slope.norm(dim=1).max()) <= 1 + 1e-5
    assert isinstance(critic, nn.Module)


def test_invalid_input_raises():
    with pytest.raises(InputError, match="p must be 1 or 2"):
        wasserstein(np.ones(4), np.ones(4), p=3)


@pytest.mark.parametrize(
    ("shift", "scale", "wanted"),
    # A shift moves every point alike; a dilation moves x to 2x, and |x| is the optimal critic.
    [(1.0, 1.0, math.sqrt(2)), (0.0, 2.0, math.sqrt(math.pi / 2))],
    ids=["shift", "dilation"],
)
def test_the_critic_is_within_five_per_cent_of_gaussians_in_the_plane(shift, scale, wanted):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40_000, 2)), scale * rng.normal(size=(40_000, 2)) + shift
    found = wasserstein_critic(x, y, steps=250)
    assert found.value == pytest.approx(wanted, rel=0.05)
