"""Coupling layers: one half of a point parametrises the transform of the other half.

Shapes: n points, d dimensions, c size of the context.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.models.flows.conditioners import MLP, log_scale, seen
from allometry.models.flows.spline import spline, spline_inverse, spline_parameters
from allometry.models.flows.transform import Context, LogDet, Transform

Points = Float[Tensor, "n d"]


def _halves(dim: int, first: bool) -> tuple[int, int, bool]:
    """Sizes of the conditioning half and the transformed half."""
    require(dim >= 2, "coupling dim", "be at least 2", dim, "A single number has no halves.")
    left = (dim + 1) // 2
    return (left, dim - left, True) if first else (dim - left, left, False)


@final
class AffineCoupling(Transform):
    r"""$z_A = x_A$, $z_B = x_B\,e^{s(x_A)} + t(x_A)$; with `scale=False` NICE's $x_B + t(x_A)$.

    Differs from the paper: $s$ saturates smoothly at -1.5 and 3 and the network's input $x_A$ is
    clamped to [-5, 5], so that neither tails nor early steps overflow and a stack of layers can be
    inverted in float32.

    Args:
        dim: d.
        first: Whether the first half conditions the second.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        scale: Whether to scale as well as shift.
        context: c.
        rng: Generator of the initial weights; default: seed 0.

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
        a, b = x.split([left, x.shape[1] - left], 1)
        return (a, b) if self.first else (b, a)

    def _join(self, given: Tensor, moved: Tensor) -> Tensor:
        return torch.cat([given, moved] if self.first else [moved, given], 1)

    def _numbers(self, given: Tensor, context: Context) -> tuple[Tensor | None, Tensor]:
        given = seen(given)
        raw = self.network(given if context is None else torch.cat([given, context], 1))
        if not self.scale:
            return None, raw
        s, t = raw.split(self.moved, 1)
        return log_scale(s), t

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Scale and shift one half, conditioned on the other."""
        given, moved = self._parts(x)
        s, t = self._numbers(given, context)
        if s is None:
            return self._join(given, moved + t), x.new_zeros(len(x))
        return self._join(given, torch.addcmul(t, moved, s.exp())), s.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Invert the affine transform."""
        given, moved = self._parts(z)
        s, t = self._numbers(given, context)
        moved = moved - t
        return self._join(given, moved if s is None else moved * (-s).exp())


@final
class SplineCoupling(Transform):
    r"""A rational-quadratic spline for each coordinate of one half, conditioned on the other half.

    Differs from the paper: the network's input $x_A$ is clamped to the interval of the splines.

    Args:
        dim: d.
        first: Whether the first half conditions the second.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        bins: Bins of each spline.
        bound: The splines act on [-bound, bound]; outside they are the identity.
        context: c.
        rng: Generator of the initial weights; default: seed 0.

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

    def _raw(self, given: Tensor, context: Context) -> Tensor:
        given = seen(given, self.bound)
        given = given if context is None else torch.cat([given, context], 1)
        return self.network(given).unflatten(1, (self.moved, self.each))

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Each transformed coordinate through its spline."""
        left = self.seen if self.first else self.moved
        a, b = x.split([left, x.shape[1] - left], 1)
        if self.first:
            b, slopes = spline(b, self._raw(a, context), self.bound)
        else:
            a, slopes = spline(a, self._raw(b, context), self.bound)
        return torch.cat([a, b], 1), slopes.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Each transformed coordinate through the inverse spline."""
        left = self.seen if self.first else self.moved
        a, b = z[:, :left], z[:, left:]
        if self.first:
            b, _ = spline_inverse(b, self._raw(a, context), self.bound)
        else:
            a, _ = spline_inverse(a, self._raw(b, context), self.bound)
        return torch.cat([a, b], 1)
