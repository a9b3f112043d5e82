r"""The smallest adversarial game: a generator that is one point against a linear discriminator.

Shapes: $\theta$ where the generator puts its only point, the data's being 0; $\psi$ the slope of
the discriminator, whose logit at x is $\psi x$.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from allometry.train.game.differentiable import Game
from allometry.train.gan_costs import Costs


def dirac(costs: Costs, penalty: float = 0.0) -> Game:
    r"""The game of $\theta$ and $\psi$ under some costs; at rest at (0, 0), if it comes to rest.

    Its Jacobian there has imaginary eigenvalues for the usual costs: steps circle the equilibrium,
    as generators circle among modes. A penalty on the discriminator's slope draws them in.

    Args:
        costs: What the players minimise.
        penalty: $\gamma$, adds $\gamma\psi^2/2$ to the discriminator's cost.

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
    """Costs are means over a batch; each of the games played at once is a batch of one."""
    return torch.stack([cost(logit.reshape(1)) for logit in logits.flatten()])
