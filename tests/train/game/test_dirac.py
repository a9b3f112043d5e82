"""The point against the line: the eigenvalues that are published for it."""

import pytest
import torch

from allometry.train.game import dirac, local_nash, simultaneous
from allometry.train.game.differentiable import jacobian, play
from allometry.train.gan_costs import MINIMAX, NON_SATURATING, WASSERSTEIN

ORIGIN = (torch.zeros(1), torch.zeros(1))


@pytest.mark.parametrize(("costs", "slope"), [(MINIMAX, 1 / 4), (NON_SATURATING, 1 / 4),
                                              (WASSERSTEIN, 1.0)])  # fmt: skip
def test_eigenvalues_are_imaginary(costs, slope):
    """f'(0) i up to sign; f = log(1 + exp)/2 has slope 1/4 at 0, as costs are halved here."""
    values = torch.linalg.eigvals(jacobian(dirac(costs), ORIGIN))
    torch.testing.assert_close(values.real, torch.zeros(2))
    torch.testing.assert_close(values.imag.abs(), torch.full((2,), slope))
    assert not local_nash(dirac(costs), ORIGIN).attracting


def test_a_penalty_draws_the_players_in():
    """Eigenvalues (gamma +- sqrt(gamma^2 - 4 f'(0)^2)) / 2, all with positive real parts."""
    values = torch.linalg.eigvals(jacobian(dirac(NON_SATURATING, 0.3), ORIGIN))
    root = torch.sqrt(torch.tensor(0.3**2 - 4 / 16 + 0j))
    expected = torch.stack([(0.3 + root) / 2, (0.3 - root) / 2])
    torch.testing.assert_close(values.real, expected.real)
    torch.testing.assert_close(values.imag.sort().values, expected.imag.sort().values)
    (theta, psi), _ = play(dirac(NON_SATURATING, 0.3), (torch.ones(1), torch.ones(1)),
                           simultaneous(0.2), 400)  # fmt: skip
    assert float(theta.abs() + psi.abs()) < 1e-2


def test_games_played_at_once_do_not_touch():
    game = dirac(NON_SATURATING)
    theta, psi = torch.randn(3, 1), torch.randn(3, 1)
    both = game.field((theta, psi))
    for i in range(3):
        alone = game.field((theta[i], psi[i]))
        for a, b in zip(both, alone, strict=True):
            torch.testing.assert_close(a[i], b)
