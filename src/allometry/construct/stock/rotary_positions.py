r"""Absolute positions in an architecture that has rotary positions only.

The start token is at position 0 and nowhere else. A head whose keys are 0 at all other tokens
gives the start token the score $A \cos(t\theta_i + \varphi)$ at position t, from pair i of its
coordinates, and all others the score 0. With $|A \cos(\cdot)|$ at least `SHARP` the weight of the
start token is 1 or 0 to the last bit. So each head fetches one exact bit of a code of t, and a
neuron for each position recognises its code.

Letters: n positions, M pairs of coordinates of a head, $\theta_i = \beta^{-i/M}$.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from allometry._core.errors import InputError

SHARP = 128.0
"""Smallest score of the start token by amount, in nats: e^-128 is 0 in float32."""
PAIRS = 32
"""Smallest number of pairs of a head: the root of the head size is then exact."""
STILL = 2.0**-26
"""Largest angle in radians by which a pair with content may turn over all positions."""
FEWEST = 4
"""Smallest number of pairs that turn."""
PHASES = 16
"""Candidate phases of a pair."""
ROUNDED = 2.0**-20
"""Least |cos| of a bit over the largest angle: 16 times the rounding of angles in float32."""

Signs = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True)
class Bit:
    r"""A head that fetches one bit of the code.

    Attributes:
        pair: i.
        cosine: $A \cos\varphi$.
        sine: $A \sin\varphi$.
    """

    pair: int
    cosine: float
    sine: float


@final
@dataclass(frozen=True)
class Rotation:
    """Which pairs of a head turn, and the code of positions.

    Attributes:
        pairs: M.
        still: The first pair that does not turn: content is stored from here on.
        base: The rotary base, beta.
        bits: The heads.
        codes: Bits of each position from 1 on, (n - 1, bits).
    """

    pairs: int
    still: int
    base: float
    bits: tuple[Bit, ...]
    codes: Signs


def rotation(n: int, content: int, coded: bool) -> Rotation:
    """The rotary base for n positions, and a code of them.

    Args:
        n: Number of positions.
        content: Number of coordinates of a head that must not turn.
        coded: Whether positions are needed at all.
    """
    pairs = PAIRS
    while pairs - -(-content // 2) < FEWEST:
        pairs *= 4  # the head size stays an even power of 2
    still = pairs - -(-content // 2)
    ratio = (max(n, 2) / STILL) ** (1 / still)
    base = 2.0 ** math.ceil(pairs * math.log2(ratio))
    if base > 2.0**120:
        raise InputError(
            f"export.made must have heads of fewer coordinates for Llama; got {content} at "
            f"{n:,} positions. Use to='hf' without an architecture."
        )
    bits, codes = _code(n, base, pairs) if coded else ((), np.zeros((n - 1, 0), np.bool_))
    return Rotation(pairs, still, base, bits, codes)


def _code(n: int, base: float, pairs: int) -> tuple[tuple[Bit, ...], Signs]:
    """Heads that give every position another code, each chosen to separate most positions."""
    at = np.arange(1, n)
    candidates: list[Bit] = []
    rows: list[Signs] = []
    for pair in range(pairs):
        angle = base ** (-pair / pairs)
        if pair and angle * n < math.pi / 4:
            break
        # The sign changes between two positions, at most half a turn after the first.
        last = min(n - 1, math.ceil(math.pi / angle) + 1)
        for k in np.unique(np.linspace(0, last - 1, PHASES).astype(int)):
            phase = math.pi / 2 - angle * (int(k) + 0.5)
            score = np.cos(angle * at + phase)
            least = float(np.abs(score).min())
            if least < ROUNDED * max(1.0, angle * n):
                continue
            size = SHARP / least
            candidates.append(Bit(pair, size * math.cos(phase), size * math.sin(phase)))
            rows.append(score > 0)
    signs = np.array(rows)
    chosen: list[int] = []
    classes = np.zeros(len(at), np.int64)
    while len(np.unique(classes)) < len(at):
        # The number of pairs of positions with equal codes, for each candidate.
        left = [int((np.bincount(2 * classes + row).astype(np.int64) ** 2).sum()) for row in signs]
        best = int(np.argmin(left))
        if len(np.unique(2 * classes + signs[best])) == len(np.unique(classes)):
            raise InputError(
                f"export.made must have positions that rotary heads distinguish; got {n:,}. Use "
                "to='hf' without an architecture."
            )
        chosen.append(best)
        classes = np.unique(2 * classes + signs[best], return_inverse=True)[1]
    return tuple(candidates[i] for i in chosen), signs[chosen].T
