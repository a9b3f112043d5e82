r"""f-divergences and their variational bounds, the basis of f-GAN costs.

$D_f(P\|Q) = \int q\,f(p/q)\,dx = \sup_T E_P[T] - E_Q[f^*(T)]$, with f convex, $f(1) = 0$ and
$f^*(t) = \sup_u ut - f(u)$. Notation: u the ratio p/q, t the critic's value, v its raw output.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate

Scalar = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True)
class Divergence:
    r"""A convex f with its conjugate.

    Args:
        name: Short name.
        f: The function of the ratio, $f(1) = 0$.
        conjugate: $f^*$.
        activation: Increasing map from the real numbers to the domain of $f^*$.
        ratio: $(f^*)'$, which maps the optimal critic's value to $p/q$; `None` if f has a kink, so
            that the critic does not determine the ratio.

    References: `nowozin2016` Tables 2 and 6.
    """

    name: str
    f: Scalar
    conjugate: Scalar
    activation: Scalar
    ratio: Scalar | None = None

    def critic(self, raw: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """The critic's value t of raw outputs."""
        return self.activation(raw)

    def bound(self, real: Float[Tensor, " n"], fake: Float[Tensor, " m"]) -> Float[Tensor, ""]:
        """The variational lower bound, from raw outputs on draws of P and of Q."""
        return self.critic(real).mean() - self.conjugate(self.critic(fake)).mean()

    def density_ratio(self, raw: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """The density ratio p/q estimated by the critic."""
        if self.ratio is None:
            raise InputError(f"{self.name} has no density ratio: its optimal critic is a sign.")
        return self.ratio(self.critic(raw))


KL = Divergence(
    "Kullback-Leibler",
    f=lambda u: torch.xlogy(u, u),
    conjugate=lambda t: (t - 1).exp(),
    activation=lambda v: v,
    ratio=lambda t: (t - 1).exp(),
)

REVERSE_KL = Divergence(
    "reverse Kullback-Leibler",
    f=lambda u: -u.log(),
    conjugate=lambda t: -1 - (-t).log(),
    activation=lambda v: -(-v).exp(),
    ratio=lambda t: -1 / t,
)

JENSEN_SHANNON = Divergence(
    "Jensen-Shannon",
    # Twice the usual definition, as in the paper.
    f=lambda u: torch.xlogy(u, u) - (u + 1) * ((u + 1) / 2).log(),
    conjugate=lambda t: -(2 - t.exp()).log(),
    activation=lambda v: math.log(2) - functional.softplus(-v),
    ratio=lambda t: t.exp() / (2 - t.exp()),
)

PEARSON = Divergence(
    "Pearson chi-squared",
    f=lambda u: (u - 1).square(),
    conjugate=lambda t: t.square() / 4 + t,
    # Below -2 the ratio would be negative; the exponential keeps the critic above.
    activation=lambda v: 2 * (v.exp() - 1),
    ratio=lambda t: t / 2 + 1,
)

HELLINGER = Divergence(
    "squared Hellinger",
    f=lambda u: (u.sqrt() - 1).square(),
    conjugate=lambda t: t / (1 - t),
    activation=lambda v: 1 - (-v).exp(),
    ratio=lambda t: (1 - t) ** -2,
)

TOTAL_VARIATION = Divergence(
    "total variation",
    f=lambda u: (u - 1).abs() / 2,
    conjugate=lambda t: t,
    activation=lambda v: v.tanh() / 2,
)

DIVERGENCES = (KL, REVERSE_KL, JENSEN_SHANNON, PEARSON, HELLINGER, TOTAL_VARIATION)


def variational_estimate(
    divergence: Divergence,
    critic: nn.Module,
    real: Float[Tensor, "n d"],
    samples: Float[Tensor, "m d"],
    *,
    steps: int = 400,
    batch: int = 512,
    lr: float = 1e-2,
    seed: int = 0,
) -> Estimate:
    r"""$D_f(P\|Q)$ from samples: a critic is trained on one half and evaluated on the other.

    The critic is trained in place. The expectation on the held-out half is a lower bound of the
    divergence, tight for the optimal critic; the interval is over held-out rows.

    Args:
        divergence: The f-divergence.
        critic: A module from points (n, d) to raw outputs (n,) or (n, 1).
        real: Draws of P.
        samples: Draws of Q.
        steps: Steps of Adam, with a rate that decays to zero.
        batch: Rows of each sample in a step.
        lr: Initial rate.
        seed: Seed of halves and batches.

    References: `nowozin2016` Eq. (4).
    """
    require(min(len(real), len(samples)) >= 4, "real and samples", "have 4 rows or more", "fewer")
    rng = torch.Generator().manual_seed(seed)
    (a, a_held), (b, b_held) = _halves(real, rng), _halves(samples, rng)
    optimiser = torch.optim.Adam(critic.parameters(), lr=lr)
    fall = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 1e-3, total_iters=steps)
    for _ in range(steps):
        rows, columns = (torch.randint(len(s), (batch,), generator=rng) for s in (a, b))
        loss = -divergence.bound(critic(a[rows]).reshape(-1), critic(b[columns]).reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        fall.step()
    with torch.no_grad():
        t = divergence.critic(critic(a_held).reshape(-1)).double()
        other = divergence.conjugate(divergence.critic(critic(b_held).reshape(-1))).double()
    se = math.sqrt(float(t.var() / len(t) + other.var() / len(other)))
    words = "held-out rows, given the critic: a lower bound"
    return Estimate(float(t.mean() - other.mean()), se=se, n=len(t) + len(other), method=words)


def _halves(x: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(x), generator=rng)
    return x[order[: len(x) // 2]], x[order[len(x) // 2 :]]
