r"""Pretraining tasks of transformers and their objectives.

Shapes: b sequences, n positions.
"""

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.deprecation import moved
from allometry._core.errors import require

CHOSEN, MASKED, CHANGED = 0.15, 0.8, 0.1
"""Fraction of tokens to predict, and of these the fractions masked and replaced."""


@final
class Cloze(NamedTuple):
    """A batch of masked language modelling."""

    seen: Int[Tensor, "b n"]
    """Input tokens, some of them masked or replaced."""
    truth: Int[Tensor, "b n"]
    """Original tokens."""
    chosen: Bool[Tensor, "b n"]
    """True at the tokens to predict."""


def hide(
    tokens: Int[Tensor, "b n"],
    mask: int,
    rng: torch.Generator,
    *,
    share: float = CHOSEN,
    vocabulary: int | None = None,
) -> Cloze:
    """Masking of BERT: of the selected tokens 80 % are masked, 10 % replaced, 10 % unchanged.

    Tokens are selected independently; if none is selected in the whole batch, the first one is.

    Args:
        tokens: The text.
        mask: Id of the mask token, which is also the number of replacement ids.
        rng: Generator of the selection.
        share: Fraction of selected tokens.
        vocabulary: Number of replacement ids, if it is not `mask`.

    References: `devlin2019` section 3.1 and Appendix A.1.
    """
    require(0 < share <= 1, "hide.share", "be above 0 and at most 1", share)
    chosen = torch.rand(tokens.shape, generator=rng) < share
    if not bool(chosen.any()):
        chosen[0, 0] = True
    fate = torch.rand(tokens.shape, generator=rng)
    other = torch.randint(vocabulary or mask, tokens.shape, generator=rng)
    seen = torch.where(chosen & (fate < MASKED), mask, tokens)
    changed = chosen & (fate >= MASKED) & (fate < MASKED + CHANGED)
    return Cloze(torch.where(changed, other, seen), tokens, chosen)


def cloze(model: nn.Module, given: Cloze) -> Float[Tensor, ""]:
    r"""Mean negative log-likelihood of the selected tokens, in nats.

    $-\frac{1}{|S|}\sum_{t \in S} \log p(x_t \mid \tilde x)$ with S the selected positions and
    $\tilde x$ the input.

    References: `devlin2019` section 3.1.
    """
    return cloze_losses(model, given).mean()


def cloze_losses(model: nn.Module, given: Cloze) -> Float[Tensor, " chosen"]:
    """The same for each selected token, in the order of the text."""
    logits = model(given.seen)[given.chosen]
    return functional.cross_entropy(logits, given.truth[given.chosen], reduction="none")


@final
class Pairs(NamedTuple):
    """A batch of next-sentence prediction."""

    tokens: Int[Tensor, "b n"]
    """Classification token, first passage, separator, second passage."""
    follows: Int[Tensor, " b"]
    """1 if the second passage follows the first, 0 if not."""


def pair(windows: Int[Tensor, "b n"], first: int, rng: torch.Generator) -> Pairs:
    """Pairs of window halves: half of the windows intact, half with swapped second halves.

    Second halves are swapped among the selected windows. Each half thus occurs equally often in
    both classes, and only the relation of the two halves is informative.

    Args:
        windows: Windows of text of even length, from different positions.
        first: Id of the classification token; that of the separator is one more.
        rng: Generator of the selection.

    References: `devlin2019` section 3.1, with passages of equal length.
    """
    b, n = windows.shape
    require(b >= 2, "pair.windows", "be at least 2", b)
    require(n % 2 == 0, "pair.windows", "have an even number of symbols", n)
    left, right = windows.chunk(2, 1)
    parted = torch.randperm(b, generator=rng)[: _half(b, rng)]
    follows = torch.ones(b, dtype=torch.int64)
    follows[parted] = 0
    right = right.clone()
    right[parted] = windows.chunk(2, 1)[1][parted.roll(1)]
    mark = windows.new_full((b, 1), first)
    return Pairs(torch.cat([mark, left, mark + 1, right], 1), follows)


def _half(b: int, rng: torch.Generator) -> int:
    """Number of windows of b with swapped halves: half of them, in expectation if b is odd.

    A single window has no partner to swap with, so of two or three it is two or none.
    """
    if b >= 4 and b % 2 == 0:
        return b // 2
    drawn = float(torch.rand((), generator=rng))
    return 2 * (drawn < b / 4) if b < 4 else b // 2 + (drawn < 0.5)


def next_sentence(model: nn.Module, given: Pairs) -> Float[Tensor, ""]:
    """Mean cross-entropy of next-sentence prediction, from two logits at the first position.

    References: `devlin2019` section 3.1.
    """
    return next_sentence_losses(model, given).mean()


def next_sentence_losses(model: nn.Module, given: Pairs) -> Float[Tensor, " b"]:
    """The same for each pair."""
    return functional.cross_entropy(model(given.tokens)[:, 0, :2], given.follows, reduction="none")


__getattr__ = moved(__name__, {"next_passage": "next_sentence"})
