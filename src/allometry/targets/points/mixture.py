"""Gaussian mixtures in any dimension, including the standard benchmarks of generative models.

Letters: n points, d dimensions, k components.
"""

import functools
import math
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.targets.points.density import Density, Modal, plane_entropy


@final
class Mixture(Modal):
    r"""$p(x) = \sum_k \pi_k\,\mathcal N(x; \mu_k, s_k^2 I)$.

    The entropy is exact for one component, by quadrature in two dimensions, and otherwise the mean
    surprisal of many samples with its standard error.

    Args:
        means: $\mu$, one row per component.
        sd: s, one for all or one for each.
        weights: $\pi$. Default: equal.
        name: Short name.
    """

    def __init__(
        self,
        means: Sequence[Sequence[float]],
        sd: float | Sequence[float] = 1.0,
        weights: Sequence[float] | None = None,
        name: str = "mixture",
    ) -> None:
        self.means = torch.tensor(means, dtype=torch.float64)
        require(self.means.ndim == 2, "Mixture.means", "be rows of equal length", means)
        k, self.dim = self.means.shape
        self.sd = torch.as_tensor(sd, dtype=torch.float64).expand(k).clone()
        require(bool((self.sd > 0).all()), "Mixture.sd", "be positive", sd)
        pi = torch.full((k,), 1 / k) if weights is None else torch.as_tensor(weights)
        valid = pi.shape == (k,) and bool((pi > 0).all()) and abs(float(pi.sum()) - 1) < 1e-6
        require(valid, "Mixture.weights", f"be {k} positive numbers that sum to 1", weights)
        self.weights = pi.double() / pi.double().sum()
        self.name = name
        self.spec = Spec(Mixture, means=means, sd=sd, weights=weights, name=name)

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample a component by its weight, then a point of it."""
        chosen = rng.choice(len(self.means), size=n, p=self.weights.numpy())
        noise = rng.normal(size=(n, self.dim))
        return self.means.numpy()[chosen] + self.sd.numpy()[chosen, None] * noise

    def log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log of the sum over components, without underflow."""
        return self.component_log_density(x).logsumexp(1)

    def component_log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        r"""$\log \pi_k \mathcal N(x; \mu_k, s_k^2 I)$."""
        # Differences instead of |x|^2 - 2 x.mu + |mu|^2: no cancellation far from the origin.
        squares = (x[:, None] - self.means).square().sum(2) / self.sd.square()
        scale = self.weights.log() - self.dim * (self.sd.log() + 0.5 * math.log(2 * math.pi))
        return scale - 0.5 * squares

    @functools.cached_property
    def entropy(self) -> Estimate:
        """Entropy in nats; see the class for the method."""
        if len(self.means) == 1:
            value = self.dim * (0.5 * math.log(2 * math.pi * math.e) + self.sd[0].log().item())
            return Estimate(value, exact=True, method="closed form")
        if self.dim == 2:
            low, high = self.means.amin(0), self.means.amax(0)
            margin, step = 9 * self.sd.max().item(), self.sd.min().item() / 2
            cells = float(((high - low + 2 * margin) / step).prod())
            if cells <= 2e6:
                edges = (low - margin).numpy(), (high + margin).numpy()
                return plane_entropy(self, *edges, step)
        return Density.entropy.func(self)  # pyright: ignore[reportAttributeAccessIssue]

    def nearest(self, x: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
        """The nearest mode of each point, and the distance in its standard deviations."""
        distance = torch.cdist(x.double(), self.means)
        near = distance.argmin(1)
        return near, (distance.gather(1, near[:, None])[:, 0] / self.sd[near]).to(x.dtype)


def _with_spec(mixture: Mixture, spec: Spec) -> Mixture:
    mixture.spec = spec
    return mixture


def ring(modes: int = 8, radius: float = 1.0, sd: float = 0.01) -> Mixture:
    """Gaussians evenly spaced on a circle, as in PacGAN.

    References: `lin2018` section 4.1.
    """
    require(modes >= 1, "ring.modes", "be at least 1", modes)
    # Not linspace(0, 2 pi, modes), in which two modes coincide.
    angle = 2 * np.pi * np.arange(modes) / modes
    means = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    mixture = Mixture(means.tolist(), sd, name="ring")
    return _with_spec(mixture, Spec(ring, modes=modes, radius=radius, sd=sd))


def grid(side: int = 5, step: float = 2.0, sd: float = 0.05) -> Mixture:
    """Gaussians on a square grid centred at the origin, as in PacGAN: 25 from -4 to 4.

    References: `lin2018` section 4.1.
    """
    require(side >= 1, "grid.side", "be at least 1", side)
    axis = step * (np.arange(side) - (side - 1) / 2)
    means = np.stack(np.meshgrid(axis, axis, indexing="ij"), 2).reshape(-1, 2)
    mixture = Mixture(means.tolist(), sd, name="grid")
    return _with_spec(mixture, Spec(grid, side=side, step=step, sd=sd))


def eight_gaussians(radius: float = 2.0, sd: float = 0.2) -> Mixture:
    """Eight wide Gaussians on a circle, a common example for flows."""
    mixture = ring(8, radius, sd)
    mixture.name = "eight_gaussians"
    return _with_spec(mixture, Spec(eight_gaussians, radius=radius, sd=sd))


def random_mixture(
    dim: int = 2, components: int = 8, spread: float = 3.0, sd: float = 0.5, seed: int = 0
) -> Mixture:
    """Components with random weights and Gaussian means, in any dimension."""
    require(dim >= 1, "random_mixture.dim", "be at least 1", dim)
    require(components >= 1, "random_mixture.components", "be at least 1", components)
    rng = np.random.default_rng(seed)
    means = spread * rng.normal(size=(components, dim))
    weights = rng.dirichlet(np.full(components, 5.0))
    mixture = Mixture(means.tolist(), sd, weights.tolist(), name=f"mixture{dim}d")
    arguments = {"dim": dim, "components": components, "spread": spread, "sd": sd}
    return _with_spec(mixture, Spec(random_mixture, **arguments, seed=seed))
