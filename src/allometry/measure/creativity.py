r"""Creativity as information: the trade-off between novelty and quality of artefacts.

Letters: A an artefact among $a$, $\Theta$ the belief of an observer, $p(\theta|a)$ the belief
after seeing a (a channel with a row for each artefact), q(a) the quality of an artefact, p(a) its
probability, s the price of quality.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.threads import one_thread

Channel = Float[ndarray, "a theta"]


@final
@dataclass(frozen=True)
class Maker:
    r"""A distribution over artefacts on the frontier of novelty and quality.

    Attributes:
        novelty: $I(A; \Theta)$ in nats, the mean surprise.
        quality: $E[q(A)]$.
        distribution: p(a).
        gap: Upper bound of the missing novelty: the distance of the bounds.
    """

    novelty: float
    quality: float
    distribution: Float[ndarray, " a"]
    gap: float


def bayesian_surprise(
    posterior: Float[ndarray, "n theta"], prior: Float[ndarray, " theta"]
) -> Estimate:
    r"""Mean over samples of $D(p(\theta|a) \,\|\, p(\theta))$, in nats.

    Args:
        posterior: Belief after each sample, one row each.
        prior: Belief before.

    References: `itti2009` Eq. (2).
    """
    return uncertainty.mean(
        _surprises(_rows(posterior, "posterior"), prior), "independent samples"
    )


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
) -> Maker:
    r"""The maximiser of $I(A;\Theta) + s\,E[q(A)]$.

    Args:
        channel: $p(\theta|a)$, a row for each artefact.
        quality: q(a).
        price: s.
        tolerance: Largest gap of the bounds, in nats.

    References: `blahut1972` Theorem 8 for the bounds; `varshney2019`.
    """
    p, q = _checked(channel, quality)
    require(math.isfinite(price), "price", "be finite", price)
    return _maximum(p, q, price, None, tolerance)


def creativity(
    channel: Channel, quality: Float[ndarray, " a"], least: float, *, tolerance: float = 1e-8
) -> Maker:
    r"""$S(Q) = \max I(A;\Theta)$ subject to $E[q(A)] \ge Q$: a capacity-cost function.

    S is concave and decreasing in Q; Q above the best quality raises an error. The concave
    programme is solved directly, not by a search over prices: a linear piece of S has one price,
    whose maximiser lies at one of its ends. The gap is the distance to the upper bound
    $\min_{s \ge 0} \max_a D(p(\cdot|a)\|p(\cdot)) + s(q(a) - Q)$.

    Args:
        channel: $p(\theta|a)$, a row for each artefact.
        quality: q(a).
        least: Q.
        tolerance: Largest gap of the bounds, in nats.

    References: `varshney2019`; `blahut1972` Theorem 8 for the bounds; `boyd2004` chapter 11 for
    the interior point method.
    """
    p, q = _checked(channel, quality)
    require(bool(least <= q.max()), "creativity.least", f"be at most {q.max():g}, the best", least)
    span = float(q.max() - q.min())
    if least <= q.min():
        return _maximum(p, q, 0.0, None, tolerance)
    # Within rounding of the best quality, only the best artefacts are feasible.
    best = np.flatnonzero(q >= q.max() - 1e-13 * span)
    if least > q.max() - 1e-12 * span:
        among = _maximum(p[best], q[best], 0.0, None, tolerance)
        probs = np.zeros(len(q))
        probs[best] = among.distribution
        return Maker(among.novelty, float(probs @ q), probs, among.gap)
    return _maximum(p, q, 0.0, least, tolerance)


def _checked(channel: Channel, quality: Float[ndarray, " a"]) -> tuple[Channel, ndarray]:
    p = _rows(channel, "channel")
    q = np.asarray(quality, dtype=np.float64)
    require(q.shape == (len(p),), "quality", f"have {len(p)} entries", q.shape)
    require(bool(np.isfinite(q).all()), "quality", "be finite", "nan or inf")
    return p[:, p.max(0) > 0], q


def _maximum(
    p: Channel, q: Float[ndarray, " a"], price: float, least: float | None, tolerance: float
) -> Maker:
    """The maximiser by a barrier method: Newton steps for a decreasing barrier weight."""
    span = float(q.max() - q.min()) or 1.0
    # Scale quality to [0, 1], so that the result does not depend on its unit.
    scaled = (q - q.min()) / span
    problem = _Problem(
        p, scaled, price * span, None if least is None else (least - q.min()) / span
    )
    probs = problem.start()
    weight, best = 1.0, Maker(0.0, 0.0, probs, math.inf)
    with one_thread(len(q) < 400):
        while weight > 1e-15:
            probs = problem.centred(probs, weight)
            gap = problem.gap(probs)
            if gap < best.gap:
                novelty = float(probs @ problem.surprises(probs))
                best = Maker(novelty, float(probs @ q), probs, gap)
            if gap <= tolerance:
                break
            weight /= 5
    return best


@final
@dataclass(frozen=True)
class _Problem:
    """Minimise minus novelty minus price times quality, with mean quality above `least`."""

    p: Channel
    q: Float[ndarray, " a"]
    price: float
    least: float | None

    def start(self) -> Float[ndarray, " a"]:
        """A feasible distribution with positive probabilities."""
        even = np.full(len(self.q), 1 / len(self.q))
        if self.least is None or even @ self.q > (1 + self.least) / 2:
            return even
        best = self.q >= 1.0
        wanted, current = (1 + self.least) / 2, float(even @ self.q)
        share = (wanted - current) / (1 - current)
        return (1 - share) * even + share * best / best.sum()

    def surprises(self, probs: Float[ndarray, " a"]) -> Float[ndarray, " a"]:
        return _surprises(self.p, probs @ self.p)

    def value(self, probs: Float[ndarray, " a"], weight: float) -> float:
        """The objective plus the barrier; infinite outside the feasible set."""
        spare = 1.0 if self.least is None else float(probs @ self.q) - self.least
        if probs.min() <= 0 or spare <= 0:
            return math.inf
        objective = float(probs @ (self.surprises(probs) + self.price * self.q))
        return -objective - weight * float(np.log(probs).sum() + math.log(spare))

    def centred(self, probs: Float[ndarray, " a"], weight: float) -> Float[ndarray, " a"]:
        """The minimiser, by Newton's method scaled by the probabilities, with step halving."""
        current = self.value(probs, weight)
        for _ in range(50):
            step, decrement = self._step(probs, weight)
            if decrement < 1e-3 * weight:
                break
            pace = min(1.0, 0.99 / max(1e-300, float(-(step / probs).min())))
            while True:
                ahead = probs + pace * step
                tried = self.value(ahead / ahead.sum(), weight)
                if tried <= current - 0.1 * pace * decrement or pace < 1e-10:
                    break
                pace /= 2
            if not tried < current:
                break  # no descent within rounding
            probs, current = ahead / ahead.sum(), tried
        return probs

    def _step(self, probs: Float[ndarray, " a"], weight: float) -> tuple[ndarray, float]:
        """Newton step on the simplex, and twice its predicted decrease."""
        belief = probs @ self.p
        half = probs[:, None] * self.p / np.sqrt(belief)
        hessian = half @ half.T + weight * np.eye(len(probs))
        slope = -probs * (self.surprises(probs) + self.price * self.q) - weight
        if self.least is not None:
            spare = float(probs @ self.q) - self.least
            hessian += weight * np.outer(probs * self.q, probs * self.q) / spare**2
            slope = slope - weight * probs * self.q / spare
        # The probabilities keep their sum: one multiplier.
        solved = _solve(hessian, np.stack([slope, probs], 1), weight)
        along = solved[:, 0] - (probs @ solved[:, 0]) / (probs @ solved[:, 1]) * solved[:, 1]
        return -probs * along, float(slope @ along)

    def gap(self, probs: Float[ndarray, " a"]) -> float:
        """Upper bound of the possible gain, from duality."""
        payoff = self.surprises(probs) + self.price * self.q
        value = float(probs @ payoff)
        if self.least is None:
            return float(payoff.max()) - value
        return _dual_bound(payoff, self.q - self.least) - value


