"""Variational autoencoders, and bounds on their likelihood.

Shapes: n examples, k size of the code, s samples of a code.
"""

import itertools
import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributions, nn

from allometry._core.errors import require
from allometry.models.autoencoders.encoders import Dense
from allometry.models.autoencoders.likelihoods import Likelihood
from allometry.models.graphical import Directed, Node

Data = Shaped[Tensor, "n *event"]
Codes = Float[Tensor, "n k"]
Each = Float[Tensor, " n"]
LOG_2PI = math.log(2 * math.pi)


@final
class VAE(nn.Module):
    r"""$p(x) = \int p(x | z)\,\mathcal N(z; 0, I)\,dz$ with $q(z|x)$ a Gaussian for each example.

    Args:
        encoder: Maps examples (as floats) to 2k numbers: means, then log variances.
        decoder: Maps codes to the parameters of the likelihood.
        likelihood: p(x | decoder output).
        code: k.
        shape: Shape of an example, if needed.
        scale: Inputs of the encoder are divided by this.

    References: `kingma2014`; `rezende2014`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        likelihood: Likelihood,
        code: int,
        shape: Sequence[int] = (),
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        require(code >= 1, "VAE.code", "be at least 1", code)
        self.encoder, self.decoder, self.likelihood = encoder, decoder, likelihood
        self.code, self.shape, self.scale = code, tuple(shape), scale

    def posterior(self, x: Data) -> tuple[Codes, Codes]:
        """Means and log variances of q(z | x)."""
        mean, log_var = self.encoder(x.to(self._dtype) / self.scale).chunk(2, 1)
        # Bounds that no trained encoder reaches, so that a bad first step cannot overflow.
        return mean, log_var.clamp(-20, 10)

    def encoder_law(self, x: Data) -> distributions.Distribution:
        """q(z | x) as a torch distribution."""
        mean, log_var = self.posterior(x)
        return distributions.Independent(distributions.Normal(mean, (0.5 * log_var).exp()), 1)

    def decoder_law(self, z: Codes) -> distributions.Distribution:
        """p(x | z) as a torch distribution."""
        return self.likelihood.law(self.decoder(z))

    def directed(self) -> Directed:
        """The generative model as a directed graphical model: z, and x given z, N times."""
        zero = torch.zeros(self.code, dtype=self._dtype)
        prior = distributions.Independent(distributions.Normal(zero, zero + 1), 1)
        z = Node("z", lambda: prior, plate="N")
        return Directed([z, Node("x", lambda z: self.decoder_law(z), ("z",), "N", observed=True)])

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.encoder.parameters()).dtype

    def log_likelihood(self, x: Data, z: Codes) -> Each:
        """The log of p(x | z)."""
        return self.likelihood.log_prob(self.decoder(z), x)

    def elbo_terms(self, x: Data, noise: Codes) -> tuple[Each, Each]:
        r"""`(log p(x | z), KL(q(z|x) || p(z)))` at $z = \mu + \sigma \epsilon$; their difference
        is the ELBO.

        Args:
            x: Examples.
            noise: Standard normal noise, one row for each example.
        """  # noqa: D205
        mean, log_var = self.posterior(x)
        z = mean + (0.5 * log_var).exp() * noise
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)
        return self.log_likelihood(x, z), kl

    def log_prob(self, x: Data, noise: Codes | None = None) -> Each:
        """One draw of the ELBO, a lower bound on the log likelihood.

        Args:
            x: Examples.
            noise: As for `elbo_terms`; by default drawn with seed 0, so that the result is
                reproducible.
        """
        if noise is None:
            noise = self.draw_noise(x.shape, torch.Generator().manual_seed(0))
            noise = noise.to(x.device, self._dtype)
        fit, kl = self.elbo_terms(x, noise)
        return fit - kl

    def draw_noise(self, shape: torch.Size, rng: torch.Generator) -> Codes:
        """The `noise` of `log_prob`, for examples of this shape (n first)."""
        return torch.randn(shape[0], self.code, generator=rng)

    def initialise(self, x: Data) -> None:
        """Does nothing: no parameter depends on a first batch."""

    def log_weights(self, x: Data, noise: Float[Tensor, "s n k"]) -> Float[Tensor, "s n"]:
        """The log of p(x, z) / q(z | x) at s draws of z."""
        mean, log_var = self.posterior(x)
        sd = (0.5 * log_var).exp()
        weights = []
        for epsilon in noise:
            z = mean + sd * epsilon
            log_q = -0.5 * (epsilon.square() + log_var + LOG_2PI).sum(1)
            weights.append(self.log_likelihood(x, z) + _standard(z) - log_q)
        return torch.stack(weights)

    def iwae(self, x: Data, noise: Float[Tensor, "s n k"]) -> Each:
        r"""$\log \frac1s \sum_i w_i$: the ELBO for one sample, log p(x) in the limit.

        References: `burda2016` Eq. (8).
        """
        return self.log_weights(x, noise).logsumexp(0) - math.log(len(noise))

    @torch.no_grad()
    def sample(self, n: int, *, rng: torch.Generator | None = None) -> Data:
        """`n` examples from the prior through the decoder."""
        require(n >= 1, "sample.n", "be at least 1", n)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        z = torch.randn(n, self.code, generator=rng, dtype=self._dtype)
        device = next(self.decoder.parameters()).device
        return self.likelihood.sample(self.decoder(z.to(device)), rng)

    @torch.no_grad()
    def traverse(self, x: Data, unit: int, values: Sequence[float]) -> Float[Tensor, "v *event"]:
        """Latent traversal: the first example decoded as one latent unit varies."""
        mean, _ = self.posterior(x[:1])
        codes = mean.repeat(len(values), 1)
        codes[:, unit] = torch.tensor(list(values), dtype=codes.dtype).to(codes.device)
        return self.likelihood.mean(self.decoder(codes))

    @torch.no_grad()
    def interpolate(self, x: Data, steps: int = 9) -> Float[Tensor, "v *event"]:
        """Examples between the first two, linear in the latent space."""
        mean, _ = self.posterior(x[:2])
        t = torch.linspace(0, 1, steps, dtype=mean.dtype, device=mean.device)[:, None]
        return self.likelihood.mean(self.decoder((1 - t) * mean[:1] + t * mean[1:]))


def _standard(z: Tensor) -> Tensor:
    return -0.5 * (z.square() + LOG_2PI).sum(-1)


def dense_vae(
    shape: Sequence[int],
    code: int,
    likelihood: Likelihood,
    hidden: Sequence[int] = (128, 64),
    rng: torch.Generator | None = None,
    scale: float = 1.0,
) -> VAE:
    """A VAE of dense networks; the decoder mirrors the encoder.

    Without hidden layers it is linear: with a Gaussian likelihood, probabilistic PCA.
    """
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    out = (*shape, likelihood.each) if likelihood.each > 1 else tuple(shape)
    encoder = Dense(shape, (2 * code,), hidden, rng)
    decoder = Dense((code,), out, list(hidden)[::-1], rng)
    return VAE(encoder, decoder, likelihood, code, shape, scale)


@torch.no_grad()
def annealed_importance(
    model: VAE,
    x: Data,
    *,
    chains: int = 16,
    temperatures: int = 200,
    leaps: int = 5,
    step: float = 0.1,
    rng: torch.Generator | None = None,
) -> Each:
    r"""Annealed importance sampling: a lower bound on log p(x) in expectation.

    Chains go from the prior to the posterior through $p(z)\,p(x|z)^{\beta_t}$, with one
    Hamiltonian step per temperature whose size adapts to its acceptance. Returns
    $\log \frac1s \sum e^{w}$ over the chains with
    $w = \sum_t (\beta_t - \beta_{t-1}) \log p(x | z_{t-1})$; tight for many temperatures.

    Args:
        model: The VAE.
        x: Examples.
        chains: Chains per example.
        temperatures: Number of temperatures from 0 to 1, denser near both ends.
        leaps: Leapfrog steps per Hamiltonian step.
        step: Initial leapfrog step size.
        rng: Random generator; default: seed 0.

    References: `neal2001`; `wu2017` section 3.
    """
    require(chains >= 1, "annealed_importance.chains", "be at least 1", chains)
    require(temperatures >= 1, "annealed_importance.temperatures", "be at least 1", temperatures)
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    n, dtype = len(x), next(model.parameters()).dtype
    many = x.repeat(chains, *[1] * (x.ndim - 1))
    z = torch.randn(n * chains, model.code, generator=rng, dtype=dtype)
    ramp = torch.linspace(-4, 4, temperatures + 1, dtype=dtype).sigmoid()
    betas = ((ramp - ramp[0]) / (ramp[-1] - ramp[0])).tolist()
    weight = torch.zeros(n * chains, dtype=dtype)
    size = torch.full((n * chains, 1), step, dtype=dtype)

    def energy(z: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            fit = model.log_likelihood(many, z)
            total = _standard(z) + beta * fit
            (slope,) = torch.autograd.grad(total.sum(), z)
        return total.detach(), slope, fit.detach()

    fit = model.log_likelihood(many, z)
    for last, beta in itertools.pairwise(betas):
        weight = weight + (beta - last) * fit
        total, slope, fit = energy(z, beta)
        v = torch.randn(z.shape, generator=rng, dtype=dtype)
        start = total - 0.5 * v.square().sum(1)
        new, g, fit_new = z, slope, fit
        for _ in range(leaps):
            v = v + 0.5 * size * g
            new = new + size * v
            total, g, fit_new = energy(new, beta)
            v = v + 0.5 * size * g
        change = total - 0.5 * v.square().sum(1) - start
        take = torch.rand(len(z), generator=rng, dtype=dtype).log() < change
        z = torch.where(take[:, None], new, z)
        fit = torch.where(take, fit_new, fit)
        # The step size adapts slowly to the acceptance rate over all chains and examples.
        share = take.to(dtype).mean().item()
        size = size * (1.02 if share > 0.65 else 0.98)
    return weight.view(chains, n).logsumexp(0) - math.log(chains)
