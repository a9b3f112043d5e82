"""Statistics of generated text: repetition, diversity, surprisal."""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require


@final
class TextStatistics(NamedTuple):
    """Statistics of one generated text."""

    tokens: int
    surprise: float
    """Mean surprisal under the model, in nats per token."""
    perplexity: float
    repetition: float
    """Share of tokens that complete a repeated 4-gram."""
    distinct: tuple[float, float, float]
    """Number of distinct n-grams over the number of n-grams, for n = 1, 2, 3."""


def texture(
    tokens: Int[Tensor, " n"] | Sequence[int], surprise: Float[Tensor, " n"] | Sequence[float]
) -> TextStatistics:
    """Repetition, diversity and surprisal of a generated text.

    Args:
        tokens: The sampled tokens.
        surprise: Their surprisals under the model, in nats.

    References: `holtzman2020` Sec. 4; `li2016` for distinct n-grams.
    """
    ids = [int(t) for t in tokens]
    require(len(ids) > 0, "texture.tokens", "hold at least one", 0)
    require(len(surprise) == len(ids), "texture.surprise", "be one per token", len(surprise))
    mean = float(torch.as_tensor(surprise, dtype=torch.float64).mean())

    def grams(n: int) -> list[tuple[int, ...]]:
        return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]

    four = grams(4)
    repeated = len(four) - len(set(four))
    one, two, three = (len(set(g)) / max(1, len(g)) for g in (grams(1), grams(2), grams(3)))
    distinct = (one, two, three)
    return TextStatistics(
        len(ids), mean, float(torch.tensor(mean).exp()), repeated / max(1, len(four)), distinct
    )
