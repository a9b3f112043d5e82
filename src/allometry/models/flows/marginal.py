"""Marginal transform: a separate CDF for every coordinate.

Shapes: n points, d dimensions, K bins.
"""

import math
from typing import final

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.flows.transform import Context, Event, LogDet, Transform


@final
class Marginal(Transform):
    r"""$z_i = \Phi^{-1}(F_i(x_i))$ with $F_i$ a learnt piecewise linear CDF on [low, high].

    `initialise` sets the bin masses to the smoothed histograms of a first batch, so that couplings
    only have to learn the dependence between coordinates. Outside [low, high] the map has normal
    tails of tiny mass, so that no point has density 0.

    Args:
        shape: Shape of a point; one CDF for each entry.
        bins: K.
        low: Lower end of the bins.
        high: Upper end of the bins.
        smoothing: Constant added to the counts.

    References: `chen2000`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        bins: int = 17,
        low: float = 0.0,
        high: float = 1.0,
        smoothing: float = 1.0,
    ) -> None:
        super().__init__()
        require(bins >= 1, "Marginal.bins", "be at least 1", bins)
        require(high > low, "Marginal.high", f"be above low ({low})", high)
        self.shape, self.bins, self.low, self.high = tuple(shape), bins, low, high
        self.smoothing = smoothing
        self.logits = nn.Parameter(torch.zeros(*shape, bins))

    EDGE = 1e-6
    """Mass below low, and above high."""

    @torch.no_grad()
    def initialise(self, x: Event, context: Context = None) -> None:
        """The logs of smoothed counts."""
        place = ((x - self.low) / (self.high - self.low) * self.bins).long()
        hits = torch.nn.functional.one_hot(place.clamp(0, self.bins - 1), self.bins)
        self.logits.copy_((hits.sum(0) + self.smoothing).to(self.logits.dtype).log())

    def _table(self) -> Float[Tensor, "*event 3 K"]:
        """Mass of each bin, mass to its left, mass to its right."""
        shares = (1 - 2 * self.EDGE) * self.logits.softmax(-1)
        left = self.EDGE + shares.cumsum(-1) - shares
        right = self.EDGE + shares.flip(-1).cumsum(-1).flip(-1) - shares
        return torch.stack([shares, left.clamp(min=self.EDGE), right.clamp(min=self.EDGE)], -2)

    def _pick(self, n: int, index: Tensor) -> tuple[Tensor, ...]:
        """The table entry at the bin of each value."""
        table = self._table()
        index = index.unsqueeze(-2).expand(n, *self.shape, 3, 1)
        return table.expand(n, *table.shape).gather(-1, index).squeeze(-1).unbind(-1)

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """The CDF, then the normal quantile function."""
        log_bin = math.log(self.bins / (self.high - self.low))
        u = (x - self.low) * math.exp(log_bin)
        held = u.clamp(0, self.bins)
        k = held.detach().floor().clamp(max=self.bins - 1)
        share, left, right = self._pick(len(x), k.long().unsqueeze(-1))
        # Use the smaller tail: 1 - p near 1 would lose precision.
        below, above = left + share * (held - k), right + share * (1 + k - held)
        z = torch.where(
            below <= above,
            torch.special.ndtri(below.clamp(max=0.6)),
            -torch.special.ndtri(above.clamp(max=0.6)),
        )
        log_slope = share.log() + log_bin + 0.5 * z.square() + 0.5 * math.log(2 * math.pi)
        # Beyond the ends the map is linear, with slope 1 in units of a bin.
        beyond = u - held
        return z + beyond, torch.where(beyond == 0, log_slope, log_bin).flatten(1).sum(1)

    def inverse(self, z: Event, context: Context = None) -> Event:
        """The normal CDF, then the quantile function."""
        edge = -float(special.ndtri(self.EDGE))
        held = z.clamp(-edge, edge)
        below, above = (0.5 * torch.erfc(side / math.sqrt(2)) for side in (-held, held))
        table, lower = self._table(), held <= 0
        by_left = (below.unsqueeze(-1) >= table[..., 1, 1:]).sum(-1)
        by_right = (above.unsqueeze(-1) < table[..., 2, :-1]).sum(-1)
        index = torch.where(lower, by_left, by_right)
        share, left, right = self._pick(len(z), index.unsqueeze(-1))
        within = torch.where(lower, (below - left) / share, 1 - (above - right) / share)
        u = index + within.clamp(0, 1) + (z - held)
        return self.low + u * ((self.high - self.low) / self.bins)
