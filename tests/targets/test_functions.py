import pytest
import torch

from allometry.measure import equivariance_error
from allometry.targets import functions

x = torch.rand(50, 2, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", functions.EQUIVARIANT)
def test_equivariant_functions_commute(name):
    f = functions.EQUIVARIANT[name]
    assert f(x).shape == x.shape
    assert equivariance_error(f, x).value < 1e-14


@pytest.mark.parametrize("name", functions.ORDERED)
def test_ordered_functions_do_not(name):
    f = functions.ORDERED[name]
    assert f(x).shape == x.shape
    assert equivariance_error(f, x).value > 0.1


def test_known_answers():
    one = torch.tensor([[[0.1, 0.4, 0.2]]])
    for f, expected in (
        (functions.sort, [0.1, 0.2, 0.4]),
        (functions.reverse, [0.2, 0.4, 0.1]),
        (functions.shift, [0.2, 0.1, 0.4]),
        (functions.running_mean, [0.1 / 3, 0.5 / 3, 0.7 / 3]),
        (functions.mean, [0.7 / 3] * 3),
        (functions.maximum, [0.4] * 3),
        (functions.centred, [0.1 - 0.7 / 3, 0.4 - 0.7 / 3, 0.2 - 0.7 / 3]),
        (functions.pairwise_products, [0.07 / 3, 0.28 / 3, 0.14 / 3]),
    ):
        torch.testing.assert_close(f(one)[0, 0], torch.tensor(expected))
    weights = torch.exp(torch.tensor([0.01, 0.04, 0.02]))
    first = (weights * one[0, 0]).sum() / weights.sum()
    torch.testing.assert_close(functions.attention(one)[0, 0, 0], first)
    assert functions.ranks(one)[0, 0].argsort().tolist() == [0, 2, 1]


def test_smooth_functions_come_from_their_seed():
    f, g = functions.smooth(2, seed=3), functions.smooth(2, seed=3, equivariant=False)
    assert torch.equal(f(x), functions.smooth(2, seed=3)(x))
    assert not torch.equal(f(x), functions.smooth(2, seed=4)(x))
    assert equivariance_error(f, x).value < 1e-12
    assert equivariance_error(g, x).value > 0.1
    assert 0.1 < f(x).std() < 3
