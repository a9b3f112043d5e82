"""Entropy of text from counts: Shannon's series, and regret against the best Markov chain."""

import math

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure.likelihood import block_mean, scaled

Ids = Int[Tensor, " tokens"] | Int[ndarray, " tokens"]


def shannon(ids: Ids, vocabulary: int, order: int) -> list[Estimate]:
    r"""Shannon's $F_0, \dots, F_k$ in bits: the entropy of a symbol given the k - 1 before it.

    $F_0 = \log_2 V$; $F_k = H(k\text{-grams}) - H((k-1)\text{-grams})$ of the empirical counts.
    Their limit is the entropy rate. These plug-in estimates are biased downwards for rare grams;
    the intervals, from contiguous blocks, do not include that bias.

    Args:
        ids: The text.
        vocabulary: V.
        order: k, the largest.

    References: `shannon1951` Eq. (1).
    """
    require(order >= 0, "shannon.order", "be at least 0", order)
    require(vocabulary >= 1, "shannon.vocabulary", "be at least 1", vocabulary)
    require(len(ids) > order, "shannon.ids", f"be more than {order}", len(ids))
    out = [Estimate(float(np.log2(vocabulary)), exact=True)]
    surprisals = _surprisals(np.asarray(ids, dtype=np.int64), vocabulary, order)
    shorter = np.zeros(len(ids))
    for grams in surprisals:
        # H is a mean of surprisals, so each block contributes to the difference.
        spread = block_mean(grams - shorter[-len(grams) :])
        value = float(grams.mean() - shorter.mean()) / math.log(2)
        around = scaled(spread, 1 / math.log(2))
        shift = value - around.value
        out.append(
            Estimate(
                value,
                se=around.se,
                lo=None if around.lo is None else around.lo + shift,
                hi=None if around.hi is None else around.hi + shift,
                n=len(grams),
                method="plug-in estimate; " + spread.method,
            )
        )
        shorter = grams
    return out


def hindsight(ids: Ids, vocabulary: int, order: int) -> float:
    """Code length in nats of a text under its maximum-likelihood Markov chain of `order`.

    The first `order` symbols cost nothing.
    """
    text = np.asarray(ids, dtype=np.int64)
    require(order >= 0, "hindsight.order", "be at least 0", order)
    require(len(text) > order, "hindsight.ids", f"be more than {order}", len(text))
    node = np.zeros(len(text) - order, dtype=np.int64)
    for d in range(1, order + 1):
        node = np.unique(node * vocabulary + text[order - d : -d], return_inverse=True)[1]
    _, gram, counts = np.unique(
        node * vocabulary + text[order:], return_inverse=True, return_counts=True
    )
    return float(-np.log(counts[gram] / np.bincount(node)[node]).sum())


def regret(
    losses: "Float[Tensor, ' tokens'] | Float[ndarray, ' tokens']",
    ids: Ids,
    vocabulary: int,
    order: int,
) -> float:
    """Excess loss in nats of a sequential predictor over the best Markov chain in hindsight."""
    require(len(losses) == len(ids), "regret.losses", "be one for each token", len(losses))
    return float(np.asarray(losses).sum()) - hindsight(ids, vocabulary, order)


def _surprisals(text: ndarray, V: int, order: int) -> list[ndarray]:
    """For k = 1..order, minus the log frequency of the k-gram that ends at each token."""
    number = np.zeros(len(text) + 1, dtype=np.int64)
    out: list[ndarray] = []
    for n in range(1, order + 1):
        codes = number[: len(text) - n + 1] * V + text[n - 1 :]
        _, number, counts = np.unique(codes, return_inverse=True, return_counts=True)
        out.append(-np.log(counts[number] / len(codes)))
    return out
