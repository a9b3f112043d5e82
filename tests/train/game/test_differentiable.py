"""Updates on games whose motion is known in closed form."""

import math

import pytest
import torch

from allometry.train.game import (
    Game,
    alternating,
    extragradient,
    jacobian,
    local_nash,
    optimistic,
    simultaneous,
    unrolled,
)
from allometry.train.game.differentiable import play

BILINEAR = Game((lambda p: (p[0] * p[1]).sum(-1), lambda p: -(p[0] * p[1]).sum(-1)))
START = (torch.tensor([1.0]), torch.tensor([0.0]))


def radius(players):
    return math.hypot(float(players[0]), float(players[1]))


def test_simultaneous_descent_spirals_out_of_a_bilinear_game():
    """Each step multiplies the radius by sqrt(1 + eta^2)."""
    end, path = play(BILINEAR, START, simultaneous(0.1), 50)
    assert radius(end) == pytest.approx(1.01**25)
    assert len(path) == 51


def test_alternating_descent_keeps_near_its_orbit():
    """x^2 + y^2 - eta x y is kept exactly (the second player sees the first's move)."""
    end, path = play(BILINEAR, START, alternating(0.1), 400)
    kept = [float(x * x + y * y - 0.1 * x * y) for x, y in path]
    assert max(kept) - min(kept) < 1e-10
    assert 0.9 < radius(end) < 1.1


def test_extragradient_contracts_by_its_closed_form():
    """|1 - eta^2 + i eta|^2 = 1 - eta^2 + eta^4."""
    end, _ = play(BILINEAR, START, extragradient(0.1), 50)
    assert radius(end) == pytest.approx((1 - 0.01 + 0.0001) ** 25)


def test_optimistic_descent_converges():
    end, _ = play(BILINEAR, START, optimistic(0.1), 2000)
    assert radius(end) < 1e-3


def test_unrolling_brings_a_bilinear_game_to_rest():
    """The leader's slope becomes y + 2 k eta x + ...: friction."""
    end, _ = play(BILINEAR, START, unrolled(0.1, 1), 1500)
    assert radius(end) < 1e-2
    same, _ = play(BILINEAR, START, unrolled(0.1, 0), 20)
    plain, _ = play(BILINEAR, START, simultaneous(0.1), 20)
    torch.testing.assert_close(same, plain)


def test_unrolled_slope_is_the_second_order_one():
    """c0 = x y with y' = y + eta x after one step: d/dx (x y + eta x^2) = y + 2 eta x."""
    x, y = torch.tensor([0.7]), torch.tensor([-0.3])
    (new, _), _ = unrolled(0.1, 1)(BILINEAR, (x, y), None)
    torch.testing.assert_close(new, x - 0.1 * (y + 0.2 * x))


def test_many_games_at_once():
    """A leading axis: each game moves as it does alone."""
    x, y = torch.randn(5, 1), torch.randn(5, 1)
    together, _ = play(BILINEAR, (x, y), extragradient(0.2), 10)
    for i in range(5):
        alone, _ = play(BILINEAR, (x[i], y[i]), extragradient(0.2), 10)
        torch.testing.assert_close(together[0][i], alone[0])


def test_local_nash_by_the_jacobian():
    a = 2.0
    game = Game((lambda p: (p[0] ** 2 / 2 + a * p[0] * p[1]).sum(),
                 lambda p: (p[1] ** 2 / 2 - a * p[0] * p[1]).sum()))  # fmt: skip
    zero = (torch.zeros(1), torch.zeros(1))
    torch.testing.assert_close(jacobian(game, zero), torch.tensor([[1.0, a], [-a, 1.0]]))
    found = local_nash(game, zero)
    assert found.strict
    assert found.attracting
    assert sorted(found.eigenvalues.imag.tolist()) == pytest.approx([-a, a])
    assert not local_nash(game, (torch.ones(1), torch.zeros(1))).stationary


def test_rest_points_that_are_no_equilibria():
    """A player at the top of its own cost gains by moving, though descent may rest there."""
    hill = Game((lambda p: -(p[0] ** 2).sum() + 4 * (p[0] * p[1]).sum(),
                 lambda p: 3 * (p[1] ** 2).sum() - 4 * (p[0] * p[1]).sum()))  # fmt: skip
    found = local_nash(hill, (torch.zeros(1), torch.zeros(1)))
    assert found.stationary
    assert not found.nash
    assert found.attracting  # trace 4, determinant 4: both eigenvalues are positive
    centre = local_nash(BILINEAR, (torch.zeros(1), torch.zeros(1)))
    assert centre.nash
    assert not centre.strict
    assert not centre.attracting


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_unit_of_a_cost_does_not_decide_what_is_an_equilibrium(unit):
    def bowl(sign, i):
        return lambda p: unit * sign * (p[i] - 1).square().sum()

    away = (torch.full((1,), 1.1), torch.ones(1))
    at = (torch.ones(1), torch.ones(1))
    assert local_nash(Game((bowl(1, 0), bowl(1, 1))), at).strict
    assert not local_nash(Game((bowl(1, 0), bowl(1, 1))), away).stationary
    assert not local_nash(Game((bowl(1, 0), bowl(-1, 1))), at).nash
