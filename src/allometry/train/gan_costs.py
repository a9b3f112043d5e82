r"""Costs of the generator and the discriminator of a GAN.

Notation: D the probability of real data, $a = \sigma^{-1}(D)$ its logit, P the distribution of the
data, Q that of the generator. Costs are functions of logits: `real` on data, `fake` on samples.
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
        name: Short name.
        discriminator: Cost from logits on data and on samples.
        generator: Cost from logits on samples.
        zero_sum: Whether the generator's cost is minus the discriminator's cost on samples. An
            unrolled generator then includes the discriminator's cost on data, which depends on the
            unrolled steps.
    """

    name: str
    discriminator: Callable[[Logits, Logits], Float[Tensor, ""]]
    generator: Callable[[Logits], Float[Tensor, ""]]
    zero_sum: bool = False


def cross_entropy(real: Logits, fake: Logits) -> Float[Tensor, ""]:
    r"""$-\frac12 E_P \log D - \frac12 E_Q \log(1 - D)$: minimal at $D = p/(p + q)$.

    References: `goodfellow2014` Eq. (1).
    """
    return (functional.softplus(-real).mean() + functional.softplus(fake).mean()) / 2


MINIMAX = Costs(
    "minimax", cross_entropy, lambda fake: -functional.softplus(fake).mean() / 2, zero_sum=True
)
r"""Zero-sum: at the optimal D the generator's cost is $JS(P\|Q) - \log 2$."""

NON_SATURATING = Costs(
    "non-saturating", cross_entropy, lambda fake: functional.softplus(-fake).mean() / 2
)
r"""$-\frac12 E_Q \log D$: same fixed points, no vanishing gradient where D is confident."""

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
"""The critic must be 1-Lipschitz: by clipping, `gradient_penalty` or spectral normalisation."""


def f_gan(divergence: Divergence) -> Costs:
    r"""The costs of the f-GAN, whose value is the variational bound on $D_f(P\|Q)$.

    References: `nowozin2016` Eq. (6).
    """
    return Costs(
        f"f-GAN, {divergence.name}",
        lambda real, fake: -divergence.bound(real, fake),
        lambda fake: -divergence.conjugate(divergence.critic(fake)).mean(),
        zero_sum=True,
    )


def gradient_penalty(
    critic: nn.Module,
    real: Float[Tensor, "n d"],
    fake: Float[Tensor, "n d"],
    share: Float[Tensor, "n 1"] | None = None,
) -> Float[Tensor, ""]:
    r"""$E(\|\nabla_x f(\hat x)\| - 1)^2$ at random points $\hat x$ between data and samples.

    Args:
        critic: f.
        real: Data.
        fake: Samples.
        share: Share of the data in each point; by default uniform, from torch's global generator.

    References: `gulrajani2017` Eq. (3).
    """
    if share is None:
        share = torch.rand(len(real), 1, dtype=real.dtype, device=real.device)
    between = share * real + (1 - share) * fake
    slope = grad(lambda x: critic(x).sum())(between)
    # The gradient of a pack (PacGAN) is with respect to all its points.
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
    r"""$p/q = D/(1 - D) = e^a$, as estimated by a discriminator trained with `cross_entropy`."""
    return logits.exp()
