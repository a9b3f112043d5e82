"""Primal equals dual, and both equal the closed form in one dimension."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from allometry._core.errors import InputError
from allometry.measure.transport_duality import kantorovich, kantorovich_rubinstein


def measures(seed, n, m, d=2):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 0.5
    return x, y, rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 25), m=st.integers(1, 25))
@pytest.mark.parametrize("p", [1, 2])
def test_primal_equals_dual(seed, n, m, p):
    x, y, a, b = measures(seed, n, m)
    cost = np.linalg.norm(x[:, None] - y[None], axis=2) ** p
    found = kantorovich(a, b, cost)
    assert found.primal == pytest.approx(found.dual, abs=1e-6)
    assert (found.f[:, None] + found.g[None] <= cost + 1e-7).all()
    # Mass moves only where the potentials touch the cost.
    slack = cost - found.f[:, None] - found.g[None]
    assert float((slack * found.plan).sum()) == pytest.approx(0, abs=1e-6)
    if p == 1:
        value, critic = kantorovich_rubinstein(x, y, a, b)
        assert value == pytest.approx(found.primal, abs=1e-6)
        z = np.concatenate([x, y])
        steps = np.abs(critic[:, None] - critic[None])
        assert (steps <= np.linalg.norm(z[:, None] - z[None], axis=2) + 1e-7).all()


def test_one_dimension_against_scipy():
    x, y, a, b = measures(3, 30, 20, d=1)
    value, _ = kantorovich_rubinstein(x, y, a, b)
    assert value == pytest.approx(stats.wasserstein_distance(x[:, 0], y[:, 0], a, b), abs=1e-8)


def test_bad_measures_are_refused():
    with pytest.raises(InputError, match="sum to 1"):
        kantorovich(np.array([0.5, 0.4]), np.array([1.0]), np.ones((2, 1)))
    with pytest.raises(InputError, match="have the shape"):
        kantorovich(np.array([1.0]), np.array([1.0]), np.ones((2, 1)))
    with pytest.raises(InputError, match="be finite"):
        kantorovich(np.array([1.0]), np.array([1.0]), np.full((1, 1), np.nan))


@pytest.mark.parametrize("unit", [1e-12, 1e-5, 1.0, 1e9])
@pytest.mark.parametrize("huge", [1.0, 1e8])
def test_the_unit_of_costs_does_not_matter(unit, huge):
    """A regression: the dual was off by up to 160 % for costs below the solver's tolerance."""
    for seed in range(10):
        x, y, a, b = measures(seed, 20, 25)
        a[0] = b[3] = 0.0  # points without mass
        a, b = a / a.sum(), b / b.sum()
        cost = np.linalg.norm(x[:, None] - y[None], axis=2) * unit
        cost[0, 0] *= huge
        cost[2, 2] *= huge
        found = kantorovich(a, b, cost)
        assert found.dual == pytest.approx(found.primal, rel=1e-12)
        # A certificate: every constraint holds, so no plan is cheaper than `dual`.
        assert (found.f[:, None] + found.g - cost <= 1e-13 * cost.max()).all()
        np.testing.assert_allclose(found.plan.sum(1), a, atol=1e-12)
        np.testing.assert_allclose(found.plan.sum(0), b, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_critic_in_any_unit(unit):
    x, y, a, b = measures(5, 12, 9)
    value, _ = kantorovich_rubinstein(x, y, a, b)
    scaled, other = kantorovich_rubinstein(unit * x, unit * y, a, b)
    assert scaled == pytest.approx(unit * value, rel=1e-9)
    z = unit * np.concatenate([x, y])
    steps = np.abs(other[:, None] - other[None])
    assert (steps <= np.linalg.norm(z[:, None] - z[None], axis=2) * (1 + 1e-12)).all()
