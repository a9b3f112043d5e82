"""Vector-quantised autoencoders: a code of integers.

Shapes: n examples, K code vectors, d their size, p positions of the code, "h w" its grid.
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.autoencoders.encoders import Down, Up
from allometry.models.quantisation import nearest


@final
class Codebook(nn.Module):
    """K code vectors of size d, learnt by running means or by gradient.

    With a decay the codebook is not a parameter: each vector is the exponential moving average of
    the encoder outputs assigned to it. A rarely used vector is reset to an output of the last
    batch.

    Args:
        K: Number of code vectors.
        size: d.
        decay: Decay of the moving averages; `None` for learning by gradient.
        revive: Fraction of uniform use below which a vector is reset; 0 means never.
        rng: Generator of the initial vectors; default: seed 0.

    References: `vandenoord2017` section 3.2 and appendix A.1; `dhariwal2020` for revival.
    """

    used: Tensor
    sums: Tensor

    def __init__(
        self,
        K: int,
        size: int,
        decay: float | None = 0.99,
        revive: float = 0.1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(K >= 2, "Codebook.K", "be at least 2", K)
        require(decay is None or 0 < decay < 1, "Codebook.decay", "be between 0 and 1", decay)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.K, self.decay, self.revive = K, decay, revive
        vectors = torch.randn(K, size, generator=rng)
        self.vectors = nn.Parameter(vectors, requires_grad=decay is None)
        self.register_buffer("used", torch.ones(K))
        self.register_buffer("sums", vectors.clone())

    def find(self, x: Float[Tensor, "m d"]) -> Int[Tensor, " m"]:
        """The nearest vector of each row."""
        return nearest(x, self.vectors)[0]

    @torch.no_grad()
    def place(self, x: Float[Tensor, "m d"]) -> None:
        """Initialise at encoder outputs, evenly spaced among those given."""
        require(len(x) >= self.K, "Codebook.place", f"have at least {self.K} rows", len(x))
        rows = x[torch.linspace(0, len(x) - 1, self.K).round().long()]
        self.vectors.copy_(rows)
        self.sums.copy_(rows * self.used[:, None])

    @torch.no_grad()
    def update(
        self,
        x: Float[Tensor, "m d"],
        code: Int[Tensor, " m"],
        rng: "torch.Generator | Int[Tensor, ' K']",
    ) -> None:
        """Update after a batch: moving averages, and reset of unused vectors.

        Args:
            x: Encoder outputs.
            code: The index of the vector of each.
            rng: Generator of the rows to which unused vectors are reset; or K row numbers, of
                which the first are used, so that a GPU need not wait for their number.
        """
        count = torch.zeros_like(self.used).index_add(0, code, torch.ones_like(x[:, 0]))
        decay = 0.99 if self.decay is None else self.decay
        self.used.mul_(decay).add_((1 - decay) * count)
        if self.decay is not None:
            total = torch.zeros_like(self.sums).index_add(0, code, x)
            self.sums.mul_(decay).add_((1 - decay) * total)
            self.vectors.copy_(self.sums / self.used.clamp(min=1e-5)[:, None])
        dead = self.used < self.revive * self.used.sum() / self.K
        if self.revive and isinstance(rng, Tensor):
            even = self.used.sum() / self.K
            new = x[rng[(dead.cumsum(0) - 1).clamp(min=0)]]
            self.vectors.copy_(torch.where(dead[:, None], new, self.vectors))
            self.sums.copy_(torch.where(dead[:, None], new * even, self.sums))
            self.used.copy_(torch.where(dead, even, self.used))
        elif self.revive and isinstance(rng, torch.Generator) and bool(dead.any()):
            rows = torch.randint(len(x), (int(dead.sum()),), generator=rng)
            self.vectors.data[dead] = x[rows]
            even = self.used.sum() / self.K
            self.used[dead], self.sums[dead] = even, x[rows] * even


@final
class VQVAE(nn.Module):
    r"""An autoencoder whose code is a grid of integers below K.

    The input of the decoder is $e = e_{k}$, $k = \arg\min_j |E(x) - e_j|$, with straight-through
    gradients to the encoder. Its loss is `train.autoencoder_objectives.vector_quantised`.

    Args:
        encoder: Maps images to a grid (n, d, h, w).
        decoder: Maps such a grid to images.
        codebook: Code vectors of size d.

    References: `vandenoord2017`.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, codebook: Codebook) -> None:
        super().__init__()
        self.encoder, self.decoder, self.codebook = encoder, decoder, codebook

    def encode(self, x: Float[Tensor, "n *event"]) -> Int[Tensor, "n h w"]:
        """The integers."""
        return self.quantise(self.encoder(x))[1]

    def quantise(
        self, z: Float[Tensor, "n d h w"]
    ) -> tuple[Float[Tensor, "n d h w"], Int[Tensor, "n h w"]]:
        """The nearest code vectors and their indices."""
        n, d, h, w = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, d)
        code = self.codebook.find(flat)
        vectors = self.codebook.vectors[code].view(n, h, w, d).permute(0, 3, 1, 2)
        return vectors, code.view(n, h, w)

    def decode(self, code: Int[Tensor, "n h w"]) -> Float[Tensor, "n *event"]:
        """The images of code indices."""
        return self.decoder(self.codebook.vectors[code].permute(0, 3, 1, 2))

    def forward(self, x: Float[Tensor, "n *event"]) -> Float[Tensor, "n *event"]:
        """The reconstruction, with straight-through gradients."""
        z = self.encoder(x)
        e, _ = self.quantise(z)
        return self.decoder(z + (e - z).detach())


def convolutional_vqvae(
    shape: Sequence[int],
    K: int = 64,
    size: int = 16,
    width: int = 64,
    halvings: int = 1,
    decay: float | None = 0.99,
    revive: float = 0.1,
    rng: torch.Generator | None = None,
) -> VQVAE:
    """A convolutional VQ-VAE of images."""
    c, h, w = shape
    fine = h % 2**halvings == 0 and w % 2**halvings == 0
    require(fine, "convolutional_vqvae.shape", f"halve {halvings} times", tuple(shape))
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    book = Codebook(K, size, decay, revive, rng)
    return VQVAE(Down(c, size, width, halvings, rng), Up(size, c, width, halvings, rng), book)


def perplexity(code: Int[Tensor, "*n"], K: int) -> float:
    r"""Perplexity $e^H$ of the code usage: between 1 and K."""
    p = torch.bincount(code.flatten(), minlength=K).double()
    p = p / p.sum()
    return float(torch.special.entr(p).sum().exp())
