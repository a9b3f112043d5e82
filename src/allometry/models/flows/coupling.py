"""Coupling: one half of a point says how the other half is moved.

Letters: n points, d dimensions, c size of the context.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.models.flows.networks import MLP
from allometry.models.flows.spline import spline, spline_inverse, spline_parameters
from allometry.models.flows.transform import Context, LogDet, Transform

Points = Float[Tensor, "n d"]

STRETCH = 3.0
"""Bound on the log scale of one affine layer: it bends towards it smoothly."""


def _halves(dim: int, first: bool) -> tuple[int, int, bool]:
    """Sizes of the half that is seen and the half that is moved."""
    require(dim >= 2, "coupling dim", "be at least 2", dim, "A single number has no halves.")
    left = (dim + 1) // 2
    return (left, dim - left, True) if first else (dim - left, left, False)


@final
class AffineCoupling(Transform):
    r"""$z_A = x_A$, $z_B = x_B\,e^{s(x_A)} + t(x_A)$; with `scale=False` NICE's $x_B + t(x_A)$.

    Differs from the paper: $s$ is $3 \tanh(\hat s / 3)$, so that one layer stretches by $e^3$ at
    most and neither tails nor early steps overflow.

    Args:
        dim: d.
        first: Whether the first half is the one that is seen.
        width: Of the network's hidden layers.
        depth: How many.
        scale: Whether to scale besides shifting.
        context: c.
        rng: Source of the initial weights; `None` means seed 0.

    References: `dinh2017` Eqs. (4), (5); `dinh2015` section 3.
    """

    def __init__(
        self,
        dim: int,
        first: bool = True,
        width: int = 64,
        depth: int = 2,
        scale: bool = True,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.seen, self.moved, self.first = _halves(dim, first)
        self.scale = scale
        self.network = MLP(self.seen + context, self.moved * (1 + scale), width, depth, rng)

    def _parts(self, x: Points) -> tuple[Tensor, Tensor]:
        left = self.seen if self.first else self.moved
        a, b = x[:, :left], x[:, left:]
        return (a, b) if self.first else (b, a)

    def _join(self, seen: Tensor, moved: Tensor) -> Tensor:
        return torch.cat([seen, moved] if self.first else [moved, seen], 1)

    def _numbers(self, seen: Tensor, context: Context) -> tuple[Tensor | None, Tensor]:
        given = seen if context is None else torch.cat([seen, context], 1)
        raw = self.network(given)
        if not self.scale:
            return None, raw
        return STRETCH * torch.tanh(raw[:, : self.moved] / STRETCH), raw[:, self.moved :]

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Move one half by what the network says of the other."""
        seen, moved = self._parts(x)
        s, t = self._numbers(seen, context)
        if s is None:
            return self._join(seen, moved + t), x.new_zeros(len(x))
        return self._join(seen, torch.addcmul(t, moved, s.exp())), s.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Move it back."""
        seen, moved = self._parts(z)
        s, t = self._numbers(seen, context)
        moved = moved - t
        return self._join(seen, moved if s is None else moved * (-s).exp())


@final
class SplineCoupling(Transform):
    """One half sees, each number of the other goes through its own rational-quadratic spline.

    Args:
        dim: d.
        first: Whether the first half is the one that is seen.
        width: Of the network's hidden layers.
        depth: How many.
        bins: Of each spline.
        bound: The splines work on [-bound, bound] and leave the rest alone.
        context: c.
        rng: Source of the initial weights; `None` means seed 0.

    References: `durkan2019` section 3.
    """

    def __init__(
        self,
        dim: int,
        first: bool = True,
        width: int = 64,
        depth: int = 2,
        bins: int = 8,
        bound: float = 5.0,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(2 <= bins <= 500, "SplineCoupling.bins", "be from 2 to 500", bins)
        require(bound > 0, "SplineCoupling.bound", "be positive", bound)
        self.seen, self.moved, self.first = _halves(dim, first)
        self.bound, self.each = bound, spline_parameters(bins)
        self.network = MLP(self.seen + context, self.moved * self.each, width, depth, rng)

    def _raw(self, seen: Tensor, context: Context) -> Tensor:
        given = seen if context is None else torch.cat([seen, context], 1)
        return self.network(given).unflatten(1, (self.moved, self.each))

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Each moved number through its spline."""
        left = self.seen if self.first else self.moved
        a, b = x[:, :left], x[:, left:]
        if self.first:
            b, slopes = spline(b, self._raw(a, context), self.bound)
        else:
            a, slopes = spline(a, self._raw(b, context), self.bound)
        return torch.cat([a, b], 1), slopes.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Each moved number back through it."""
        left = self.seen if self.first else self.moved
        a, b = z[:, :left], z[:, left:]
        if self.first:
            b, _ = spline_inverse(b, self._raw(a, context), self.bound)
        else:
            a, _ = spline_inverse(a, self._raw(b, context), self.bound)
        return torch.cat([a, b], 1)
