"""Markov chain Monte Carlo: Metropolis-Hastings, Hamiltonian Monte Carlo, diagnostics.

Shapes: n kept steps, m chains, d dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import fft
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate

LogDensity = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True)
class Chains:
    """Draws of Markov chains after warm-up.

    Args:
        draws: (n, m, d).
        acceptance: Fraction of accepted proposals.
    """

    draws: Float[Tensor, "n m d"]
    acceptance: float

    def rhat(self) -> Float[ndarray, " d"]:
        """Split R-hat of each coordinate."""
        return rhat(self.draws.numpy())

    def effective_sample_size(self) -> Float[ndarray, " d"]:
        """Effective sample size for the mean of each coordinate."""
        return effective_sample_size(self.draws.numpy())

    def mean(self) -> list[Estimate]:
        """The mean of each coordinate with its Monte Carlo error."""
        x = self.draws.numpy().reshape(-1, self.draws.shape[2])
        sizes = self.effective_sample_size()
        return [
            Estimate(float(a), float(s / np.sqrt(w)), n=round(w), method="effective sample size")
            for a, s, w in zip(x.mean(0), x.std(0, ddof=1), sizes, strict=True)
        ]


def metropolis(
    log_density: LogDensity,
    start: Float[Tensor, "m d"],
    steps: int,
    scale: float,
    rng: torch.Generator,
    warmup: int | None = None,
) -> Chains:
    r"""Random-walk Metropolis: $x' = x + s\,\varepsilon$, accepted with $\min(1, p(x') / p(x))$.

    Args:
        log_density: Up to a constant, on (m, d).
        start: Initial point of each chain.
        steps: Steps after warm-up.
        scale: s.
        rng: Random generator.
        warmup: Warm-up steps; default: `steps`.

    References: `metropolis1953`; `hastings1970`.
    """
    require(steps >= 4, "metropolis.steps", "be at least 4", steps)
    require(scale > 0, "metropolis.scale", "be positive", scale)
    warmup = steps if warmup is None else warmup
    x, log_p = start.clone(), log_density(start)
    kept, taken = [], 0
    for i in range(warmup + steps):
        new = x + scale * torch.randn(x.shape, generator=rng, dtype=x.dtype)
        log_new = log_density(new)
        u = torch.rand(len(x), generator=rng, dtype=x.dtype)
        take = u.log() < log_new - log_p
        x, log_p = torch.where(take[:, None], new, x), torch.where(take, log_new, log_p)
        if i >= warmup:
            kept.append(x)
            taken += int(take.sum())
    return Chains(torch.stack(kept), taken / (steps * len(x)))


def hamiltonian(
    log_density: LogDensity,
    start: Float[Tensor, "m d"],
    steps: int,
    step_size: float,
    rng: torch.Generator,
    leaps: int = 10,
    warmup: int | None = None,
) -> Chains:
    r"""Hamiltonian Monte Carlo: `leaps` leapfrog steps of $H = -\log p(x) + \tfrac12 |v|^2$.

    Args:
        log_density: Up to a constant, on (m, d); differentiated by torch.
        start: Initial point of each chain.
        steps: Steps after warm-up.
        step_size: Step size of the leapfrog integrator.
        rng: Random generator.
        leaps: Leapfrog steps per proposal.
        warmup: Warm-up steps; default: `steps`.

    References: `neal2011` Figure 2.
    """
    require(steps >= 4, "hamiltonian.steps", "be at least 4", steps)
    require(step_size > 0, "hamiltonian.step_size", "be positive", step_size)
    require(leaps >= 1, "hamiltonian.leaps", "be at least 1", leaps)
    warmup = steps if warmup is None else warmup

    def slope(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            log_p = log_density(x)
            return log_p.detach(), torch.autograd.grad(log_p.sum(), x)[0]

    x = start.clone()
    log_p, g = slope(x)
    kept, taken = [], 0
    for i in range(warmup + steps):
        v = torch.randn(x.shape, generator=rng, dtype=x.dtype)
        energy = log_p - 0.5 * v.square().sum(1)
        new, log_new, g_new = x, log_p, g
        for _ in range(leaps):
            v = v + 0.5 * step_size * g_new
            new = new + step_size * v
            log_new, g_new = slope(new)
            v = v + 0.5 * step_size * g_new
        change = log_new - 0.5 * v.square().sum(1) - energy
        take = torch.rand(len(x), generator=rng, dtype=x.dtype).log() < change
        wide = take[:, None]
        x, g = torch.where(wide, new, x), torch.where(wide, g_new, g)
        log_p = torch.where(take, log_new, log_p)
        if i >= warmup:
            kept.append(x)
            taken += int(take.sum())
    return Chains(torch.stack(kept), taken / (steps * len(x)))


def rhat(draws: Float[ndarray, "n m d"]) -> Float[ndarray, " d"]:
    r"""Split R-hat: $\sqrt{\hat V / W}$ over the halves of the chains; near 1 if they agree.

    References: `gelman2013` section 11.4.
    """
    n = len(draws) // 2
    halves = np.concatenate([draws[:n], draws[n : 2 * n]], 1)
    within = halves.var(0, ddof=1).mean(0)
    between = n * halves.mean(0).var(0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def effective_sample_size(draws: Float[ndarray, "n m d"]) -> Float[ndarray, " d"]:
    r"""$n m / (1 + 2 \sum_t \hat\rho_t)$, the sum stopped by Geyer's initial monotone pairs.

    References: `gelman2013` section 11.5; `geyer1992`.
    """
    n, m, _ = draws.shape
    centred = draws - draws.mean(0)
    size = fft.next_fast_len(2 * n)
    spectrum = np.abs(np.fft.rfft(centred, size, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=0)[:n] / n
    within = (covariance[0] * n / (n - 1)).mean(0)
    between = draws.mean(0).var(0, ddof=1) if m > 1 else np.zeros(draws.shape[2])
    total = (n - 1) / n * within + between
    rho = 1 - (within - covariance.mean(1) * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2, draws.shape[2]).sum(1)
    pairs = np.minimum.accumulate(pairs, 0)
    # Everything from the first non-positive pair on is noise.
    pairs = np.where(np.logical_and.accumulate(pairs > 0, 0), pairs, 0.0)
    tau = 2 * pairs.sum(0) - 1
    return n * m / np.maximum(tau, 1 / np.log10(max(10, n * m)))
