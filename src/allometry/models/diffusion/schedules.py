r"""Noise schedules: paths $x_t = \alpha(t)\,x_0 + \sigma(t)\,\epsilon$ from data to noise.

Divided by $\sqrt{\alpha^2 + \sigma^2}$, every such path is $\cos\phi\,x_0 + \sin\phi\,\epsilon$
with the angle $\tan\phi = \sigma / \alpha$. Schedules differ only in the time at which an angle is
reached and, therefore, in the angles of training and in the steps of a sampler.

Shapes: "*n" any.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require

Times = Float[Tensor, "*n"]


class Schedule(ABC):
    """A Gaussian path from data at time `low` to noise at time `high`."""

    low: float
    high: float

    @abstractmethod
    def alpha(self, t: Times) -> Times:
        """Factor of the data."""

    @abstractmethod
    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""

    @abstractmethod
    def time(self, angle: Times) -> Times:
        """The time of an angle."""

    def training_time(self, u: Times) -> Times:
        """The time of training for a uniform number in (0, 1); default: uniform."""
        return self.low + (self.high - self.low) * u

    @final
    def angle(self, t: Times) -> Times:
        r"""$\phi = \arctan(\sigma / \alpha)$, between 0 (data) and $\pi / 2$ (noise)."""
        return torch.atan2(self.sigma(t), self.alpha(t))

    @final
    def log_snr(self, t: Times) -> Times:
        r"""$\log (\alpha^2 / \sigma^2)$."""
        return -2 * torch.log(torch.tan(self.angle(t)))

    @final
    def ends(self) -> tuple[float, float]:
        """The angles of `low` and `high`."""
        # On the CPU even for a model on the meta device.
        ends = torch.tensor([self.low, self.high], dtype=torch.float64, device="cpu")
        low, high = self.angle(ends).tolist()
        return low, high

    def grid(self, steps: int) -> list[float]:
        """`steps + 1` angles from noise to data; default: at even times."""
        require(steps >= 1, "steps", "be at least 1", steps)
        times = torch.linspace(self.high, self.low, steps + 1, dtype=torch.float64)
        return self.angle(times).tolist()


@final
@dataclass(frozen=True)
class VP(Schedule):
    r"""Variance preserving: $\alpha^2 = \exp(-\int_0^t \beta)$ and $\sigma^2 = 1 - \alpha^2$.

    $\beta$ grows linearly. The limit of DDPM with many steps.

    Args:
        beta_min: $\beta$ at time 0.
        beta_max: $\beta$ at time 1.
        low: Time of the data.
        high: Time of the noise.

    References: `song2021score` Appendix B; `ho2020`.
    """

    beta_min: float = 0.1
    beta_max: float = 20.0
    low: float = 1e-5
    high: float = 1.0

    def _integral(self, t: Times) -> Times:
        return self.beta_min * t + 0.5 * (self.beta_max - self.beta_min) * t.square()

    def alpha(self, t: Times) -> Times:
        """Factor of the data."""
        return torch.exp(-0.5 * self._integral(t))

    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""
        return torch.sqrt(-torch.expm1(-self._integral(t)))

    def time(self, angle: Times) -> Times:
        """The root of a quadratic."""
        integral = -2 * torch.log(torch.cos(angle))
        slope = self.beta_max - self.beta_min
        # The form without cancellation for small integrals.
        root = torch.sqrt(self.beta_min**2 + 2 * slope * integral)
        return 2 * integral / (self.beta_min + root)


@final
@dataclass(frozen=True)
class Cosine(Schedule):
    r"""Variance preserving with $\alpha = \cos(\pi t / 2)$: the angle is proportional to the time.

    Args:
        low: Time of the data.
        high: Time of the noise.

    References: `nichol2021` Eq. (17), without its offset; `salimans2022`.
    """

    low: float = 1e-3
    high: float = 1 - 1e-3

    def alpha(self, t: Times) -> Times:
        """Factor of the data."""
        return torch.cos(0.5 * math.pi * t)

    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""
        return torch.sin(0.5 * math.pi * t)

    def time(self, angle: Times) -> Times:
        """A multiple of the angle."""
        return angle / (0.5 * math.pi)


@final
@dataclass(frozen=True)
class VE(Schedule):
    r"""Variance exploding: $\alpha = 1$ and $\sigma$ geometric in time.

    Args:
        sigma_min: $\sigma$ at time 0.
        sigma_max: $\sigma$ at time 1.
        low: Time of the data.
        high: Time of the noise.

    References: `song2021score` Appendix B.
    """

    sigma_min: float = 0.002
    sigma_max: float = 80.0
    low: float = 0.0
    high: float = 1.0

    def alpha(self, t: Times) -> Times:
        """Factor of the data."""
        return torch.ones_like(t)

    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""
        return self.sigma_min * (self.sigma_max / self.sigma_min) ** t

    def time(self, angle: Times) -> Times:
        """Logarithmic in the noise."""
        ratio = math.log(self.sigma_max / self.sigma_min)
        return torch.log(torch.tan(angle) / self.sigma_min) / ratio


@final
@dataclass(frozen=True)
class EDM(Schedule):
    r"""$\alpha = 1$ and $\sigma = t$, with $\log \sigma$ normal in training.

    Args:
        low: Smallest $\sigma$.
        high: Largest $\sigma$.
        mean: Of $\log \sigma$ in training.
        sd: Of $\log \sigma$ in training.
        rho: Exponent of the spacing of $\sigma$ in samplers.

    References: `karras2022` Table 1 and Eq. (5).
    """

    low: float = 0.002
    high: float = 80.0
    mean: float = -1.2
    sd: float = 1.2
    rho: float = 7.0

    def alpha(self, t: Times) -> Times:
        """Factor of the data."""
        return torch.ones_like(t)

    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""
        return t

    def time(self, angle: Times) -> Times:
        """The noise itself."""
        return torch.tan(angle)

    def training_time(self, u: Times) -> Times:
        """Log-normal, cut at `low` and `high`."""
        normal = torch.special.ndtri(u.clamp(1e-6, 1 - 1e-6))
        return torch.exp(self.mean + self.sd * normal).clamp(self.low, self.high)

    def grid(self, steps: int) -> list[float]:
        r"""Angles whose $\sigma^{1/\rho}$ are evenly spaced."""
        require(steps >= 1, "steps", "be at least 1", steps)
        first, last = self.high ** (1 / self.rho), self.low ** (1 / self.rho)
        roots = torch.linspace(first, last, steps + 1, dtype=torch.float64)
        return roots.pow(self.rho).atan().tolist()


@final
@dataclass(frozen=True)
class Straight(Schedule):
    r"""Straight lines between data and noise: $\alpha = 1 - t$ and $\sigma = t$.

    The path of flow matching and of rectified flow.

    Args:
        low: Time of the data.
        high: Time of the noise.

    References: `lipman2023` Eq. (20); `liu2023` Eq. (1).
    """

    low: float = 0.0
    high: float = 1.0

    def alpha(self, t: Times) -> Times:
        """Factor of the data."""
        return 1 - t

    def sigma(self, t: Times) -> Times:
        """Standard deviation of the noise."""
        return t

    def time(self, angle: Times) -> Times:
        """The share of the noise."""
        sine, cosine = torch.sin(angle), torch.cos(angle)
        return sine / (sine + cosine)


SCHEDULES: dict[str, type[Schedule]] = {
    "vp": VP,
    "cosine": Cosine,
    "ve": VE,
    "edm": EDM,
    "straight": Straight,
}
"""Schedules by name."""
