"""Linear layers that can be undone: mixing, scaling, rearranging.

Letters: n points, c channels (all of a point's numbers, where it has no pixels).
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.flows.transform import Context, Event, LogDet, Transform


def _pixels(x: Tensor) -> int:
    return x[0, 0].numel()


@final
class ActNorm(Transform):
    """Each channel shifted and scaled; `initialise` gives a first batch mean 0 and variance 1.

    Args:
        channels: c.

    References: `kingma2018` section 3.1.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        require(channels >= 1, "ActNorm.channels", "be at least 1", channels)
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def _wide(self, p: Tensor, x: Tensor) -> Tensor:
        return p.view(-1, *[1] * (x.ndim - 2))

    @torch.no_grad()
    def initialise(self, x: Event, context: Context = None) -> None:
        """Mean 0 and variance 1 for this batch; a channel that never varies keeps its scale."""
        flat = x.transpose(0, 1).flatten(1)
        sd = flat.std(1)
        scale = torch.where(sd > 1e-6, 1 / sd.clamp(min=1e-6), 1.0)
        self.log_scale.copy_(scale.log())
        self.shift.copy_(-flat.mean(1) * scale)

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """Scale, then shift."""
        z = torch.addcmul(self._wide(self.shift, x), x, self._wide(self.log_scale.exp(), x))
        return z, (self.log_scale.sum() * _pixels(x)).expand(len(x))

    def inverse(self, z: Event, context: Context = None) -> Event:
        """Back."""
        return (z - self._wide(self.shift, z)) * self._wide((-self.log_scale).exp(), z)


@final
class InvertibleLinear(Transform):
    r"""$z = P L (U + \mathrm{diag}(s))\,x$ over channels: for images a 1 x 1 convolution.

    P is a fixed permutation, L and U are triangular; it begins as a random rotation. The
    determinant is that of s: $h w \sum \log |s|$.

    Args:
        channels: c.
        rng: Source of the initial rotation; `None` means seed 0.

    References: `kingma2018` section 3.2, Eq. (10).
    """

    P: Tensor
    sign: Tensor

    def __init__(self, channels: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(channels >= 1, "InvertibleLinear.channels", "be at least 1", channels)
        if torch.get_default_device().type == "meta":
            P = L = U = torch.zeros(channels, channels)
            s = torch.zeros(channels)
        else:
            rng = torch.Generator().manual_seed(0) if rng is None else rng
            rotation, _ = torch.linalg.qr(torch.randn(channels, channels, generator=rng))
            P, L, U = torch.linalg.lu(rotation)
            s = U.diagonal()
        self.register_buffer("P", P)
        self.register_buffer("sign", s.sign())
        self.log_s = nn.Parameter(s.abs().log())
        self.L = nn.Parameter(L.tril(-1))
        self.U = nn.Parameter(U.triu(1))

    def _triangles(self) -> tuple[Tensor, Tensor]:
        eye = torch.eye(len(self.log_s), dtype=self.L.dtype, device=self.L.device)
        return self.L.tril(-1) + eye, self.U.triu(1) + torch.diag(self.sign * self.log_s.exp())

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """The product."""
        L, U = self._triangles()
        W = self.P @ L @ U
        z = F.linear(x, W) if x.ndim == 2 else F.conv2d(x, W[:, :, None, None])
        return z, (self.log_s.sum() * _pixels(x)).expand(len(x))

    def inverse(self, z: Event, context: Context = None) -> Event:
        """Two triangular solves."""
        L, U = self._triangles()
        flat = z.transpose(0, 1).flatten(1)
        half = torch.linalg.solve_triangular(L, self.P.T @ flat, upper=False, unitriangular=True)
        x = torch.linalg.solve_triangular(U, half, upper=True)
        return x.view(z.shape[1], len(z), *z.shape[2:]).transpose(0, 1)


@final
class Permutation(Transform):
    """Coordinates in another order, chosen once.

    Args:
        dim: d.
        rng: Source of the order; `None` means seed 0.
    """

    order: Tensor

    def __init__(self, dim: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(dim >= 1, "Permutation.dim", "be at least 1", dim)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        order = torch.randperm(dim, generator=rng, device="cpu")
        self.register_buffer("order", order.to(torch.get_default_device()))

    def forward(self, x: Float[Tensor, "n d"], context: Context = None) -> tuple[Event, LogDet]:
        """In the new order."""
        return x[:, self.order], x.new_zeros(len(x))

    def inverse(self, z: Float[Tensor, "n d"], context: Context = None) -> Event:
        """In the old one."""
        return z[:, self.order.argsort()]


@final
class Flatten(Transform):
    """An image as a row of numbers, or with `back` the other way round.

    Args:
        shape: Of the image.
        back: From the row to the image.
    """

    def __init__(self, shape: Sequence[int], back: bool = False) -> None:
        super().__init__()
        self.shape, self.back = tuple(shape), back

    def forward(self, x: Event, context: Context = None) -> tuple[Tensor, LogDet]:
        """Only the layout changes."""
        return self._laid(x, self.back), x.new_zeros(len(x))

    def inverse(self, z: Event, context: Context = None) -> Tensor:
        """Back to the other layout."""
        return self._laid(z, not self.back)

    def _laid(self, x: Tensor, image: bool) -> Tensor:
        return x.unflatten(1, self.shape) if image else x.flatten(1)
