"""What autoencoders minimise. Letters: n examples, k size of the code.

Noise comes in as an argument, so that a step is a function of its numbers: it can be repeated,
resumed and packed.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
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
    r"""$|x - D(E(x + \text{noise}))|^2$: what was there before the noise.

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

    The Jacobian is torch's own at every example, a row of the code at a time.

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
    """The importance-weighted bound with a draw of z for each leading row of the noise.

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
    D(q(z) \| p(z))$ with D the squared MMD between the batch's codes and draws of the prior, or
    another divergence that can tell from samples.

    $\alpha = 0, \lambda = 1$ is the VAE; $\lambda = 1 - \alpha = \beta$ the beta-VAE; $\alpha = 1$
    the MMD-VAE, which is a Wasserstein autoencoder.

    Args:
        model: The VAE.
        x: Examples.
        noise: Of the reparameterisation.
        prior: Standard normal draws, as many as examples.
        alpha: As above.
        lambda_: As above.
        divergence: From codes and draws of the prior to D; `mmd` if not given, `adversarial` with
            a critic for the other form in the paper.

    References: `zhao2019` Eq. (6); `tolstikhin2018`.
    """  # noqa: D205
    mean, log_var = model.posterior(x)
    z = mean + (0.5 * log_var).exp() * noise
    kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)
    loss = ((1 - alpha) * kl - model.log_likelihood(x, z)).mean()
    weight = alpha + lambda_ - 1
    return loss + weight * (divergence or mmd)(z, prior) if weight else loss


def adversarial(critic: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    r"""$D(q(z) \| p(z))$ by a critic's log ratio: $\mathbb E_{q(z)} T(z)$.

    At the optimum of `critic_loss` $T = \log q(z) / p(z)$, and D is the KL divergence.

    Args:
        critic: From codes (n, k) to one number each.

    References: `zhao2019`; `makhzani2016`.
    """
    return lambda z, prior: critic(z).mean()


def critic_loss(critic: nn.Module, z: Float[Tensor, "n k"], prior: Float[Tensor, "m k"]) -> Loss:
    """What the critic of `adversarial` minimises: telling codes from draws of the prior.

    Args:
        critic: From codes to one number each.
        z: Codes; no gradient goes to them.
        prior: Draws of the prior.
    """
    codes, drawn = critic(z.detach()), critic(prior)
    return F.softplus(-codes).mean() + F.softplus(drawn).mean()


def mmd(z: Float[Tensor, "n k"], prior: Float[Tensor, "m k"]) -> Loss:
    r"""Squared maximum mean discrepancy, unbiased, kernel $c / (c + |z - z'|^2)$ with c = 2k.

    References: `gretton2012` Eq. (3); `tolstikhin2018` for the kernel.
    """
    n, m = len(z), len(prior)
    require(min(n, m) >= 2, "mmd", "be given at least 2 of each", (n, m))
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

    Each square is summed over an example's entries. Where the codebook follows running means, the
    middle term is left out: it has nothing to move.

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
    rng: torch.Generator,
    commitment: float = 0.25,
    blur: float = 0.0,
) -> Loss:
    r"""$-\log p(x | D(e)) + \beta |E(x) - \mathrm{sg}[e]|^2 - \log p(\mathrm{sg}[k])$ in nats.

    The autoencoder's loss and the prior's in one: codes pass no gradient from the prior, so each
    learns as it would alone, the prior on codes that move less and less. With a codebook of
    running means the call also moves the vectors, once. A blurred example must still be told
    from its code, and shows the prior codes that its sharp one never has.

    Args:
        model: The autoencoder with its prior.
        x: Examples.
        noise: Standard normal, in their shape.
        rng: Which outputs dead codes are put at.
        commitment: $\beta$.
        blur: How much of the noise is added to what the encoder sees, in the examples' unit.

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
        book.follow(z.detach().permute(0, 2, 3, 1).flatten(0, 2), code.flatten(), rng)
    return loss
