"""Likelihoods of decoders: Gaussian, Bernoulli, categorical, discretised logistic.

Shapes: n examples, "*event" shape of one; L levels.
"""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributions, nn
from torch.nn import functional as F

from allometry._core.errors import require

Event = Float[Tensor, "n *event"]
Data = Shaped[Tensor, "n *event"]


class Likelihood(nn.Module, ABC):
    """p(x | decoder output), independent over the entries of an example.

    Attributes:
        each: Decoder outputs per entry.
    """

    each: int = 1

    @abstractmethod
    def log_prob(self, numbers: Float[Tensor, "n *out"], x: Data) -> Float[Tensor, " n"]:
        """Log probability (or density) in nats."""

    @abstractmethod
    def law(self, numbers: Float[Tensor, "n *out"]) -> distributions.Distribution:
        """The same as a torch distribution, whose event is one example."""

    @abstractmethod
    def mean(self, numbers: Float[Tensor, "n *out"]) -> Event:
        """The mean example."""

    @abstractmethod
    def sample(self, numbers: Float[Tensor, "n *out"], rng: torch.Generator) -> Data:
        """One draw for each row."""


@final
class Gaussian(Likelihood):
    r"""$\mathcal N(x; \mu, \sigma^2)$ with one shared $\sigma$, learnt by default.

    With $\sigma$ fixed at 1 and data on [0, 1] the optimal posterior is the prior: a common cause
    of posterior collapse.

    Args:
        sigma: The standard deviation, or its initial value.
        learnt: Whether it is a parameter.

    References: `rybkin2021`.
    """

    def __init__(self, sigma: float = 0.3, learnt: bool = True) -> None:
        super().__init__()
        require(sigma > 0, "Gaussian.sigma", "be positive", sigma)
        self.log_sigma = nn.Parameter(torch.tensor(math.log(sigma)), requires_grad=learnt)

    def log_prob(self, numbers: Float[Tensor, "n *out"], x: Data) -> Float[Tensor, " n"]:
        """The normal density."""
        squares = ((x - numbers) * (-self.log_sigma).exp()).square().flatten(1).sum(1)
        size = x[0].numel()
        return -0.5 * squares - size * (self.log_sigma + 0.5 * math.log(2 * math.pi))

    def law(self, numbers: Float[Tensor, "n *out"]) -> distributions.Distribution:
        """Independent normal distributions."""
        sd = self.log_sigma.exp().expand_as(numbers)
        return distributions.Independent(distributions.Normal(numbers, sd), numbers.ndim - 1)

    def mean(self, numbers: Float[Tensor, "n *out"]) -> Event:
        """The decoder outputs themselves."""
        return numbers

    def sample(self, numbers: Float[Tensor, "n *out"], rng: torch.Generator) -> Data:
        """Means plus Gaussian noise."""
        noise = torch.randn(numbers.shape, generator=rng, dtype=numbers.dtype).to(numbers.device)
        return numbers + self.log_sigma.exp() * noise


@final
class Bernoulli(Likelihood):
    """Each entry is 1 with the sigmoid of its logit; values in [0, 1] get their cross-entropy."""

    def log_prob(self, numbers: Float[Tensor, "n *out"], x: Data) -> Float[Tensor, " n"]:
        """The log probability of 0s and 1s."""
        losses = F.binary_cross_entropy_with_logits(numbers, x.to(numbers.dtype), reduction="none")
        return -losses.flatten(1).sum(1)

    def law(self, numbers: Float[Tensor, "n *out"]) -> distributions.Distribution:
        """Independent Bernoulli distributions."""
        coins = distributions.Bernoulli(logits=numbers)
        return distributions.Independent(coins, numbers.ndim - 1)

    def mean(self, numbers: Float[Tensor, "n *out"]) -> Event:
        """The probabilities."""
        return numbers.sigmoid()

    def sample(self, numbers: Float[Tensor, "n *out"], rng: torch.Generator) -> Data:
        """0s and 1s."""
        # Drawn where the generator is, so that a seed gives the same numbers on every device.
        drawn = torch.bernoulli(numbers.sigmoid().to(rng.device), generator=rng)
        return drawn.to(numbers.device)


