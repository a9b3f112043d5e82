r"""Universal predictors of bits with a fixed number of states: their regret does not vanish.

Shapes: K states, n bits, L bits of context.
"""

import math
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import special
from torch import Tensor

from allometry._core.errors import require
from allometry.models.ngram_models import Ids
from allometry.models.ngram_tables import checked


@final
class SaturatingCounter:
    r"""A saturating counter of K states that guesses one with probability $i/(K-1)$ in state i.

    The state rises with a one, falls with a zero and saturates at the ends. On any n bits it makes
    in expectation at most $\frac{n}{2(K-1)} + \frac K4$ more errors than the better constant
    guess, since each cycle up and down costs $1/(K-1)$. To first order in $1/K$ no deterministic
    machine of K states does better.

    Args:
        states: K.

    References: `meron2004`, the result on prediction errors; `feder1992` Sec. II for randomised
        guesses.
    """

    def __init__(self, states: int) -> None:
        require(states >= 2, "SaturatingCounter.states", "be at least 2", states)
        self.states = states
        self._at = states // 2

    @property
    def probability(self) -> float:
        """Probability that its next guess is a one."""
        return self._at / (self.states - 1)

    def update(self, ids: Ids) -> Float[Tensor, " n"]:
        """Read `bits`; returns for each the probability of a wrong guess."""
        wrong = np.empty(len(ids))
        top, at = self.states - 1, self._at
        # A loop, because each bit changes the state that predicts the next.
        for t, bit in enumerate(checked(ids, 2, "SaturatingCounter.update").tolist()):
            one = at / top
            wrong[t] = 1 - one if bit else one
            at = min(at + 1, top) if bit else max(at - 1, 0)
        self._at = at
        return torch.from_numpy(wrong)


@final
class DecayingMemory:
    r"""Probabilities of a bit from K states: an exponentially decaying mean on a grid.

    $p \leftarrow p + \alpha(x - p)$ with $\alpha = K^{-2/3}$, rounded to the grid. A window of
    about $1/\alpha$ bits has variance of order $\alpha$, and the grid adds a squared bias of
    $(1/K\alpha)^2$; this $\alpha$ minimises their sum. The code length then exceeds that of the
    best constant in hindsight by $O(K^{-2/3})$ nats per bit at any length. No deterministic
    machine does better than $\Theta(K^{-4/5})$.

    Differs from the paper: the grid is even in $\log p/(1-p)$, from $-\log K$ to $\log K$, so that
    rare bits have their own states, and upward steps are rounded to balance downward steps.

    Args:
        states: K, for each context.
        order: L; there are $2^L$ such machines, one for each context of L bits.

    References: `meron2004`, the result on code lengths.
    """

    def __init__(self, states: int, order: int = 0) -> None:
        require(states >= 4, "DecayingMemory.states", "be at least 4", states)
        require(0 <= order <= 16, "DecayingMemory.order", "be from 0 to 16", order)
        self.states, self.order = states, order
        reach = math.log(states)
        self._p = special.expit(-reach + 2 * reach * (np.arange(states) + 0.5) / states)
        self._up, self._down = _moves(self._p, states ** (-2 / 3))
        self._at = [states // 2] * 2**order
        self._context = 0

    @property
    def N(self) -> int:
        """Number of machines: one stored number each."""
        return len(self._at)

    def update(self, ids: Ids) -> Float[Tensor, " n"]:
        """Read `bits`; returns the log-probability of each before it was seen."""
        at, mask, context = self._at, len(self._at) - 1, self._context
        moves = (self._down.tolist(), self._up.tolist())
        p = (1 - self._p).tolist(), self._p.tolist()
        seen = np.empty(len(ids))
        for t, bit in enumerate(checked(ids, 2, "DecayingMemory.update").tolist()):
            state = at[context]
            seen[t] = p[bit][state]
            at[context] = moves[bit][state]
            context = (2 * context + bit) & mask
        self._context = context
        return torch.from_numpy(np.log(seen))

    def probabilities(self) -> Float[Tensor, " 2"]:
        """The distribution of the next bit."""
        one = self._p[self._at[self._context]]
        return torch.tensor([1 - one, one], dtype=torch.float64)


def _moves(p: Float[ndarray, " K"], rate: float) -> tuple[Int[ndarray, " K"], Int[ndarray, " K"]]:
    """The next state after a one and after a zero, for each state."""
    K = len(p)
    up, down = np.empty(K, dtype=np.int64), np.empty(K, dtype=np.int64)
    for k in range((K + 1) // 2):
        nearest = int(np.abs(p - (1 - rate) * p[k]).argmin())
        down[k] = max(min(nearest, k - 1), 0)
        # In equilibrium p (rise) = (1 - p) (fall): the rise compensates the rounding of the fall.
        fall = p[k] - p[down[k]] if k else rate * p[0]
        rise = fall * (1 - p[k]) / p[k]
        up[k] = min(max(int(np.abs(p - p[k] - rise).argmin()), k + 1), K - 1)
    for k in range((K + 1) // 2, K):
        up[k], down[k] = K - 1 - down[K - 1 - k], K - 1 - up[K - 1 - k]
    return up, down
