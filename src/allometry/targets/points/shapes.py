"""Benchmark densities in the plane and in higher dimensions.

Letters: n points, d dimensions, m nodes of a quadrature.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.targets.points.density import Density, plane_entropy

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
GAUSSIAN_ENTROPY = HALF_LOG_2PI + 0.5


class Curve(Density, ABC):
    r"""Noisy curves in the plane: $c(t) + s\,\varepsilon$ with a known distribution of t.

    The density $\int p(t)\,\mathcal N(x; c(t), s^2 I)\,dt$ is a Gauss-Legendre sum over t with
    enough nodes to be exact in float64 wherever the density is not negligible.
    """

    noise: float

    @abstractmethod
    def nodes(self) -> tuple[Float[ndarray, "m 2"], Float[ndarray, " m"]]:
        """Points on the curves and their weights, which sum to 1."""

    @functools.cached_property
    def _mesh(self) -> tuple[Tensor, Tensor]:
        places, weights = self.nodes()
        return torch.from_numpy(places), torch.from_numpy(np.log(weights))

    def log_density(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """The log of the sum over nodes."""
        places, log_weights = self._mesh
        s = self.noise
        squares = sum((x[:, i, None] - places[:, i]).square() for i in range(2))
        inside = log_weights - squares / (2 * s**2)
        return inside.logsumexp(1) - 2 * (math.log(s) + HALF_LOG_2PI)

    @functools.cached_property
    def entropy(self) -> Estimate:
        """Entropy in nats, by quadrature over the plane."""
        places, margin = self._mesh[0].numpy(), 9 * self.noise
        edges = places.min(0) - margin, places.max(0) + margin
        return plane_entropy(self, *edges, self.noise / 2)


def legendre(low: float, high: float, m: int) -> tuple[Float[ndarray, " m"], Float[ndarray, " m"]]:
    """Nodes and weights of the Gauss-Legendre rule on an interval."""
    t, w = np.polynomial.legendre.leggauss(m)
    return low + (high - low) * (t + 1) / 2, (high - low) / 2 * w


@final
class TwoMoons(Curve):
    r"""Two interleaved half circles of radius 1 with Gaussian noise.

    $(\cos t, \sin t)$ and $(1 - \cos t, \tfrac12 - \sin t)$ with t uniform on $[0, \pi]$.
    scikit-learn's `make_moons` uses an even grid of t instead.

    Args:
        noise: Standard deviation of the noise.
    """

    def __init__(self, noise: float = 0.05) -> None:
        require(noise > 0, "TwoMoons.noise", "be positive", noise)
        self.name, self.dim, self.noise = "moons", 2, noise
        self.spec = Spec(TwoMoons, noise=noise)

    def nodes(self) -> tuple[Float[ndarray, "m 2"], Float[ndarray, " m"]]:
        """Nodes of both half circles."""
        t, w = legendre(0, math.pi, max(96, math.ceil(12 / self.noise)))
        w = np.concatenate([w, w]) / (2 * math.pi)
        return np.concatenate([_moon(t, 0), _moon(t, 1)]), w

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample a half circle, a point on it, and the noise."""
        which, t = rng.integers(2, size=n), rng.uniform(0, math.pi, size=n)
        centre = np.where(which[:, None] == 0, _moon(t, 0), _moon(t, 1))
        return centre + self.noise * rng.normal(size=(n, 2))


def _moon(t: ndarray, which: int) -> ndarray:
    if which == 0:
        return np.stack([np.cos(t), np.sin(t)], 1)
    return np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)


