r"""Creativity as information: how novel artefacts can be that are also good.

Letters: A an artefact among $a$, $\Theta$ what an observer believes, $p(\theta|a)$ the belief
after seeing a (a channel with a row for each artefact), q(a) the artefact's quality, p(a) how
often it is made, s the price of quality.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import brentq
from scipy.special import logsumexp

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import interval

Channel = Float[ndarray, "a theta"]


@final
@dataclass(frozen=True)
class Maker:
    r"""A way of making artefacts on the frontier of novelty and quality.

    Attributes:
        novelty: $I(A; \Theta)$ in nats, the mean surprise.
        quality: $E[q(A)]$.
        law: p(a).
        gap: Novelty that may still be missing: the distance of Blahut's two bounds.
    """

    novelty: float
    quality: float
    law: Float[ndarray, " a"]
    gap: float


def bayesian_surprise(
    posterior: Float[ndarray, "n theta"], prior: Float[ndarray, " theta"]
) -> Estimate:
    r"""Mean over samples of $D(p(\theta|a) \,\|\, p(\theta))$, in nats: how much each teaches.

    Args:
        posterior: Belief after each sample, a row each.
        prior: Belief before.

    References: `itti2009` Eq. (2).
    """
    return interval.mean(_surprises(_rows(posterior, "posterior"), prior), "independent samples")


def _surprises(channel: Channel, belief: Float[ndarray, " theta"]) -> Float[ndarray, " a"]:
    belief = np.asarray(belief, dtype=np.float64)
    require(
        bool(belief.shape == channel.shape[1:] and (belief >= 0).all() and belief.sum() > 0),
        "prior",
        f"be {channel.shape[1]} probabilities",
        belief,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(channel) - np.log(belief / belief.sum())
        return np.where(channel > 0, channel * logs, 0.0).sum(1)


def _rows(channel: Channel, name: str) -> Channel:
    p = np.asarray(channel, dtype=np.float64)
    fine = p.ndim == 2 and bool((p >= 0).all()) and bool(np.allclose(p.sum(1), 1, atol=1e-6))
    require(fine, name, "have rows of probabilities that sum to 1", np.shape(channel))
    return p / p.sum(1, keepdims=True)


def best_maker(
    channel: Channel,
    quality: Float[ndarray, " a"],
    price: float = 0.0,
    *,
    tolerance: float = 1e-8,
    rounds: int = 20_000,
) -> Maker:
    r"""The maximiser of $I(A;\Theta) + s\,E[q(A)]$ by Blahut and Arimoto's iteration.

    $p(a) \leftarrow p(a)\,e^{D(p(\cdot|a)\|p(\cdot)) + s q(a)} / \text{sum}$, until the largest
    exponent and its mean are within `tolerance` nats, which bounds what is missing.

    References: `blahut1972` Theorem 8; `varshney2019`.
    """
    p = _rows(channel, "channel")
    q = np.asarray(quality, dtype=np.float64)
    require(q.shape == (len(p),), "quality", f"have {len(p)} entries", q.shape)
    require(math.isfinite(price), "price", "be finite", price)
    log_law, pace = np.full(len(p), -math.log(len(p))), 1.0
    gains, gap, value = _gains(p, q, price, log_law)
    for _ in range(rounds):
        if gap <= tolerance:
            break
        ahead = log_law + pace * gains
        ahead -= logsumexp(ahead)
        tried = _gains(p, q, price, ahead)
        # Steps longer than Blahut's are kept as long as they lead up; his own always do.
        if tried[2] >= value or pace == 1.0:
            log_law, (gains, gap, value), pace = ahead, tried, 1.5 * pace
        else:
            pace = max(1.0, pace / 4)
    law = np.exp(log_law)
    novelty = float(law @ _surprises(p, law @ p))
    return Maker(novelty, float(law @ q), law, gap)


def _gains(
    p: Channel, q: Float[ndarray, " a"], price: float, log_law: Float[ndarray, " a"]
) -> tuple[Float[ndarray, " a"], float, float]:
    """What each artefact is worth, the gap of the bounds, and the lower one."""
    law = np.exp(log_law)
    # A law that has all but left an artefact out must not divide by 0 where only that one leads.
    gains = _surprises(p, (law + 1e-300) @ p) + price * q
    value = float(law @ gains)
    return gains, float(gains.max()) - value, value


def creativity(
    channel: Channel, quality: Float[ndarray, " a"], least: float, *, tolerance: float = 1e-7
) -> Maker:
    r"""$S(Q) = \max I(A;\Theta)$ subject to $E[q(A)] \ge Q$: a capacity-cost function.

    S is concave and falls as Q rises; Q above the best artefact's quality is refused. The price of
    quality at which the constraint holds is found by Brent's method.

    Args:
        channel: $p(\theta|a)$, a row for each artefact.
        quality: q(a).
        least: Q.
        tolerance: Of E[q] about Q.

    References: `varshney2019`; `blahut1972`.
    """
    q = np.asarray(quality, dtype=np.float64)
    require(bool(least <= q.max()), "creativity.least", f"be at most {q.max():g}, the best", least)
    free = best_maker(channel, q)
    if free.quality >= least:
        return free
    scale = float(q.max() - q.min())
    if least >= q.max() - tolerance * scale:
        best = np.flatnonzero(q >= q.max() - 1e-12 * scale)
        among = best_maker(np.asarray(channel)[best], q[best])
        law = np.zeros(len(q))
        law[best] = among.law
        return Maker(among.novelty, float(law @ q), law, among.gap)
    high = 1 / scale
    while best_maker(channel, q, high).quality < least:
        high *= 2

    def short(price: float) -> float:
        return best_maker(channel, q, price).quality - least

    price = float(brentq(short, 0.0, high, xtol=tolerance * high, rtol=1e-12))
    found = best_maker(channel, q, price)
    # The root is met from either side: a last nudge puts the quality where it was asked for.
    while found.quality < least - tolerance * scale:
        price *= 1 + 1e-6
        found = best_maker(channel, q, price)
    return found


def creativity_frontier(
    channel: Channel, quality: Float[ndarray, " a"], points: int = 20
) -> list[Maker]:
    """`creativity` at evenly spaced qualities from that of the most novel maker to the best."""
    require(points >= 2, "creativity_frontier.points", "be at least 2", points)
    q = np.asarray(quality, dtype=np.float64)
    free = best_maker(channel, q)
    return [creativity(channel, q, float(Q)) for Q in np.linspace(free.quality, q.max(), points)]
