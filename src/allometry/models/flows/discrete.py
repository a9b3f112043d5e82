"""Discrete flows: bijections of Z_K^d, without a log-determinant.

Shapes: n points, d positions, K symbols; "*event" is d, or the shape of an image of d pixels.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.flows.conditioners import MaskedMLP

Symbols = Int[Tensor, "n *event"]
OneHot = Float[Tensor, "n d K"]


@final
class ModularShift(nn.Module):
    r"""$z_i = x_i + \mu_i(x_{<i}) \bmod K$: every position shifted, conditioned on earlier ones.

    On one-hot rows this is a cyclic shift. The amount is the argmax of logits with the gradient of
    the softmax (straight-through), so the exact layer can be trained.

    Args:
        dim: d.
        K: Symbols.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        reverse: Order the positions from the last to the first.
        temperature: Temperature of the softmax in the gradient.
        rng: Generator of the initial weights; default: seed 0.

    References: `tran2019` sections 3, 4.
    """

    def __init__(
        self,
        dim: int,
        K: int,
        width: int = 64,
        depth: int = 2,
        reverse: bool = False,
        temperature: float = 0.5,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(K >= 2, "ModularShift.K", "be at least 2", K)
        self.dim, self.K, self.reverse, self.temperature = dim, K, reverse, temperature
        # A masked network over one-hot inputs: the K inputs of a position share its degree.
        self.network = MaskedMLP(dim, K, width, depth, rng=rng, each=K)
        with torch.no_grad():
            # Not 0: an argmax over equal logits would have no gradient to break the tie.
            last: nn.Linear = self.network.layers[-1]  # pyright: ignore
            if last.weight.device.type != "meta":
                # A bias towards no shift: random shifts would destroy the marginal distributions.
                last.bias.view(dim, K)[:, 0] = 1.0
                last.weight.normal_(0, 0.1, generator=rng or torch.Generator().manual_seed(1))

    def _amount(self, given: OneHot) -> OneHot:
        """The shift of each position, one-hot, with the gradient of the softmax."""
        logits = self.network(given.flatten(1))
        soft = (logits / self.temperature).softmax(-1)
        hard = torch.nn.functional.one_hot(logits.argmax(-1), self.K).to(soft.dtype)
        return hard + soft - soft.detach()

    def _turn(self, x: OneHot, amount: OneHot, sign: int) -> OneHot:
        # row[z] = sum_m amount[m] x[z - m]: a cyclic convolution, so a product of transforms.
        turns = torch.fft.rfft(amount)
        turns = turns if sign == 1 else turns.conj()
        return torch.fft.irfft(torch.fft.rfft(x) * turns, n=self.K)

    def forward(self, x: OneHot) -> OneHot:
        """Shift every position."""
        x = x.flip(1) if self.reverse else x
        z = self._turn(x, self._amount(x), 1)
        return z.flip(1) if self.reverse else z

    def inverse(self, z: OneHot) -> OneHot:
        """Undo the shifts, one position after another."""
        z = z.flip(1) if self.reverse else z
        x = z
        for _ in range(self.dim):
            x = self._turn(z, self._amount(x), -1).round()
        return x.flip(1) if self.reverse else x


@final
class DiscreteFlow(nn.Module):
    r"""$P(x) = \prod_i \pi_i(f(x)_i)$ with f a bijection of $\mathbb Z_K^d$.

    Args:
        layers: Modular shifts, from data to independent positions.
        dim: d.
        K: Symbols.
        shape: Shape of a point, if it is an image of d pixels.

    References: `tran2019` Eq. (3).
    """

    def __init__(
        self,
        layers: Sequence[ModularShift],
        dim: int,
        K: int,
        shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.shape = (dim,) if shape is None else tuple(shape)
        fits = math.prod(self.shape) == dim
        require(fits, "DiscreteFlow.shape", f"have {dim} places", self.shape)
        self.layers = nn.ModuleList(layers)
        self.dim, self.K = dim, K
        # Under a uniform distribution all shifts are equally good and symbols that share a shift
        # would stay together. A non-uniform initial distribution breaks the symmetry.
        start = torch.zeros(dim, K)
        start[:, 0] = 2.0
        self.logits = nn.Parameter(start)

    def _hot(self, x: Symbols) -> OneHot:
        return torch.nn.functional.one_hot(x.flatten(1), self.K).to(self.logits.dtype)

    @torch.no_grad()
    def initialise(self, x: Symbols) -> None:
        """Initialise the marginals with the smoothed histograms of f(x).

        Positions with nearly uniform counts (above 98 % of the maximum entropy) keep their initial
        distribution, which breaks the symmetry between shifts.
        """
        counts = self._hot(self(x).flatten(1)).sum(0) + 1
        p = counts / counts.sum(-1, keepdim=True)
        telling = -(p * p.log()).sum(-1, keepdim=True) < 0.98 * math.log(self.K)
        self.logits.copy_(torch.where(telling, p.log(), self.logits))

    def forward(self, x: Symbols) -> Symbols:
        """f(x)."""
        z = self._hot(x)
        for layer in self.layers:
            z = layer(z)
        return z.argmax(-1).view(x.shape)

    def inverse(self, z: Symbols) -> Symbols:
        """The x with f(x) = z."""
        x = self._hot(z)
        for layer in reversed(self.layers):
            x = layer.inverse(x)  # pyright: ignore[reportCallIssue]
        return x.argmax(-1).view(z.shape)

    def log_prob(self, x: Symbols) -> Float[Tensor, " n"]:
        """Log probability in nats, with straight-through gradients of the shifts."""
        z = self._hot(x)
        for layer in self.layers:
            z = layer(z)
        return (z * self.logits.log_softmax(-1)).sum((1, 2))

    @torch.no_grad()
    def sample(self, n: int, *, rng: torch.Generator | None = None) -> Symbols:
        """`n` points."""
        require(n >= 1, "sample.n", "be at least 1", n)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        p = self.logits.softmax(-1)
        z = torch.multinomial(p.to(rng.device), n, replacement=True, generator=rng).T
        return self.inverse(z.reshape(n, *self.shape).to(p.device))
