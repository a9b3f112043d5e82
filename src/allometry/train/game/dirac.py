r"""The Dirac-GAN: a generator of a single point against a linear discriminator.

Notation: $\theta$ the point of the generator, with data at 0; $\psi$ the slope of the
discriminator, whose logit at x is $\psi x$.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from allometry.train.game.differentiable import Game
from allometry.train.gan_costs import Costs


def dirac(costs: Costs, penalty: float = 0.0) -> Game:
    r"""The game of $\theta$ and $\psi$, with its equilibrium at (0, 0).

    Its Jacobian there has imaginary eigenvalues for the usual costs: gradient steps circle the
    equilibrium, as generators cycle among modes. A penalty on the slope of the discriminator makes
    them converge.

    Args:
        costs: Costs of generator and discriminator.
        penalty: $\gamma$; adds $\gamma\psi^2/2$ to the discriminator's cost.

    References: `mescheder2018` section 2.
    """

    def generator(players: tuple[Tensor, ...]) -> Tensor:
        theta, psi = players
        return _each(costs.generator, psi * theta)

    def discriminator(players: tuple[Tensor, ...]) -> Tensor:
        theta, psi = players
        own = _each(lambda fake: costs.discriminator(torch.zeros_like(fake), fake), psi * theta)
        return own + penalty / 2 * psi.square().flatten()

    return Game((generator, discriminator))


def _each(cost: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Adds a batch axis: costs are means over a batch, and each game is a batch of one."""
    return torch.stack([cost(logit.reshape(1)) for logit in logits.flatten()])
