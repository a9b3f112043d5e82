"""Masked and inverse autoregressive layers.

Shapes: n points, d dimensions, c size of the context, o numbers per coordinate.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry.models.flows.conditioners import REACH, MaskedMLP, log_scale, seen
from allometry.models.flows.spline import spline, spline_inverse, spline_parameters
from allometry.models.flows.transform import Context, LogDet, Transform

Points = Float[Tensor, "n d"]


@final
class MaskedAutoregressive(Transform):
    r"""$z_i = x_i\,e^{s_i(x_{<i})} + t_i(x_{<i})$, or a spline of $x_i$ with such parameters.

    Differs from the paper: $s$ saturates at -1.5 and 3 and the input of the network is clamped to
    [-5, 5].

    The density takes one pass. The inverse is a fixed-point iteration over all coordinates: after
    k iterations the first k coordinates are exact, so d iterations suffice. A trained layer, whose
    coordinates depend weakly on most others, takes far fewer; the iteration stops at convergence.

    Args:
        dim: d.
        reverse: Order the coordinates from the last to the first.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        bins: Bins of each spline; 0 means affine.
        bound: The splines act on [-bound, bound].
        context: c.
        rng: Generator of the initial weights; default: seed 0.

    References: `papamakarios2017` Eqs. (3), (4); `germain2015`; `durkan2019`; `song2021` for the
        inverse.
    """

    def __init__(
        self,
        dim: int,
        reverse: bool = False,
        width: int = 64,
        depth: int = 2,
        bins: int = 0,
        bound: float = 5.0,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(bins == 0 or 2 <= bins <= 500, "bins", "be 0 or from 2 to 500", bins)
        self.reverse, self.bins, self.bound = reverse, bins, bound
        each = spline_parameters(bins) if bins else 2
        self.network = MaskedMLP(dim, each, width, depth, context, rng)

    def _raw(self, given: Points, context: Context) -> Float[Tensor, "n d o"]:
        given = seen(given, self.bound if self.bins else REACH)
        return self.network(given, context)

    def _move(self, x: Points, given: Points, context: Context) -> tuple[Tensor, Tensor]:
        raw = self._raw(given, context)
        if self.bins:
            return spline(x, raw, self.bound)
        s = log_scale(raw[..., 0])
        return torch.addcmul(raw[..., 1], x, s.exp()), s

    def _move_back(self, z: Points, given: Points, context: Context) -> tuple[Tensor, Tensor]:
        raw = self._raw(given, context)
        if self.bins:
            return spline_inverse(z, raw, self.bound)
        s = log_scale(raw[..., 0])
        return (z - raw[..., 1]) * (-s).exp(), s

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """All coordinates in one pass."""
        x = x.flip(1) if self.reverse else x
        z, slopes = self._move(x, x, context)
        return z.flip(1) if self.reverse else z, slopes.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Fixed-point iteration until convergence, at most d iterations."""
        z = z.flip(1) if self.reverse else z
        x = z
        # A coordinate has converged if it changes by at most a few units in the last place.
        still = 4 * torch.finfo(z.dtype).eps
        for _ in range(z.shape[1]):
            last, x = x, self._move_back(z, x, context)[0]
            if bool(((x - last).abs() <= still * (1 + x.abs())).all()):
                break
        return x.flip(1) if self.reverse else x


@final
class InverseAutoregressive(Transform):
    """The inverse of a masked autoregressive layer: samples in one pass, densities iteratively.

    Args:
        dim: d.
        reverse: Order the coordinates from the last to the first.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        bins: Bins of each spline; 0 means affine.
        bound: The splines act on [-bound, bound].
        context: c.
        rng: Generator of the initial weights; default: seed 0.

    References: `kingma2016` Algorithm 1.
    """

    def __init__(
        self,
        dim: int,
        reverse: bool = False,
        width: int = 64,
        depth: int = 2,
        bins: int = 0,
        bound: float = 5.0,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.other = MaskedAutoregressive(dim, reverse, width, depth, bins, bound, context, rng)

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """The point that the masked layer maps to x, and minus that layer's log-determinant.

        Differentiable: all d iterations are recorded, because the gradient needs each of them.
        """
        other = self.other
        x = x.flip(1) if other.reverse else x
        z = x
        for _ in range(x.shape[1]):
            z, _ = other._move_back(x, z, context)
        z_out = z.flip(1) if other.reverse else z
        _, slopes = other._move(z, z, context)
        return z_out, -slopes.sum(1)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """One pass."""
        return self.other(z, context)[0]
