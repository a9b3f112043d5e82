"""A generative VQ-VAE: a learned prior over its codes.

Shapes: n examples, K code vectors, "h w" the grid of the code.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.autoencoders.likelihoods import DiscretisedLogistic, Likelihood
from allometry.models.autoencoders.vqvae import VQVAE, convolutional_vqvae
from allometry.models.transformer.model import Transformer

Data = Shaped[Tensor, "n *event"]
Codes = Int[Tensor, "n h w"]
Each = Float[Tensor, " n"]


@final
class GenerativeVQVAE(nn.Module):
    r"""$\log p(x) \ge \log p(x | D(e_k)) + \log p(k)$ with k the code of x.

    The posterior is deterministic, so its entropy is 0 and the KL divergence to the prior is
    $-\log p(k)$. The prior is any autoregressive model of integers: the grid is read in raster
    order after a start token K. Its loss is `train.autoencoder_objectives.quantised_bound`.

    Args:
        vqvae: Encoder, codebook and decoder.
        prior: Maps tokens (n, t) of K + 1 values to logits (n, t, K).
        likelihood: p(x | decoder output), with one decoder output per entry.
        shape: Shape of an example.
        grid: h and w.
        scale: Inputs of the encoder are divided by this.

    References: `vandenoord2017` sections 3.1, 3.3.
    """

    def __init__(
        self,
        vqvae: VQVAE,
        prior: nn.Module,
        likelihood: Likelihood,
        shape: Sequence[int],
        grid: Sequence[int],
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        require(
            likelihood.each == 1, "likelihood", "have one parameter per entry", likelihood.each
        )
        self.vqvae, self.prior, self.likelihood = vqvae, prior, likelihood
        self.shape, self.grid, self.scale = tuple(shape), tuple(grid), scale

    @property
    def K(self) -> int:
        """Number of code vectors."""
        return self.vqvae.codebook.K

    def seen(self, x: Data) -> Float[Tensor, "n *event"]:
        """The scaled input of the encoder."""
        return x.to(self.vqvae.codebook.vectors.dtype) / self.scale

    def encode(self, x: Data) -> Codes:
        """The codes."""
        return self.vqvae.encode(self.seen(x))

    def decode(self, code: Codes) -> Float[Tensor, "n *event"]:
        """The mean example of each code."""
        return self.likelihood.mean(self.vqvae.decode(code))

    def log_prior(self, code: Codes) -> Each:
        """The log probability of each code grid, in nats."""
        flat = code.flatten(1)
        start = torch.full((len(flat), 1), self.K, device=flat.device)
        logits = self.prior(torch.cat([start, flat[:, :-1]], 1))
        return logits.log_softmax(-1).gather(-1, flat.unsqueeze(-1)).sum((1, 2))

    def log_prob(self, x: Data, noise: Tensor | None = None) -> Each:
        """The lower bound on the log probability, which is deterministic.

        Args:
            x: Examples.
            noise: Not used; other models need it.
        """
        code = self.encode(x)
        return self.likelihood.log_prob(self.vqvae.decode(code), x) + self.log_prior(code)

    def draw_noise(self, shape: torch.Size, rng: torch.Generator) -> Tensor:
        """Standard normal noise in the shape of examples, which training adds to them."""
        return torch.randn(shape, generator=rng)

    def initialise(self, x: Data) -> None:
        """Initialise the code vectors at the encoder outputs of a first batch."""
        with torch.no_grad():
            z = self.vqvae.encoder(self.seen(x))
            self.vqvae.codebook.place(z.permute(0, 2, 3, 1).flatten(0, 2))

    @torch.no_grad()
    def interpolate(self, x: Data, steps: int = 9) -> Float[Tensor, "v *event"]:
        """Examples between the first two, linear in the encoder output before quantisation."""
        z = self.vqvae.encoder(self.seen(x[:2]))
        t = torch.linspace(0, 1, steps, dtype=z.dtype, device=z.device).view(-1, 1, 1, 1)
        return self.decode(self.vqvae.quantise((1 - t) * z[:1] + t * z[1:])[1])

    @torch.no_grad()
    def sample_codes(
        self, n: int, *, temperature: float = 1.0, rng: torch.Generator | None = None
    ) -> Codes:
        """`n` code grids from the prior, one position at a time."""
        require(n >= 1, "sample.n", "be at least 1", n)
        require(temperature > 0, "sample.temperature", "be positive", temperature)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        tokens = torch.full((n, 1), self.K, device=self.vqvae.codebook.vectors.device)
        for _ in range(math.prod(self.grid)):
            p = (self.prior(tokens)[:, -1] / temperature).softmax(-1)
            drawn = torch.multinomial(p.to(rng.device), 1, generator=rng)
            tokens = torch.cat([tokens, drawn.to(p.device)], 1)
        return tokens[:, 1:].view(n, *self.grid)

    @torch.no_grad()
    def sample(
        self, n: int, *, temperature: float = 1.0, rng: torch.Generator | None = None
    ) -> Data:
        """`n` examples: codes from the prior, then a draw from the likelihood."""
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        code = self.sample_codes(n, temperature=temperature, rng=rng)
        return self.likelihood.sample(self.vqvae.decode(code), rng)


def generative_vqvae(
    shape: Sequence[int],
    levels: int,
    K: int = 64,
    size: int = 16,
    width: int = 32,
    halvings: int = 1,
    prior_width: int = 64,
    depth: int = 2,
    rng: torch.Generator | None = None,
) -> GenerativeVQVAE:
    """A convolutional VQ-VAE with a transformer prior, for images of integer values.

    Args:
        shape: Shape of an image (channels, height, width).
        levels: Number of values of a pixel, with a discretised logistic likelihood.
        K: Number of code vectors.
        size: Size of a code vector.
        width: Channels of the convolutions.
        halvings: How often height and width are halved.
        prior_width: Width of the transformer.
        depth: Blocks of the transformer.
        rng: Generator of the initial weights; default: seed 0.
    """
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    body = convolutional_vqvae(shape, K, size, width, halvings, rng=rng)
    grid = [side // 2**halvings for side in shape[1:]]
    prior = Transformer(
        vocabulary=K + 1,
        outputs=K,
        width=prior_width,
        depth=depth,
        heads=4,
        head_size=max(4, prior_width // 4),
        context=math.prod(grid),
        rng=rng,
    )
    return GenerativeVQVAE(
        body, prior, DiscretisedLogistic(levels), shape, grid, scale=float(levels - 1)
    )
