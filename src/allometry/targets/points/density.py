"""Laws on R^d that can be drawn from and whose density is known.

Letters: n points, d dimensions, k components.
"""

import functools
from abc import ABC, abstractmethod

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec

DRAWS = 200_000
"""Points behind an entropy for which there is no formula and no quadrature."""


class Density(ABC):
    """A probability density that can be sampled; made by value, so its `spec` makes it again.

    Attributes:
        name: In one word.
        dim: d.
        spec: The request that makes this very law again.
    """

    name: str
    dim: int
    spec: Spec

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """`n` independent points, in float64."""

    @abstractmethod
    def log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density at float64 points."""

    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
        """`n` independent points in the default type: a pure function of its arguments."""
        require(n >= 1, "sample.n", "be at least 1", n)
        drawn = torch.from_numpy(self.draw(n, np.random.default_rng(seed)))
        return drawn.to(torch.get_default_dtype())

    def log_prob(self, x: Float[Tensor, "n d"], batch: int = 8192) -> Float[Tensor, " n"]:
        """Log density at `x`, worked in float64 whatever the type of `x`."""
        require(x.shape[1] == self.dim, f"{self.name}.x", f"have {self.dim} columns", x.shape)
        parts = [self.log_density(part) for part in x.double().split(batch)]
        return torch.cat(parts).to(x.dtype) if parts else x.new_empty(0)

    @functools.cached_property
    def entropy(self) -> Estimate:
        """Differential entropy in nats: what no model's loss can go below."""
        rng = np.random.default_rng(20_240_229)
        surprise = -self.log_prob(torch.from_numpy(self.draw(DRAWS, rng)))
        se = surprise.std().item() / DRAWS**0.5
        return Estimate(surprise.mean().item(), se, n=DRAWS, method="mean surprise of draws")

    @property
    def box(self) -> tuple[Float[ndarray, " d"], Float[ndarray, " d"]]:
        """Corners of a box for pictures: it holds nearly all of the mass."""
        drawn = self.draw(20_000, np.random.default_rng(0))
        low, high = np.quantile(drawn, 0.0005, axis=0), np.quantile(drawn, 0.9995, axis=0)
        margin = 0.08 * (high - low)
        return low - margin, high + margin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, d = {self.dim})"


class Modal(Density, ABC):
    """A law with modes that can be counted, as mode collapse asks.

    Attributes:
        means: Centre of each mode.
    """

    means: Float[Tensor, "k d"]

    @abstractmethod
    def nearest(self, x: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
        """The mode each point is nearest to and the distance in its standard deviations."""


def plane_entropy(
    density: Density,
    low: Float[ndarray, "2"],
    high: Float[ndarray, "2"],
    step: float,
) -> Estimate:
    r"""$-\int p \log p$ by the trapezoid rule on a grid of `step`.

    For a density that is smooth at the scale s and vanishes before the edges the rule's error
    falls as $\exp(-2 \pi^2 s^2 / \mathrm{step}^2)$: with step = s/2 it is beyond float64.

    References: `trefethen2014` Theorem 5.1.
    """
    edges = zip(low, high, strict=True)
    axes = [torch.arange(a, b + step, step, dtype=torch.float64) for a, b in edges]
    p = density.log_prob(torch.cartesian_prod(*axes))
    value = -(p.exp() * p.clamp(min=-700)).sum().item() * step**2
    return Estimate(value, exact=True, method="trapezoid rule")