def _solve(
    hessian: Float[ndarray, "a a"], right: Float[ndarray, "a k"], least: float
) -> Float[ndarray, "a k"]:
    """The solution, for a matrix whose eigenvalues are at least `least` before rounding.

    Repeated artefacts leave eigenvalues of the barrier's weight alone, which rounding can bring
    to 0.
    """
    try:
        return np.linalg.solve(hessian, right)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        return vectors @ ((vectors.T @ right) / np.maximum(values, least)[:, None])


def _dual_bound(height: Float[ndarray, " a"], slope: Float[ndarray, " a"]) -> float:
    r"""$\min_{s \ge 0} \max_a h_a + s g_a$, if some slope is positive, by bisection."""
    low, high = 0.0, 1.0

    def rises(s: float) -> bool:
        return bool(slope[int(np.argmax(height + s * slope))] >= 0)

    while not rises(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    # Every price gives a bound, so the error of the bisection can't make the gap too small.
    return min(float((height + s * slope).max()) for s in (0.0, low, high))


def creativity_frontier(
    channel: Channel, quality: Float[ndarray, " a"], points: int = 20
) -> list[Maker]:
    """`creativity` at evenly spaced qualities, from that of the greatest novelty to the best."""
    require(points >= 2, "creativity_frontier.points", "be at least 2", points)
    q = np.asarray(quality, dtype=np.float64)
    free = best_maker(channel, q)
    return [creativity(channel, q, float(Q)) for Q in np.linspace(free.quality, q.max(), points)]
