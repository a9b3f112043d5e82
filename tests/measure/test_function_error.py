import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import allometry as al
from allometry.measure import d_p, equivariance_error, is_contextual_mapping, sobol
from allometry.models import Transformer

seeds = st.integers(0, 2**16)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_distance_of_x_from_zero_in_closed_form(p):
    """The integral of x^p is 1/(p + 1), so the distance is (p + 1)^(-1/p)."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    x, w = torch.tensor((nodes + 1) / 2)[:, None], torch.tensor(weights / 2)
    exact = (p + 1) ** (-1 / p)
    # Gauss nodes are exact for polynomials; x^3.5 costs a few digits at 0.
    rule = d_p(x, torch.zeros_like(x), p=p, weights=w)
    assert rule.value == pytest.approx(exact, rel=1e-14 if p < 3 else 1e-8)
    assert rule.exact
    quasi = d_p(lambda x: x, torch.zeros_like, p=p, shape=(1, 1))
    assert abs(quasi.value - exact) < 5 * quasi.se
    assert quasi.se < 1e-4
    x = torch.rand(20_000, 1, generator=rng())
    plain = d_p(x, torch.zeros_like(x), p=p)
    assert abs(plain.value - exact) < 5 * plain.se


def test_distance_sums_over_the_entries():
    d, n, delta = 2, 3, 0.25

    def down(x):
        return (x / delta).floor() * delta + delta / 2

    found = d_p(lambda x: x, down, shape=(d, n), points=512)
    # Uniform on a cell: variance delta^2 / 12 for each of d n entries.
    assert abs(found.value - math.sqrt(d * n * delta**2 / 12)) < 5 * found.se


def test_groups_of_values_are_replicates():
    x = torch.cat([sobol(256, (1,), seed=k) for k in range(8)])
    grouped = d_p(x, torch.zeros_like(x), replicates=8)
    alone = d_p(x, torch.zeros_like(x))
    assert grouped.value == pytest.approx(alone.value)
    assert grouped.se < alone.se / 10
    assert grouped.covers(3**-0.5)


@given(seeds, st.sampled_from([1.0, 2.0, 4.0]))
def test_distance_is_a_metric(seed, p):
    f, g, h = torch.randn(3, 20, 2, 2, generator=rng(seed))
    fg, gh, fh = (d_p(a, b, p=p).value for a, b in ((f, g), (g, h), (f, h)))
    assert fg == d_p(g, f, p=p).value
    assert fh <= fg + gh + 1e-12
    assert d_p(f, f, p=p).value == 0


def test_invalid_input_raises():
    x = torch.zeros(3, 1)
    with pytest.raises(al.InputError, match=r"d_p\.p must be a finite number of at least 1"):
        d_p(x, x, p=0.5)
    with pytest.raises(al.InputError, match=r"shape must be given for functions"):
        d_p(torch.sin, torch.cos)
    with pytest.raises(al.InputError, match="two functions or two tensors"):
        d_p(torch.sin, x)
    with pytest.raises(al.InputError, match=r"d_p\.g must have the shape of f"):
        d_p(x, torch.zeros(2, 1))
    with pytest.raises(al.InputError, match="replicates must divide 3 points"):
        d_p(x, x, replicates=2)
    with pytest.raises(al.InputError, match="replicates must be at least 2"):
        d_p(torch.sin, torch.cos, shape=(1,), replicates=1)


def test_equivariance_error_in_closed_form():
    x = torch.tensor([[[0.0, 1.0, 5.0]]])
    # With 5 first, its column becomes 5 instead of 6; with 0 last, its column becomes 6, not 0.
    assert equivariance_error(lambda x: x.cumsum(2), x).value == 6.0
    assert equivariance_error(lambda x: x * x.mean(2, keepdim=True), x).value == 0.0
    assert equivariance_error(lambda x: x, torch.rand(3, 2, 9), permutations=7).n == 21


@given(seeds)
def test_every_network_without_positions_is_equivariant(seed):
    """Claim 1 of Yun et al., by the metric itself."""
    model = Transformer.yun(2, depth=3)
    x = torch.rand(4, 2, 4, generator=rng(seed))
    assert equivariance_error(model, x, permutations=5).value < 1e-10


def test_contextual_mapping_by_hand():
    x = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 2.0]], [[1.0, 1.0]]])
    good = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 4.0], [7.0, 7.0]])
    found = is_contextual_mapping(good, x)
    assert found
    assert (found.gap, found.interval, found.codes, found.sequences) == (1.0, (1.0, 7.0), 5, 4)
    same = is_contextual_mapping(torch.tensor([[1.0, 1.0], [2.0, 1.0], [3.0, 4.0], [7.0, 7.0]]), x)
    assert not same.within
    shared = is_contextual_mapping(torch.tensor([[1.0, 2], [2.0, 1], [2.0, 4], [7.0, 7]]), x)
    assert shared.within
    assert not shared.across
    assert not shared
    close = is_contextual_mapping(good / 10, x, tolerance=0.2)
    assert not close


def test_a_boltzmann_average_is_a_contextual_mapping_and_the_identity_is_not():
    x = torch.combinations(torch.arange(6.0), 3)[:, None]
    assert not is_contextual_mapping(lambda x: x[:, 0], x)
    mean = (x[:, 0] * (0.3 * x[:, 0]).softmax(1)).sum(1, keepdim=True)
    assert is_contextual_mapping(1e4 * mean + x[:, 0], x)


def test_more_coordinates_than_sobol_points_have_are_refused():
    """It ended in torch's ValueError."""
    with pytest.raises(al.InputError, match="shape must have from 1 to 21201 coordinates"):
        sobol(4, (10**30, 1))
