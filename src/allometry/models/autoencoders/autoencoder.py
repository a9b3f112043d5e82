"""Autoencoders: an encoder, a code, and the reconstruction from it.

Shapes: n examples, k size of the code.
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.autoencoders.encoders import Dense, Down, Up


@final
class Autoencoder(nn.Module):
    """An encoder and a decoder; the objective makes it sparse, denoising or contractive.

    Args:
        encoder: Maps examples to codes.
        decoder: Maps codes to examples.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, x: Float[Tensor, "n *event"]) -> Float[Tensor, "n *code"]:
        """The codes."""
        return self.encoder(x)

    def decode(self, z: Float[Tensor, "n *code"]) -> Float[Tensor, "n *event"]:
        """The examples of codes."""
        return self.decoder(z)

    def forward(self, x: Float[Tensor, "n *event"]) -> Float[Tensor, "n *event"]:
        """The reconstruction."""
        return self.decoder(self.encoder(x))


def linear(dim: int, code: int, rng: torch.Generator | None = None) -> Autoencoder:
    """Linear encoder and decoder: with squared error the optimum is the principal subspace.

    References: `baldi1989`.
    """
    require(1 <= code <= dim, "linear.code", f"be 1 to {dim}", code)
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    return Autoencoder(Dense((dim,), (code,), rng=rng), Dense((code,), (dim,), rng=rng))


def deep(
    shape: Sequence[int],
    code: int,
    hidden: Sequence[int] = (128, 64),
    rng: torch.Generator | None = None,
) -> Autoencoder:
    """Dense encoder and decoder with hidden layers in opposite order."""
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    encoder = Dense(shape, (code,), hidden, rng)
    return Autoencoder(encoder, Dense((code,), shape, list(hidden)[::-1], rng))


def convolutional(
    shape: Sequence[int],
    code: int,
    width: int = 32,
    halvings: int = 1,
    rng: torch.Generator | None = None,
) -> Autoencoder:
    """Convolutional: images to a grid of `code` channels, halved in height and width, and back."""
    c, h, w = shape
    fine = h % 2**halvings == 0 and w % 2**halvings == 0
    require(fine, "convolutional.shape", f"halve {halvings} times", tuple(shape))
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    return Autoencoder(Down(c, code, width, halvings, rng), Up(code, c, width, halvings, rng))
