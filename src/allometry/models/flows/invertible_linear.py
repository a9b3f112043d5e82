"""Invertible linear layers: mixing, scaling, permuting.

Shapes: n points, c channels (all entries of a point that is not an image).
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
    """Activation normalisation: each channel scaled and shifted.

    `initialise` gives a first batch mean 0 and variance 1.

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
        """Mean 0 and variance 1 for this batch; a constant channel keeps its scale."""
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
        """Subtract the shift, then divide by the scale."""
        return (z - self._wide(self.shift, z)) * self._wide((-self.log_scale).exp(), z)


@final
class InvertibleLinear(Transform):
    r"""$z = R L (U + \mathrm{diag}(s))\,x$ over channels: for images a 1 x 1 convolution.

    R is a fixed random rotation, L and U are triangular and initialised to the identity. The
    log-determinant is $h w \sum \log s$.

    Differs from the paper, where R is a permutation and L, U and s are the LU factors of a
    rotation: their small pivots make the matrix ill-conditioned during training.

    Args:
        channels: c.
        rng: Generator of the rotation; default: seed 0.

    References: `kingma2018` section 3.2, Eq. (10).
    """

    R: Tensor

    def __init__(self, channels: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(channels >= 1, "InvertibleLinear.channels", "be at least 1", channels)
        if torch.get_default_device().type == "meta":
            R = torch.zeros(channels, channels)
        else:
            rng = torch.Generator().manual_seed(0) if rng is None else rng
            R, _ = torch.linalg.qr(torch.randn(channels, channels, generator=rng))
        self.register_buffer("R", R)
        self.log_s = nn.Parameter(torch.zeros(channels))
        self.L = nn.Parameter(torch.zeros(channels, channels))
        self.U = nn.Parameter(torch.zeros(channels, channels))

    def _matrix(self, dtype: torch.dtype) -> Float[Tensor, "c c"]:
        eye = torch.eye(len(self.log_s), dtype=dtype, device=self.L.device)
        L, U, R = (t.to(dtype) for t in (self.L, self.U, self.R))
        return R @ (L.tril(-1) + eye) @ (U.triu(1) + torch.diag(self.log_s.to(dtype).exp()))

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """The product."""
        W = self._matrix(x.dtype)
        z = F.linear(x, W) if x.ndim == 2 else F.conv2d(x, W[:, :, None, None])
        return z, (self.log_s.sum() * _pixels(x)).expand(len(x))

    def inverse(self, z: Event, context: Context = None) -> Event:
        """The solution, in float64: the matrix is small and errors of a solve are not."""
        flat = z.transpose(0, 1).flatten(1).double()
        x = torch.linalg.solve(self._matrix(torch.float64), flat).to(z.dtype)
        return x.view(z.shape[1], len(z), *z.shape[2:]).transpose(0, 1)


@final
class Permutation(Transform):
    """A fixed random permutation of the coordinates.

    Args:
        dim: d.
        rng: Generator of the order; default: seed 0.
    """

    order: Tensor

    def __init__(self, dim: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(dim >= 1, "Permutation.dim", "be at least 1", dim)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        order = torch.randperm(dim, generator=rng, device="cpu")
        self.register_buffer("order", order.to(torch.get_default_device()))

    def forward(self, x: Float[Tensor, "n d"], context: Context = None) -> tuple[Event, LogDet]:
        """Permute."""
        return x[:, self.order], x.new_zeros(len(x))

    def inverse(self, z: Float[Tensor, "n d"], context: Context = None) -> Event:
        """Invert the permutation."""
        return z[:, self.order.argsort()]


@final
class Flatten(Transform):
    """Flatten an image to a vector; with `back`, reshape a vector to an image.

    Args:
        shape: Shape of the image.
        back: Whether to map vectors to images.
    """

    def __init__(self, shape: Sequence[int], back: bool = False) -> None:
        super().__init__()
        self.shape, self.back = tuple(shape), back

    def forward(self, x: Event, context: Context = None) -> tuple[Tensor, LogDet]:
        """Reshape."""
        return self._laid(x, self.back), x.new_zeros(len(x))

    def inverse(self, z: Event, context: Context = None) -> Tensor:
        """Reshape back."""
        return self._laid(z, not self.back)

    def _laid(self, x: Tensor, image: bool) -> Tensor:
        return x.unflatten(1, self.shape) if image else x.flatten(1)
