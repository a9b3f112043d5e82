"""Objectives of autoencoders. Shapes: n examples, k size of the code.

Noise is an argument, so that a step is a pure function: it can be repeated, resumed and vectorised
over seeds.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.autoencoders import VAE, VQVAE, Autoencoder, GenerativeVQVAE

Examples = Float[Tensor, "n *event"]
Loss = Float[Tensor, ""]


def reconstruction(model: Autoencoder, x: Examples) -> Loss:
    r"""Mean over examples of $|x - D(E(x))|^2$."""
    return (model(x) - x).square().flatten(1).sum(1).mean()


def denoising(model: Autoencoder, x: Examples, noise: Examples) -> Loss:
    r"""$|x - D(E(x + \text{noise}))|^2$: reconstruction of the clean example.

    References: `vincent2008`.
    """
    return (model(x + noise) - x).square().flatten(1).sum(1).mean()


def sparse(model: Autoencoder, x: Examples, weight: float) -> Loss:
    r"""$|x - D(E(x))|^2 + \lambda |E(x)|_1$.

    References: `ng2011`; `goodfellow2016` section 14.2.1.
    """
    code = model.encode(x)
    error = (model.decode(code) - x).square().flatten(1).sum(1)
    return (error + weight * code.abs().flatten(1).sum(1)).mean()


def contractive(model: Autoencoder, x: Examples, weight: float) -> Loss:
    r"""$|x - D(E(x))|^2 + \lambda \|\partial E / \partial x\|_F^2$, the norm exact.

    The Jacobian is computed exactly for every example, one row of the code at a time.

    References: `rifai2011` Eq. (1).
    """
    jacobian = torch.func.vmap(torch.func.jacrev(lambda v: model.encode(v[None])[0].flatten()))
    squares = jacobian(x).flatten(1).square().sum(1)
    return ((model(x) - x).square().flatten(1).sum(1) + weight * squares).mean()


def negative_elbo(
    model: VAE, x: Shaped[Tensor, "n *event"], noise: Float[Tensor, "n k"], beta: float = 1.0
) -> Loss:
    r"""$-\mathbb E_q \log p(x|z) + \beta\,\mathrm{KL}(q(z|x) \| p(z))$; a bound for $\beta = 1$.

    References: `kingma2014` Eq. (3); `higgins2017` for $\beta$.
    """
    fit, kl = model.elbo_terms(x, noise)
    return (beta * kl - fit).mean()


def negative_iwae(
    model: VAE, x: Shaped[Tensor, "n *event"], noise: Float[Tensor, "s n k"]
) -> Loss:
    """The importance-weighted bound with one draw of z for each leading row of the noise.

    References: `burda2016`.
    """
    return -model.iwae(x, noise).mean()


def info_vae(
    model: VAE,
    x: Shaped[Tensor, "n *event"],
    noise: Float[Tensor, "n k"],
    prior: Float[Tensor, "n k"],
    alpha: float = 0.0,
    lambda_: float = 10.0,
    divergence: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Loss:
    r"""$-\mathbb E \log p(x|z) + (1 - \alpha)\,\mathrm{KL}(q(z|x) \| p) + (\alpha + \lambda - 1)\,
    D(q(z) \| p(z))$ with D the squared MMD between the codes of the batch and draws of the prior,
    or another divergence estimated from samples.

    $\alpha = 0, \lambda = 1$ is the VAE; $\lambda = 1 - \alpha = \beta$ the beta-VAE; $\alpha = 1$
    the MMD-VAE, which is a Wasserstein autoencoder.

    Args:
        model: The VAE.
        x: Examples.
        noise: Noise of the reparameterisation.
        prior: Standard normal draws, one for each example.
        alpha: As above.
        lambda_: As above.
        divergence: D from codes and draws of the prior; default: `mmd`. `adversarial` with a
            critic is the other form in the paper.

    References: `zhao2019` Eq. (6); `tolstikhin2018`.
    """  # noqa: D205
    mean, log_var = model.posterior(x)
    z = mean + (0.5 * log_var).exp() * noise
    kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)
    loss = ((1 - alpha) * kl - model.log_likelihood(x, z)).mean()
    weight = alpha + lambda_ - 1
    return loss + weight * (divergence or mmd)(z, prior) if weight else loss


def adversarial(critic: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    r"""$D(q(z) \| p(z))$ from the log ratio of a critic: $\mathbb E_{q(z)} T(z)$.

    At the optimum of `critic_loss` $T = \log q(z) / p(z)$, and D is the KL divergence.

    Args:
        critic: Maps codes (n, k) to one number each.

    References: `zhao2019`; `makhzani2016`.
    """
    return lambda z, prior: critic(z).mean()


def critic_loss(critic: nn.Module, z: Float[Tensor, "n k"], prior: Float[Tensor, "m k"]) -> Loss:
    """Objective of the critic of `adversarial`: classify codes against draws of the prior.

    Args:
        critic: Maps codes to one number each.
        z: Codes, without gradient.
        prior: Draws of the prior.
    """
    codes, drawn = critic(z.detach()), critic(prior)
    return F.softplus(-codes).mean() + F.softplus(drawn).mean()


def mmd(z: Float[Tensor, "n k"], prior: Float[Tensor, "m k"]) -> Loss:
    r"""Squared maximum mean discrepancy, unbiased, kernel $c / (c + |z - z'|^2)$ with c = 2k.

    References: `gretton2012` Eq. (3); `tolstikhin2018` for the kernel.
    """
    n, m = len(z), len(prior)
    require(min(n, m) >= 2, "mmd", "have at least 2 of each", (n, m))
    c = 2.0 * z.shape[1]
    both = torch.cat([z, prior])
    norms = both.square().sum(1)
    # One product for all pairs of both sets.
    squares = (norms[:, None] + norms - 2 * both @ both.T).clamp(min=0)
    kernel = c / (c + squares)
    own, other = kernel[:n, :n], kernel[n:, n:]
    return (
        (own.sum() - n) / (n * (n - 1))
        + (other.sum() - m) / (m * (m - 1))
        - 2 * kernel[:n, n:].mean()
    )


def vector_quantised(model: VQVAE, x: Examples, commitment: float = 0.25) -> Loss:
    r"""$|x - D(e)|^2 + |\mathrm{sg}[E(x)] - e|^2 + \beta |E(x) - \mathrm{sg}[e]|^2$.

    Each square is summed over the entries of an example. With a codebook of moving averages the
    middle term is omitted.

    References: `vandenoord2017` Eq. (3).
    """
    z = model.encoder(x)
    e, _ = model.quantise(z)
    shown = model.decoder(z + (e - z).detach())
    loss = (shown - x).square().flatten(1).sum(1).mean()
    loss = loss + commitment * F.mse_loss(z, e.detach(), reduction="sum") / len(x)
    if model.codebook.decay is None:
        loss = loss + F.mse_loss(e, z.detach(), reduction="sum") / len(x)
    return loss


def quantised_bound(
    model: GenerativeVQVAE,
    x: Shaped[Tensor, "n *event"],
    noise: Float[Tensor, "n *event"],
    rng: "torch.Generator | Int[Tensor, ' K']",
    commitment: float = 0.25,
    blur: float = 0.0,
) -> Loss:
    r"""$-\log p(x | D(e)) + \beta |E(x) - \mathrm{sg}[e]|^2 - \log p(\mathrm{sg}[k])$ in nats.

    The sum of the losses of the autoencoder and the prior. Codes have no gradient, so each part
    learns as it would alone. With a codebook of moving averages the call also updates the vectors
    once. Noise on the encoder input regularises the code and shows the prior further codes.

    Args:
        model: The autoencoder with its prior.
        x: Examples.
        noise: Standard normal noise in the shape of x.
        rng: Generator of the reset of unused codes, or row numbers; see `Codebook.update`.
        commitment: $\beta$.
        blur: Standard deviation of the noise on the encoder input, in units of x.

    References: `vandenoord2017` Eq. (3), with the decoder's log likelihood for the first term.
    """
    book = model.vqvae.codebook
    z = model.vqvae.encoder(model.seen(x + blur * noise if blur else x))
    e, code = model.vqvae.quantise(z)
    numbers = model.vqvae.decoder(z + (e - z).detach())
    loss = -(model.likelihood.log_prob(numbers, x) + model.log_prior(code)).mean()
    loss = loss + commitment * F.mse_loss(z, e.detach(), reduction="sum") / len(x)
    if book.decay is None:
        loss = loss + F.mse_loss(e, z.detach(), reduction="sum") / len(x)
    elif model.training:
        book.update(z.detach().permute(0, 2, 3, 1).flatten(0, 2), code.flatten(), rng)
    return loss