@final
class Categorical(Likelihood):
    """Each entry is one of L values, with L logits on the last axis of the decoder output.

    Args:
        levels: L.
    """

    def __init__(self, levels: int) -> None:
        super().__init__()
        require(levels >= 2, "Categorical.levels", "be at least 2", levels)
        self.each = levels

    def log_prob(self, numbers: Float[Tensor, "n *out"], x: Data) -> Float[Tensor, " n"]:
        """The log probability of integers."""
        log_p = numbers.log_softmax(-1)
        return log_p.gather(-1, x.long().unsqueeze(-1)).flatten(1).sum(1)

    def law(self, numbers: Float[Tensor, "n *out"]) -> distributions.Distribution:
        """Independent categorical distributions."""
        values = distributions.Categorical(logits=numbers)
        return distributions.Independent(values, numbers.ndim - 2)

    def mean(self, numbers: Float[Tensor, "n *out"]) -> Event:
        """The expected value."""
        values = torch.arange(self.each, dtype=numbers.dtype, device=numbers.device)
        return (numbers.softmax(-1) * values).sum(-1)

    def sample(self, numbers: Float[Tensor, "n *out"], rng: torch.Generator) -> Data:
        """Integers."""
        flat = numbers.softmax(-1).flatten(0, -2)
        drawn = torch.multinomial(flat.to(rng.device), 1, generator=rng).to(flat.device)
        return drawn.view(numbers.shape[:-1])


@final
class DiscretisedLogistic(Likelihood):
    r"""Integers 0 ... L - 1: the mass of a logistic distribution between x - 1/2 and x + 1/2.

    The first and the last value include the tails, so that the masses sum to 1. One shared scale
    is learnt.

    Args:
        levels: L.

    References: `salimans2017` Eq. (2), with one component.
    """

    def __init__(self, levels: int) -> None:
        super().__init__()
        require(levels >= 2, "DiscretisedLogistic.levels", "be at least 2", levels)
        self.levels = levels
        self.log_scale = nn.Parameter(torch.tensor(math.log(levels / 16)))

    def log_prob(self, numbers: Float[Tensor, "n *out"], x: Data) -> Float[Tensor, " n"]:
        """The log mass; decoder outputs are means in units of (L - 1) / 2 about the centre."""
        return self._each(numbers, x).flatten(1).sum(1)

    def _each(self, numbers: Tensor, x: Tensor) -> Tensor:
        scale = self.log_scale.exp()
        away = x.to(numbers.dtype) - self._centre(numbers)
        above, below = (away + 0.5) / scale, (away - 0.5) / scale
        # log(s(a) - s(b)) = log s(a) + log s(-b) + log(1 - e^(b - a)), stable in both tails.
        inside = (
            F.logsigmoid(above) + F.logsigmoid(-below) + torch.log(-torch.expm1(below - above))
        )
        return torch.where(
            x == 0,
            F.logsigmoid(above),
            torch.where(x == self.levels - 1, F.logsigmoid(-below), inside),
        )

    def _centre(self, numbers: Tensor) -> Tensor:
        return (numbers + 1) * (self.levels - 1) / 2

    def law(self, numbers: Float[Tensor, "n *out"]) -> distributions.Distribution:
        """Independent categorical distributions with these masses."""
        every = torch.arange(self.levels, device=numbers.device, dtype=numbers.dtype)
        masses = self._each(numbers.unsqueeze(-1), every.expand(*numbers.shape, self.levels))
        values = distributions.Categorical(logits=masses)
        return distributions.Independent(values, numbers.ndim - 1)

    def mean(self, numbers: Float[Tensor, "n *out"]) -> Event:
        """The centre, clamped to the range of values."""
        return self._centre(numbers).clamp(0, self.levels - 1)

    def sample(self, numbers: Float[Tensor, "n *out"], rng: torch.Generator) -> Data:
        """Integers."""
        u = torch.rand(numbers.shape, generator=rng, dtype=numbers.dtype).clamp(1e-6, 1 - 1e-6)
        u = u.to(numbers.device)
        drawn = self._centre(numbers) + self.log_scale.exp() * torch.logit(u)
        return drawn.round().clamp(0, self.levels - 1)