@final
class Spirals(Curve):
    r"""Two noisy spiral arms: $\pm \tfrac t3 (-\cos t, \sin t)$, $t = 3\pi\sqrt u$, u uniform.

    Args:
        noise: Standard deviation of the noise.
    """

    def __init__(self, noise: float = 0.1) -> None:
        require(noise > 0, "Spirals.noise", "be positive", noise)
        self.name, self.dim, self.noise = "spirals", 2, noise
        self.spec = Spec(Spirals, noise=noise)

    def nodes(self) -> tuple[Float[ndarray, "m 2"], Float[ndarray, " m"]]:
        """Nodes of both arms; the density of t is proportional to t."""
        end = 3 * math.pi
        t, w = legendre(0, end, max(128, math.ceil(75 / self.noise)))
        w = w * t / end**2
        return np.concatenate([_arm(t), -_arm(t)]), np.concatenate([w, w])

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample an arm, a point on it, and the noise."""
        t = 3 * math.pi * np.sqrt(rng.uniform(size=n))
        sign = rng.choice([-1.0, 1.0], size=n)[:, None]
        return sign * _arm(t) + self.noise * rng.normal(size=(n, 2))


def _arm(t: ndarray) -> ndarray:
    return t[:, None] / 3 * np.stack([-np.cos(t), np.sin(t)], 1)


@final
class Rings(Density):
    r"""Noisy concentric circles; the angle is uniform and circles are equally likely.

    $p(x) = \frac1k \sum_i \frac{1}{2\pi s^2} e^{-(\rho^2 + r_i^2)/2s^2} I_0(\rho r_i / s^2)$,
    $\rho = |x|$.

    Args:
        radii: r.
        noise: s.
    """

    def __init__(self, radii: Sequence[float] = (0.5, 1.0, 1.5, 2.0), noise: float = 0.08) -> None:
        require(noise > 0, "Rings.noise", "be positive", noise)
        require(min(radii, default=0) > 0, "Rings.radii", "be positive", list(radii))
        self.name, self.dim, self.noise, self.radii = "rings", 2, noise, tuple(radii)
        self.spec = Spec(Rings, radii=list(radii), noise=noise)

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample a circle, an angle, and the noise."""
        r, angle = rng.choice(self.radii, size=n), rng.uniform(0, 2 * math.pi, size=n)
        circle = r[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        return circle + self.noise * rng.normal(size=(n, 2))

    def log_density(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """Computed with the scaled Bessel function, which does not overflow."""
        s2 = self.noise**2
        rho = x.norm(dim=1)[:, None]
        r = torch.tensor(self.radii, dtype=torch.float64)
        bessel = torch.special.i0e(rho * r / s2).log() - (rho - r).square() / (2 * s2)
        return bessel.logsumexp(1) - math.log(2 * math.pi * s2 * len(self.radii))

    @functools.cached_property
    def entropy(self) -> Estimate:
        r"""$-\int_0^\infty 2\pi\rho\,p \log p\,d\rho$ by the Gauss-Legendre rule."""
        end = max(self.radii) + 9 * self.noise
        rho, w = legendre(0, end, max(200, math.ceil(12 * end / self.noise)))
        x = torch.from_numpy(np.stack([rho, np.zeros_like(rho)], 1))
        p = self.log_prob(x)
        weights = 2 * math.pi * torch.from_numpy(rho * w)
        value = -(weights * p.exp() * p).sum().item()
        return Estimate(value, exact=True, method="Gauss-Legendre rule")


@final
class Checkerboard(Density):
    """Uniform on the dark squares of a checkerboard on $[-1, 1]^2$; density 0 elsewhere.

    Args:
        cells: Squares along a side, an even number.
    """

    def __init__(self, cells: int = 4) -> None:
        valid = cells >= 2 and cells % 2 == 0
        require(valid, "Checkerboard.cells", "be even and at least 2", cells)
        self.name, self.dim, self.cells = "checkerboard", 2, cells
        self.spec = Spec(Checkerboard, cells=cells)

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample a dark square and a point in it."""
        column = rng.integers(self.cells, size=n)
        row = 2 * rng.integers(self.cells // 2, size=n) + column % 2
        corner = np.stack([column, row], 1)
        return 2 * (corner + rng.uniform(size=(n, 2))) / self.cells - 1

    def log_density(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """Minus log 2 on dark squares, minus infinity elsewhere."""
        cell = ((x + 1) * self.cells / 2).floor()
        inside = ((cell >= 0) & (cell < self.cells)).all(1)
        dark = inside & (cell.sum(1) % 2 == 0)
        return torch.where(dark, -math.log(2), -math.inf).double()

    @functools.cached_property
    def entropy(self) -> Estimate:
        """The log of the dark area, which is 2."""
        return Estimate(math.log(2), exact=True, method="closed form")


@final
class Funnel(Density):
    r"""Neal's funnel: $v \sim \mathcal N(0, s^2)$, the others $\mathcal N(0, e^v)$ given v.

    Args:
        dim: d, with v the first coordinate.
        scale: s.

    References: `neal2003` section 8.
    """

    def __init__(self, dim: int = 2, scale: float = 3.0) -> None:
        require(dim >= 2, "Funnel.dim", "be at least 2", dim)
        require(scale > 0, "Funnel.scale", "be positive", scale)
        self.name, self.dim, self.scale = "funnel", dim, scale
        self.spec = Spec(Funnel, dim=dim, scale=scale)

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample v, then the others given v."""
        noise = rng.normal(size=(n, self.dim))
        v = self.scale * noise[:, :1]
        return np.concatenate([v, np.exp(v / 2) * noise[:, 1:]], 1)

    def log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The product of conditionals."""
        v, rest = x[:, 0], x[:, 1:]
        first = -0.5 * (v / self.scale).square() - math.log(self.scale) - HALF_LOG_2PI
        others = -0.5 * (rest.square() * (-v).exp()[:, None] + v[:, None]) - HALF_LOG_2PI
        return first + others.sum(1)

    @functools.cached_property
    def entropy(self) -> Estimate:
        """The entropy of d standard normals plus log s: v has mean 0, so its scales cancel."""
        value = self.dim * GAUSSIAN_ENTROPY + math.log(self.scale)
        return Estimate(value, exact=True, method="closed form")


@final
class Banana(Density):
    r"""A Gaussian bent along a parabola: $x_1 \sim \mathcal N(0, s^2)$,
    $x_2 = \varepsilon + b (x_1^2 - s^2)$; further coordinates are standard normal.

    The transformation preserves volume, so the entropy is the Gaussian's.

    Args:
        bend: b.
        scale: s.
        dim: d.

    References: `haario1999`.
    """  # noqa: D205

    def __init__(self, bend: float = 0.5, scale: float = 2.0, dim: int = 2) -> None:
        require(dim >= 2, "Banana.dim", "be at least 2", dim)
        require(scale > 0, "Banana.scale", "be positive", scale)
        self.name, self.dim, self.bend, self.scale = "banana", dim, bend, scale
        self.spec = Spec(Banana, bend=bend, scale=scale, dim=dim)

    def draw(self, n: int, rng: np.random.Generator) -> Float[ndarray, "n d"]:
        """Sample the Gaussian, then apply the bend."""
        x = rng.normal(size=(n, self.dim))
        x[:, 0] *= self.scale
        x[:, 1] += self.bend * (x[:, 0] ** 2 - self.scale**2)
        return x

    def log_density(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The Gaussian's log density at the inverse-transformed point."""
        straight = x[:, 1] - self.bend * (x[:, 0].square() - self.scale**2)
        squares = (x[:, 0] / self.scale).square() + straight.square() + x[:, 2:].square().sum(1)
        return -0.5 * squares - self.dim * HALF_LOG_2PI - math.log(self.scale)

    @functools.cached_property
    def entropy(self) -> Estimate:
        """The entropy of the Gaussian."""
        value = self.dim * GAUSSIAN_ENTROPY + math.log(self.scale)
        return Estimate(value, exact=True, method="closed form")
