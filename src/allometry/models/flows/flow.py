"""A flow: a sequence of transforms to a standard normal.

Shapes: n points, c size of the context.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import nn

from allometry._core.errors import require
from allometry.models.flows.transform import Context, Event, LogDet, Transform


@final
class Flow(nn.Module):
    r"""$\log p(x) = \log \mathcal N(f(x); 0, I) + \log |\det \partial f / \partial x|$.

    Args:
        transforms: Transforms from data to noise, in order.
        shape: Shape of a point: `(d,)`, or `(channels, height, width)`.

    Example:
        >>> import torch
        >>> from allometry.models import flows
        >>> flow = flows.spline_coupling(2, layers=4, width=16)
        >>> flow.log_prob(torch.zeros(3, 2)).shape, flow.sample(5).shape
        (torch.Size([3]), torch.Size([5, 2]))

    References: `rezende2015`.
    """

    def __init__(self, transforms: Sequence[Transform], shape: Sequence[int]) -> None:
        super().__init__()
        require(len(transforms) >= 1, "Flow.transforms", "have at least one", len(transforms))
        require(min(shape, default=0) >= 1, "Flow.shape", "be positive sizes", tuple(shape))
        self.transforms = nn.ModuleList(transforms)
        self.shape = tuple(shape)

    @property
    def dim(self) -> int:
        """Number of entries of a point."""
        return math.prod(self.shape)

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """The noise of x, and the log-determinant."""
        first, *rest = self.transforms
        x, total = first(x, context)
        for transform in rest:
            x, logdet = transform(x, context)
            total = total + logdet
        return x, total

    def inverse(self, z: Event, context: Context = None) -> Event:
        """The point of noise z."""
        for transform in reversed(self.transforms):
            z = transform.inverse(z, context)  # pyright: ignore[reportCallIssue]
        return z

    def log_prob(self, x: Event, context: Context = None) -> LogDet:
        """Log density in nats."""
        z, logdet = self(x, context)
        squares = z.square().flatten(1).sum(1)
        return logdet - 0.5 * squares - 0.5 * self.dim * math.log(2 * math.pi)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        *,
        context: Context = None,
        temperature: float = 1.0,
        rng: torch.Generator | None = None,
    ) -> Event:
        """`n` points.

        Args:
            n: Number of points; with a context, one for each of its rows.
            context: Values to condition on.
            temperature: Standard deviation of the noise.
            rng: Generator of the noise; default: seed 0.
        """
        require(n >= 1, "sample.n", "be at least 1", n)
        require(temperature >= 0, "sample.temperature", "be at least 0", temperature)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        like = next(self.parameters())
        z = torch.randn(n, *self.shape, generator=rng, dtype=like.dtype)
        return self.inverse(temperature * z.to(like.device), context)

    def stages(self, x: Event, context: Context = None) -> list[Event]:
        """The point x and its image after each transform, for figures."""
        seen = [x]
        for transform in self.transforms:
            x, _ = transform(x, context)
            seen.append(x)
        return seen

    def backward_stages(self, z: Event, context: Context = None) -> list[Event]:
        """Noise z and its image after each inverse transform, towards the data."""
        seen = [z]
        for transform in reversed(self.transforms):
            z = transform.inverse(z, context)  # pyright: ignore[reportCallIssue]
            seen.append(z)
        return seen

    @torch.no_grad()
    def initialise(self, x: Event, context: Context = None) -> None:
        """Data-dependent initialisation of every transform, each on the output of the previous."""
        *earlier, last = self.transforms
        for transform in earlier:
            transform.initialise(x, context)  # pyright: ignore[reportCallIssue]
            x, _ = transform(x, context)
        # Of the last no output is needed, and that of a diffusion model takes seconds.
        last.initialise(x, context)  # pyright: ignore[reportCallIssue]
