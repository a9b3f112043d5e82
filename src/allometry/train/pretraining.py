r"""Tasks that a transformer may be trained on before it is used: what each minimises.

Shapes: b sequences, n positions.
"""

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require

CHOSEN, MASKED, CHANGED = 0.15, 0.8, 0.1
"""Share of the symbols to be guessed, and of these the shares masked and changed."""


@final
class Cloze(NamedTuple):
    """A text with some symbols to be guessed."""

    seen: Int[Tensor, "b n"]
    """What the model sees."""
    truth: Int[Tensor, "b n"]
    """What was there."""
    chosen: Bool[Tensor, "b n"]
    """Where it must guess."""


def hide(
    tokens: Int[Tensor, "b n"],
    mask: int,
    rng: torch.Generator,
    *,
    share: float = CHOSEN,
    vocabulary: int | None = None,
) -> Cloze:
    """The cloze of BERT: of the chosen symbols 80 % masked, 10 % changed, 10 % left as they are.

    Each symbol is chosen by itself; where chance chose none in the whole batch, the first is.

    Args:
        tokens: The text.
        mask: Id of the mask symbol, which is also the number of ids to change into.
        rng: Of the choices.
        share: How many are chosen.
        vocabulary: Number of ids to change into, where it is not `mask`.

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
    r"""Mean negative log-likelihood of the chosen symbols, in nats.

    $-\frac{1}{|S|}\sum_{t \in S} \log p(x_t \mid \tilde x)$ with S the chosen places and
    $\tilde x$ what is seen.

    References: `devlin2019` section 3.1.
    """
    return cloze_losses(model, given).mean()


def cloze_losses(model: nn.Module, given: Cloze) -> Float[Tensor, " chosen"]:
    """The same for each chosen symbol, in the order of the text."""
    logits = model(given.seen)[given.chosen]
    return functional.cross_entropy(logits, given.truth[given.chosen], reduction="none")


@final
class Pairs(NamedTuple):
    """Pairs of passages, some of which follow one another in the text."""

    tokens: Int[Tensor, "b n"]
    """Classification symbol, first passage, separator, second passage."""
    follows: Int[Tensor, " b"]
    """1 where the second does follow the first, 0 where it comes from elsewhere."""


def pair(windows: Int[Tensor, "b n"], first: int, rng: torch.Generator) -> Pairs:
    """Halves of windows, joined as they were or, for half of them, with another window's half.

    A window that lost its half gets the one of the next window that did too, so that every half is
    met as often with its own as with another and nothing but the fit of the two can tell.

    Args:
        windows: Text, an even number of symbols; from different places.
        first: Id of the classification symbol; the separator's is one more.
        rng: Of the choice.

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
    """How many of b are parted: half of them, where that is no integer so in the mean.

    One alone that is to be parted would have nobody to change with, so of two or three it is two
    or none.
    """
    if b >= 4 and b % 2 == 0:
        return b // 2
    drawn = float(torch.rand((), generator=rng))
    return 2 * (drawn < b / 4) if b < 4 else b // 2 + (drawn < 0.5)


def next_passage(model: nn.Module, given: Pairs) -> Float[Tensor, ""]:
    """Mean nats of telling whether the second passage follows: two logits at the first place.

    References: `devlin2019` section 3.1.
    """
    return next_passage_losses(model, given).mean()


def next_passage_losses(model: nn.Module, given: Pairs) -> Float[Tensor, " b"]:
    """The same for each pair."""
    return functional.cross_entropy(model(given.tokens)[:, 0, :2], given.follows, reduction="none")
