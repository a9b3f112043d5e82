r"""What the two players of a generative adversarial game minimise.

Shapes: D the probability of being data, $a = \sigma^{-1}(D)$ its logit, P the data's law, Q the
generator's. Each cost is of logits: `real` on data and `fake` on what the generator made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import grad
from torch.nn import functional

from allometry.train.f_divergences import Divergence

Logits = Float[Tensor, " n"]


@final
@dataclass(frozen=True)
class Costs:
    """A pair of costs.

    Args:
        name: In a word or two.
        discriminator: Of logits on data and on samples.
        generator: Of logits on samples.
        zero_sum: Whether it is what the discriminator's cost has of samples, with the other sign:
            what one wins, the other loses. A generator that looks ahead then counts the
            discriminator's cost on data too, which its steps have changed.
    """

    name: str
    discriminator: Callable[[Logits, Logits], Float[Tensor, ""]]
    generator: Callable[[Logits], Float[Tensor, ""]]
    zero_sum: bool = False


def cross_entropy(real: Logits, fake: Logits) -> Float[Tensor, ""]:
    r"""$-\frac12 E_P \log D - \frac12 E_Q \log(1 - D)$: least at $D = p/(p + q)$.

    References: `goodfellow2014` Eq. (1).
    """
    return (functional.softplus(-real).mean() + functional.softplus(fake).mean()) / 2


MINIMAX = Costs(
    "minimax", cross_entropy, lambda fake: -functional.softplus(fake).mean() / 2, zero_sum=True
)
r"""The generator's cost is the discriminator's reversed: at the optimal D, $JS(P\|Q) - \log 2$."""

NON_SATURATING = Costs(
    "non-saturating", cross_entropy, lambda fake: functional.softplus(-fake).mean() / 2
)
r"""$-\frac12 E_Q \log D$: same fixed points, no vanishing gradient where D is sure."""

MAXIMUM_LIKELIHOOD = Costs(
    "maximum likelihood", cross_entropy, lambda fake: -fake.exp().mean() / 2
)
r"""$-\frac12 E \exp(\sigma^{-1}(D(G(z))))$: at the optimal D its gradient is half that of
$KL(P\|Q)$."""

LEAST_SQUARES = Costs(
    "least squares",
    lambda real, fake: ((real - 1).square().mean() + fake.square().mean()) / 2,
    lambda fake: (fake - 1).square().mean() / 2,
)

HINGE = Costs(
    "hinge",
    lambda real, fake: functional.relu(1 - real).mean() + functional.relu(1 + fake).mean(),
    lambda fake: -fake.mean(),
)

WASSERSTEIN = Costs(
    "Wasserstein",
    lambda real, fake: fake.mean() - real.mean(),
    lambda fake: -fake.mean(),
    zero_sum=True,
)
"""The critic must be kept 1-Lipschitz: by clipping, by `gradient_penalty` or by its own norms."""


def f_gan(divergence: Divergence) -> Costs:
    r"""The costs of the game whose value is the bound on $D_f(P\|Q)$.

    References: `nowozin2016` Eq. (6).
    """
    return Costs(
        f"f-GAN, {divergence.name}",
        lambda real, fake: -divergence.bound(real, fake),
        lambda fake: -divergence.conjugate(divergence.critic(fake)).mean(),
        zero_sum=True,
    )


def gradient_penalty(
    critic: nn.Module, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"]
) -> Float[Tensor, ""]:
    r"""$E(\|\nabla_x f(\hat x)\| - 1)^2$ at random points $\hat x$ between data and samples.

    References: `gulrajani2017` Eq. (3).
    """
    share = torch.rand(len(real), 1, dtype=real.dtype, device=real.device)
    between = share * real + (1 - share) * fake
    slope = grad(lambda x: critic(x).sum())(between)
    # A pack's slope is that of all its points together.
    pack = getattr(critic, "pack", 1)
    norm = (slope.reshape(-1, pack * slope.shape[1]).square().sum(1) + 1e-12).sqrt()
    return (norm - 1).square().mean()


def optimal_discriminator(
    log_p: Float[Tensor, "*n"], log_q: Float[Tensor, "*n"]
) -> Float[Tensor, "*n"]:
    r"""$p/(p + q)$ from log densities; its logit is the log ratio.

    References: `goodfellow2014` Proposition 1.
    """
    return torch.sigmoid(log_p - log_q)


def density_ratio(logits: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    r"""$p/q = D/(1 - D) = e^a$, as a discriminator trained by `cross_entropy` sees it."""
    return logits.exp()
