"""Posterior collapse: active units, mutual information, and variances of gradient estimators.

Shapes: n examples, k size of the code, s draws.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.models.autoencoders.vae import VAE


@torch.no_grad()
def active_units(model: VAE, x: Shaped[Tensor, "n *event"], threshold: float = 0.01) -> Estimate:
    r"""Number of latent units that depend on x: $\mathrm{Var}_x(\mu_i(x)) > $ threshold.

    References: `burda2016` section 5.2.
    """
    mean, _ = model.posterior(x)
    return Estimate(float((mean.var(0) > threshold).sum()), exact=True, method="count", n=len(x))


@torch.no_grad()
def mutual_information(
    model: VAE, x: Shaped[Tensor, "n *event"], rng: torch.Generator | None = None
) -> Estimate:
    r"""$I_q(x; z) = \mathbb E [\log q(z | x) - \log \frac1n \sum_j q(z | x_j)]$ in nats.

    z is drawn once for each x, and the mixture is over all n examples, so the value cannot exceed
    log n. The standard error is that of the mean over examples.

    Args:
        model: VAE whose encoder is evaluated.
        x: Examples that represent the data.
        rng: Generator of z; default: seed 0.

    References: `hoffman2016`.
    """
    return _kl_parts(model, x, rng)[0]


@torch.no_grad()
def kl_split(
    model: VAE, x: Shaped[Tensor, "n *event"], rng: torch.Generator | None = None
) -> dict[str, Estimate]:
    r"""The KL term of the ELBO in two parts: $\mathbb E\,\mathrm{KL}(q(z|x) \| p(z)) = I_q(x; z) +
    \mathrm{KL}(q(z) \| p(z))$.

    The first part is the information about the example; the second is the divergence of the
    aggregate posterior from the prior, which degrades samples. Both are means over one draw of z
    for each x.

    Args:
        model: VAE whose encoder is evaluated.
        x: Examples that represent the data.
        rng: Generator of z; default: seed 0.

    References: `hoffman2016`.
    """  # noqa: D205
    information, marginal = _kl_parts(model, x, rng)
    return {"mutual_information": information, "marginal_kl": marginal}


def _kl_parts(model: VAE, x: Tensor, rng: torch.Generator | None) -> tuple[Estimate, Estimate]:
    require(len(x) >= 2, "mutual_information.x", "contain at least 2 examples", len(x))
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    mean, log_var = (t.double() for t in model.posterior(x))
    noise = torch.randn(mean.shape, generator=rng, dtype=torch.float64).to(mean.device)
    z = mean + (0.5 * log_var).exp() * noise
    pairs = torch.stack(
        [
            -0.5 * ((row - mean).square() / log_var.exp() + log_var + math.log(2 * math.pi)).sum(1)
            for row in z
        ]
    )
    mixed = pairs.logsumexp(1) - math.log(len(x))
    prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
    return _mean(pairs.diagonal() - mixed), _mean(mixed - prior)


def _mean(each: Tensor) -> Estimate:
    se = each.std().item() / len(each) ** 0.5
    return Estimate(each.mean().item(), se, n=len(each), method="mean over examples")


def gradient_variances(
    f: Callable[[Tensor], Tensor],
    mean: Float[Tensor, " k"],
    log_sd: Float[Tensor, " k"],
    draws: int,
    rng: torch.Generator,
) -> dict[str, tuple[Float[Tensor, " k"], Float[Tensor, " k"]]]:
    r"""Mean and variance of two unbiased gradient estimators of $\mathbb E_{z \sim q} f(z)$.

    The gradient is with respect to the mean of q.

    Reparameterised: $\nabla_z f(\mu + \sigma \epsilon)$. Score function:
    $f(z)\,\nabla_\mu \log q(z) = f(z)\,\epsilon / \sigma$.

    Args:
        f: From (draws, k) to (draws,), differentiable.
        mean: Mean of q.
        log_sd: Log standard deviations of q.
        draws: Number of draws.
        rng: Random generator.

    References: `kingma2014` section 2.4; `williams1992`.
    """
    sd = log_sd.exp()
    epsilon = torch.randn(draws, len(mean), generator=rng, dtype=mean.dtype)
    z = (mean + sd * epsilon).requires_grad_(True)
    values = f(z)
    (slopes,) = torch.autograd.grad(values.sum(), z)
    scores = values.detach()[:, None] * epsilon / sd
    return {
        "reparameterised": (slopes.mean(0), slopes.var(0)),
        "score function": (scores.mean(0), scores.var(0)),
    }
