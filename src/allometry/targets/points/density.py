"""Distributions on R^d that can be sampled and whose density is known.

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
"""Number of samples for an entropy without formula or quadrature."""


class Density(ABC):
    """A probability density that can be sampled.

    Attributes:
        name: Short name.
        dim: Dimension d.
        spec: The spec that recreates this density.
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
        """`n` independent points in the default dtype: a pure function of its arguments."""
        require(n >= 1, "sample.n", "be at least 1", n)
        drawn = torch.from_numpy(self.draw(n, np.random.default_rng(seed)))
        return drawn.to(torch.get_default_dtype())

    def log_prob(self, x: Float[Tensor, "n d"], batch: int = 8192) -> Float[Tensor, " n"]:
        """Log density at `x`, computed in float64 for any dtype of `x`."""
        require(x.shape[1] == self.dim, f"{self.name}.x", f"have {self.dim} columns", x.shape)
        parts = [self.log_density(part) for part in x.double().split(batch)]
        return torch.cat(parts).to(x.dtype) if parts else x.new_empty(0)

    @functools.cached_property
    def entropy(self) -> Estimate:
        """Differential entropy in nats: the irreducible loss."""
        rng = np.random.default_rng(20_240_229)
        surprisal = -self.log_prob(torch.from_numpy(self.draw(DRAWS, rng)))
        se = surprisal.std().item() / DRAWS**0.5
        return Estimate(surprisal.mean().item(), se, n=DRAWS, method="mean surprisal of samples")

    @property
    def box(self) -> tuple[Float[ndarray, " d"], Float[ndarray, " d"]]:
        """Corners of a box for plots that contains nearly all of the probability."""
        points = self.draw(20_000, np.random.default_rng(0))
        low, high = np.quantile(points, 0.0005, axis=0), np.quantile(points, 0.9995, axis=0)
        margin = 0.08 * (high - low)
        return low - margin, high + margin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, d = {self.dim})"


class Modal(Density, ABC):
    """A distribution with countable modes, for measures of mode collapse.

    Attributes:
        means: Centre of each mode.
    """

    means: Float[Tensor, "k d"]

    @abstractmethod
    def nearest(self, x: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
        """The nearest mode of each point, and the distance in its standard deviations."""


def plane_entropy(
    density: Density,
    low: Float[ndarray, "2"],
    high: Float[ndarray, "2"],
    step: float,
) -> Estimate:
    r"""$-\int p \log p$ by the trapezoid rule on a grid of `step`.

    For a density that is smooth at the scale s and vanishes before the edges, the error falls as
    $\exp(-2 \pi^2 s^2 / \mathrm{step}^2)$: with step = s/2 it is below float64's precision.

    References: `trefethen2014` Theorem 5.1.
    """
    edges = zip(low, high, strict=True)
    axes = [torch.arange(a, b + step, step, dtype=torch.float64) for a, b in edges]
    p = density.log_prob(torch.cartesian_prod(*axes))
    value = -(p.exp() * p.clamp(min=-700)).sum().item() * step**2
    return Estimate(value, exact=True, method="trapezoid rule")
