"""Planar and radial layers: shifts along one direction, or towards one point.

Shapes: n points, d dimensions.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.flows.transform import Context, LogDet, Transform

Points = Float[Tensor, "n d"]

HALVINGS = 80
"""Bisection steps of the planar inverse: enough for float64."""


@final
class Planar(Transform):
    r"""$z = x + \hat u \tanh(w^T x + b)$ with $\hat u$ such that $w^T \hat u > -1$.

    $\log |\det| = \log |1 + (1 - \tanh^2(w^T x + b))\,w^T \hat u|$. The inverse has no formula:
    $a = w^T x$ solves $a + w^T \hat u \tanh(a + b) = w^T z$, which is monotone, by bisection.

    Args:
        dim: d.
        rng: Generator of the initial weights; default: seed 0.

    References: `rezende2015` Eqs. (10) to (13) and appendix A.
    """

    def __init__(self, dim: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(dim >= 1, "Planar.dim", "be at least 1", dim)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.w = nn.Parameter(torch.randn(dim, generator=rng))
        self.u = nn.Parameter(0.1 * torch.randn(dim, generator=rng))
        self.b = nn.Parameter(torch.randn(1, generator=rng))

    def _direction(self) -> tuple[Tensor, Tensor]:
        product = self.w @ self.u
        wanted = F.softplus(product) - 1
        u = self.u + (wanted - product) * self.w / self.w.square().sum().clamp(min=1e-12)
        return u, wanted

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Shift along u by a function of the projection on w."""
        u, product = self._direction()
        h = torch.tanh(x @ self.w + self.b)
        return x + h[:, None] * u, torch.log1p((1 - h.square()) * product)

    def inverse(self, z: Points, context: Context = None) -> Points:
        """Bisection for the projection on w."""
        u, product = self._direction()
        goal = z @ self.w
        # |tanh| <= 1, so the solution lies within |w.u| of the target.
        low, high = goal - product.abs(), goal + product.abs()
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = middle + product * torch.tanh(middle + self.b) > goal
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        h = torch.tanh((low + high) / 2 + self.b)
        return z - h[:, None] * u


@final
class Radial(Transform):
    r"""$z = x + \beta h(r)(x - c)$, $h(r) = 1 / (\alpha + r)$, $r = |x - c|$, $\beta > -\alpha$.

    $\log |\det| = (d - 1) \log(1 + \beta h) + \log(1 + \beta h - \beta r h^2)$; the inverse is
    the root of a quadratic in r.

    Args:
        dim: d.
        rng: Generator of the initial weights; default: seed 0.

    References: `rezende2015` Eq. (14) and appendix A.
    """

    def __init__(self, dim: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(dim >= 1, "Radial.dim", "be at least 1", dim)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.centre = nn.Parameter(torch.randn(dim, generator=rng))
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.raw_beta = nn.Parameter(0.5 + 0.1 * torch.randn(1, generator=rng))

    def _numbers(self) -> tuple[Tensor, Tensor]:
        alpha = self.log_alpha.exp()
        return alpha, F.softplus(self.raw_beta) - alpha

    def forward(self, x: Points, context: Context = None) -> tuple[Points, LogDet]:
        """Shift away from the centre or towards it."""
        alpha, beta = self._numbers()
        away = x - self.centre
        # The square is bounded away from 0, where the norm has no derivative.
        r = away.square().sum(1).clamp(min=1e-30).sqrt()
        h = 1 / (alpha + r)
        stretch = 1 + beta * h
        logdet = (x.shape[1] - 1) * stretch.log() + (stretch - beta * r * h.square()).log()
        return x + (beta * h)[:, None] * away, logdet

    def inverse(self, z: Points, context: Context = None) -> Points:
        r"""The root of $r^2 + (\alpha + \beta - R) r - \alpha R = 0$ with R the distance of z."""
        alpha, beta = self._numbers()
        away = z - self.centre
        R = away.norm(dim=1)
        b = alpha + beta - R
        root = (b.square() + 4 * alpha * R).sqrt()
        # Choose the form without cancellation.
        r = torch.where(b > 0, 2 * alpha * R / (b + root).clamp(min=1e-30), (root - b) / 2)
        return self.centre + away / (1 + beta / (alpha + r))[:, None]
