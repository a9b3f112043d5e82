r"""Glicko-2 ratings: skill estimated from wins and losses, with a deviation.

Letters: $\mu$ rating and $\phi$ deviation on Glicko-2's scale, $\sigma$ volatility, $\tau$ the
system constant that limits changes of volatility.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import brentq

from allometry._core.errors import require

_SCALE = 173.7178


@final
@dataclass(frozen=True)
class Player:
    """A rating with its deviation and volatility; the defaults are those of a new player."""

    rating: float = 1500.0
    deviation: float = 350.0
    volatility: float = 0.06


def rate_period(
    player: Player,
    opponents: Sequence[Player],
    scores: Float[ndarray, " k"] | Sequence[float],
    games: int = 1,
    *,
    tau: float = 0.5,
) -> Player:
    r"""The rating after a period of `games` against each opponent.

    Args:
        player: The player before the period.
        opponents: The opponents before the period.
        scores: Mean result against each: 1 won, 0 lost.
        games: Number of games against each.
        tau: The system constant.

    References: `glickman2013`.
    """
    require(len(opponents) == len(scores), "scores", f"be {len(opponents)}", len(scores))
    mu, phi = (player.rating - 1500) / _SCALE, player.deviation / _SCALE
    information = gain = 0.0
    for opponent, score in zip(opponents, scores, strict=True):
        spread = opponent.deviation / _SCALE
        g = 1 / math.sqrt(1 + 3 * spread**2 / math.pi**2)
        expected = 1 / (1 + math.exp(-g * (mu - (opponent.rating - 1500) / _SCALE)))
        information += games * g * g * expected * (1 - expected)
        gain += games * g * (float(score) - expected)
    v = 1 / information
    volatility = _volatility(player.volatility, v * gain, phi, v, tau)
    widened = phi**2 + volatility**2
    new_phi = 1 / math.sqrt(1 / widened + information)
    return Player(1500 + _SCALE * (mu + new_phi**2 * gain), _SCALE * new_phi, volatility)


def _volatility(sigma: float, delta: float, phi: float, v: float, tau: float) -> float:
    a = math.log(sigma**2)

    def f(x: float) -> float:
        e = math.exp(x)
        whole = phi**2 + v + e
        return e * (delta**2 - whole) / (2 * whole**2) - (x - a) / tau**2

    # f decreases from positive to negative; the ends are moved out until they bracket the root.
    low, high = a - tau, a + tau
    while f(low) < 0:
        low -= tau
    while f(high) > 0:
        high += tau
    return math.exp(float(brentq(f, low, high, xtol=1e-10)) / 2)
