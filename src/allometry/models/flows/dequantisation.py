"""Uniform and variational dequantisation: flows on integer data.

Shapes: n images, "*event" shape of one.
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.flows.flow import Flow
from allometry.models.flows.transform import Event, LogDet

Levels = Int[Tensor, "n *event"]


@final
class Dequantised(nn.Module):
    r"""A distribution on integers 0 ... L - 1 from a flow on [0, 1).

    $\log P(x) \ge \mathbb E_{q(u|x)} [\log p((x + u) / L) - \log q(u | x)] - d \log L$. With q
    uniform on the unit cube this is uniform dequantisation; with a second flow for q (conditioned
    on x, mapped to the cube by a sigmoid) it is variational and the bound is tighter.

    Args:
        flow: p.
        levels: L.
        noise: q: a flow of dimension d with a context of size d; `None` means uniform.

    References: `theis2016` section 3.1; `ho2019` section 3.1.
    """

    def __init__(self, flow: Flow, levels: int, noise: Flow | None = None) -> None:
        super().__init__()
        require(levels >= 2, "Dequantised.levels", "be at least 2", levels)
        self.flow, self.levels, self.noise = flow, levels, noise
        self.shape = flow.shape

    @property
    def dim(self) -> int:
        """Number of entries of an image."""
        return self.flow.dim

    def log_prob(self, x: Levels, u: Event | None = None) -> LogDet:
        """One draw of the bound, in nats.

        Args:
            x: Integers.
            u: Dequantisation noise in the shape of x: uniform in [0, 1) or, with a learnt q,
                standard normal. By default drawn with seed 0, so that the result is reproducible.
        """
        dtype = next(self.flow.parameters()).dtype
        if u is None:
            u = self.draw_noise(x.shape, torch.Generator().manual_seed(0)).to(x.device, dtype)
        constant = self.dim * math.log(self.levels)
        if self.noise is None:
            return self.flow.log_prob((x + u) / self.levels) - constant
        context = x.flatten(1).to(dtype) / self.levels - 0.5
        epsilon = u.flatten(1)
        raw, log_q = self._draw(epsilon, context)
        filled = (x + torch.sigmoid(raw).view(x.shape)) / self.levels
        return self.flow.log_prob(filled) - log_q - constant

    def _draw(self, epsilon: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Noise before the sigmoid, and the log density of the noise after it."""
        assert self.noise is not None
        # The noise flow is used in the sampling direction, so its forward map is differentiated.
        raw, logdet = self.noise(epsilon, context)
        normal = -0.5 * epsilon.square() - 0.5 * math.log(2 * math.pi)
        slope = nn.functional.logsigmoid(raw) + nn.functional.logsigmoid(-raw)
        return raw, normal.sum(1) - logdet - slope.sum(1)

    def draw_noise(self, shape: torch.Size, rng: torch.Generator) -> Float[Tensor, "n *event"]:
        """The noise `u` of `log_prob`."""
        draw = torch.rand if self.noise is None else torch.randn
        return draw(shape, generator=rng)

    @torch.no_grad()
    def initialise(self, x: Levels) -> None:
        """Initialise the flow from a first batch."""
        u = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x.device)
        self.flow.initialise((x + u.to(next(self.flow.parameters()).dtype)) / self.levels)

    @torch.no_grad()
    def sample(
        self, n: int, *, temperature: float = 1.0, rng: torch.Generator | None = None
    ) -> Levels:
        """`n` images of integers."""
        return self.to_levels(self.flow.sample(n, temperature=temperature, rng=rng))

    def to_levels(self, drawn: Event) -> Levels:
        """Samples of the flow as integers."""
        return (drawn * self.levels).floor().clamp(0, self.levels - 1).long()
