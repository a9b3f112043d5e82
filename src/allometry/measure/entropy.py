"""Entropy of text from counts: Shannon's series, and regret against hindsight."""

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

    $F_0 = \log_2 V$; $F_k = H(k\text{-grams}) - H((k-1)\text{-grams})$ of the counts found. Their
    limit is the entropy rate. The counts are taken for probabilities, so each lies below the truth
    once grams get rare, and the intervals, from contiguous blocks, do not tell that.

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
    surprise = _surprises(np.asarray(ids, dtype=np.int64), vocabulary, order)
    shorter = np.zeros(len(ids))
    for grams in surprise:
        # H as a mean of surprises: then a block's part in the difference is known.
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
                method="counts for probabilities; " + spread.method,
            )
        )
        shorter = grams
    return out


def hindsight(ids: Ids, vocabulary: int, order: int) -> float:
    """Nats that a text takes under the best Markov chain of `order` chosen after seeing it.

    The first `order` symbols are free: the best chain may begin as it likes.
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
    """Nats that a sequential predictor lost on a text, beyond the best chain in hindsight."""
    require(len(losses) == len(ids), "regret.losses", "be one for each token", len(losses))
    return float(np.asarray(losses).sum()) - hindsight(ids, vocabulary, order)


def _surprises(text: ndarray, V: int, order: int) -> list[ndarray]:
    """For k = 1..order, minus the log frequency of the k-gram that ends at each token."""
    number = np.zeros(len(text) + 1, dtype=np.int64)
    out: list[ndarray] = []
    for n in range(1, order + 1):
        codes = number[: len(text) - n + 1] * V + text[n - 1 :]
        _, number, counts = np.unique(codes, return_inverse=True, return_counts=True)
        out.append(-np.log(counts[number] / len(codes)))
    return out
