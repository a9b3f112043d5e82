"""Every coordinate moved by those before it: masked and inverse autoregressive layers.

Letters: n points, d dimensions, c size of the context, o numbers per coordinate.
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

    Differs from the paper: $s$ bends towards -1.5 and 3 and the network sees x cut to [-5, 5].

    One pass gives the density. The inverse is a fixed-point iteration over all coordinates at
    once: after k rounds the first k coordinates are exact, so d rounds always do, and a trained
    layer, whose coordinates depend weakly on most others, takes far fewer; it stops when nothing
    moves any more.

    Args:
        dim: d.
        reverse: Take the coordinates from the last to the first.
        width: Of the network's hidden layers.
        depth: How many.
        bins: Of each spline; 0 means affine.
        bound: The splines work on [-bound, bound].
        context: c.
        rng: Source of the initial weights; `None` means seed 0.

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
        """Rounds over all coordinates until nothing moves, d at most."""
        z = z.flip(1) if self.reverse else z
        x = z
        # A coordinate that stands still to a few units in the last place is done.
        still = 4 * torch.finfo(z.dtype).eps
        for _ in range(z.shape[1]):
            last, x = x, self._move_back(z, x, context)[0]
            if bool(((x - last).abs() <= still * (1 + x.abs())).all()):
                break
        return x.flip(1) if self.reverse else x


@final
class InverseAutoregressive(Transform):
    """A masked autoregressive layer turned round: samples in one pass, densities by iteration.

    Args:
        dim: d.
        reverse: Take the coordinates from the last to the first.
        width: Of the network's hidden layers.
        depth: How many.
        bins: Of each spline; 0 means affine.
        bound: The splines work on [-bound, bound].
        context: c.
        rng: Source of the initial weights; `None` means seed 0.

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
        """The point that the masked layer takes to x, and minus that layer's log-determinant.

        Differentiable: all d rounds are recorded, for the gradient needs each of them.
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
