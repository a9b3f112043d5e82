"""Mirostat: sampling with feedback control of the surprisal."""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require
from allometry.decode.strategies import keep


@final
class Mirostat:
    r"""A truncation whose threshold $\mu$ is updated after every token by its surprisal.

    $\mu_{t+1} = \mu_t - \eta\,(S_t - \tau)$ with $S_t = -\log_2 p(x_t)$ under the distribution
    before truncation. Hence, exactly, $\frac1T \sum_t S_t = \tau + (\mu_0 - \mu_T)/(\eta T)$.

    Version 2 keeps tokens of surprisal at most $\mu$. Version 1 keeps the k likeliest tokens, with
    $k = \big(\hat\epsilon\, 2^\mu / (1 - V^{-\hat\epsilon})\big)^{1/\hat s}$ for a Zipf
    distribution whose exponent $\hat s = 1 + \hat\epsilon$ is estimated from the m likeliest
    tokens. The likeliest token is always kept.

    Args:
        tau: Target surprisal in bits.
        eta: Learning rate of the threshold.
        version: 1 or 2.
        m: Number of tokens from which version 1 estimates the exponent.

    References: `basu2021` Algorithm 1; version 2 is its simplification in the authors' code.
    """

    def __init__(self, tau: float | int, eta: float = 0.1, version: int = 2, m: int = 100) -> None:
        require(tau > 0, "mirostat.tau", "be positive", tau)
        require(eta > 0, "mirostat.eta", "be positive", eta)
        require(version in (1, 2), "mirostat.version", "be 1 or 2", version)
        require(m >= 2, "mirostat.m", "be at least 2", m)
        self.tau = float(tau)
        self.eta = eta
        self.version = version
        self.m = m

    def start(self, prompts: Sequence[Tensor], V: int) -> Float[Tensor, " b"]:
        r"""$\mu_0 = 2\tau$ for every sequence."""
        return torch.full((len(prompts),), 2 * self.tau, dtype=torch.float64)

    def apply(
        self, logits: Float[Tensor, "b V"], state: Float[Tensor, " b"]
    ) -> Float[Tensor, "b V"]:
        """The truncated logits."""
        if self.version == 2:
            return keep(logits, _surprisal(logits) <= state[:, None])
        k = self.edge(logits, state)
        order = logits.argsort(dim=-1, descending=True, stable=True)
        rank = torch.arange(logits.shape[-1]).expand_as(order)
        return keep(
            logits, torch.zeros_like(rank, dtype=torch.bool).scatter(-1, order, rank < k[:, None])
        )

    def edge(self, logits: Float[Tensor, "b V"], mu: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """Number of tokens that version 1 keeps."""
        V = logits.shape[-1]
        m = min(self.m, V)
        log_p = logits.double().log_softmax(-1).topk(m).values.clamp(min=-700)
        i = torch.arange(1, m, dtype=torch.float64)
        t = ((i + 1) / i).log()
        s = ((-log_p.diff(dim=-1)) * t).sum(-1) / t.square().sum() if m > 1 else mu.new_ones(())
        s = s.clamp(min=1e-6)
        e = s - 1
        # e / (1 - V^-e) tends to 1 / log V for e -> 0, where the quotient is 0 / 0.
        near = e.abs() < 1e-9
        ratio = torch.where(near, 1.0, e) / -torch.expm1(-torch.where(near, 1.0, e) * math.log(V))
        ratio = torch.where(near, torch.full_like(e, 1 / math.log(max(V, 2))), ratio)
        log_k = (ratio.log() + mu * math.log(2)) / s
        return log_k.clamp(0, math.log(V)).exp().round().long()

    def advance(
        self, state: Float[Tensor, " b"], logits: Float[Tensor, "b V"], tokens: Int[Tensor, " b"]
    ) -> Float[Tensor, " b"]:
        r"""The threshold $\mu$ after a token was sampled."""
        observed = _surprisal(logits).gather(-1, tokens.clamp(min=0)[:, None])[:, 0]
        return torch.where(tokens < 0, state, state - self.eta * (observed - self.tau))


def mirostat(tau: float | int, eta: float = 0.1, version: int = 2, m: int = 100) -> Mirostat:
    """The strategy `Mirostat`."""
    return Mirostat(tau, eta, version, m)


def _surprisal(logits: Tensor) -> Tensor:
    """Surprisal in bits, finite even for impossible tokens."""
    return -logits.double().log_softmax(-1).clamp(min=-1e4) / math.log(2)
