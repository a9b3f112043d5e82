"""Count models of text: Markov chains whose parameters are counts.

Shapes: B batch, T time, V vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.grams import ABSENT, after, checked, count

Ids = Int[Tensor, " tokens"] | Int[ndarray, " tokens"]


@final
class KneserNey(nn.Module):
    r"""Interpolated Kneser-Ney smoothing of a Markov chain of order - 1.

    $$p_n(w \mid h) = \frac{c_n(hw) - D_n(c_n(hw))}{\sum_v c_n(hv)} + \gamma_n(h)\,
    p_{n-1}(w \mid h'),$$
    where $h'$ is $h$ without its oldest symbol and $\gamma_n$ makes the sum one. At the highest
    order $c$ counts occurrences, below it the different symbols met before $hw$; below the lowest
    order lies the uniform law $1/V$, so nothing has probability zero. The modified form has three
    discounts per order, for counts of one, two, and three or more, estimated from how many grams
    occur one to four times.

    Differs from the paper: where those numbers vanish or give a discount outside $(0, c)$, as for
    single characters, the discounts are 0.5, 1 and 1.5 (as KenLM falls back to); the beginning of
    the text counts as one more symbol before its first grams.

    Args:
        order: Length of the longest grams: the order of the chain plus one.
        vocabulary: V, the number of symbols.
        modified: Three discounts per order rather than one.

    Example:
        >>> import torch
        >>> from allometry.models import KneserNey
        >>> model = KneserNey(order=3, vocabulary=2).fit(torch.tensor([0, 1] * 50))
        >>> round(model.logits(torch.tensor([0, 1])).exp()[0].item(), 2)
        0.99

    References: `chen1999` Sec. 3; `kneser1995`; `heafield2013` for the fallback.
    """

    def __init__(self, order: int, vocabulary: int, modified: bool = True) -> None:
        super().__init__()
        require(order >= 1, "KneserNey.order", "be at least 1", order)
        require(vocabulary >= 1, "KneserNey.vocabulary", "be at least 1", vocabulary)
        self.order = order
        self.vocabulary = vocabulary
        self.modified = modified
        for n in range(1, order + 1):
            self.register_buffer(f"codes_{n}", torch.empty(0, dtype=torch.int64))
            self.register_buffer(f"counts_{n}", torch.empty(0, dtype=torch.int64))
        self._levels: list[_Smoothed] = []

    def fit(self, ids: Ids) -> "KneserNey":
        """Count the grams of a text; returns the model itself."""
        text = checked(ids, self.vocabulary, "KneserNey.fit")
        require(
            len(text) >= self.order, "KneserNey.fit ids", f"be at least {self.order}", len(text)
        )
        for n, level in enumerate(count(text, self.order, self.vocabulary), start=1):
            counts = level.counts if n == self.order else level.distinct
            setattr(self, f"codes_{n}", torch.from_numpy(level.codes))
            setattr(self, f"counts_{n}", torch.from_numpy(counts.astype(np.int64)))
        self._levels = []
        return self

    @property
    def N(self) -> int:
        """How many counts the model stores: its size."""
        return sum(len(getattr(self, f"counts_{n}")) for n in range(1, self.order + 1))

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """None: a count model has no embedding."""
        return iter(())

    @property
    def discounts(self) -> Float[ndarray, "order 3"]:
        """The discounts of counts 1, 2 and 3 or more, at each order."""
        return np.stack([level.discounts for level in self._smoothed()])

    def log_prob(self, ids: Ids) -> Float[Tensor, " tokens"]:
        """The natural log-probability of every token given all before it.

        The first tokens are predicted from the context there is; the very first from none.
        """
        text = checked(ids, self.vocabulary, "KneserNey.log_prob")
        p = np.full(len(text), 1.0 / self.vocabulary)
        before = np.zeros(len(text), dtype=np.int64)  # of the empty gram, at every token
        for level in self._smoothed():
            gram = after(level.codes, before, text, self.vocabulary)
            p = level.blend(p, before, gram)
            before = np.concatenate([[ABSENT], gram[:-1]]) if len(text) else gram
        return torch.from_numpy(np.log(p))

    def logits(self, context: Int[Tensor, "*batch T"]) -> Float[Tensor, "*batch V"]:
        """The log-probabilities of the symbol after `context`, which may be empty."""
        text = checked(context, self.vocabulary, "KneserNey.logits")
        text = text[..., max(0, text.shape[-1] - self.order + 1) :]
        batch = text.shape[:-1]
        symbols = np.arange(self.vocabulary)
        # Of each length, the grams that end at the context's last tokens; the last is the context.
        grams = [np.zeros((*batch, text.shape[-1] + 1), dtype=np.int64)]
        p = np.full((*batch, self.vocabulary), 1.0 / self.vocabulary)
        for n, level in enumerate(self._smoothed()):
            if n > text.shape[-1]:
                break
            before = grams[-1][..., -1:]
            p = level.blend(p, before, after(level.codes, before, symbols, self.vocabulary))
            grams.append(after(level.codes, grams[-1][..., :-1], text[..., n:], self.vocabulary))
        return torch.from_numpy(np.log(p))

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The log-probabilities of the symbol after each prefix."""
        text = checked(tokens, self.vocabulary, "KneserNey.forward")
        symbols = np.arange(self.vocabulary)
        p = np.full((*text.shape, self.vocabulary), 1.0 / self.vocabulary)
        before = np.zeros(text.shape, dtype=np.int64)  # the gram that ends at each token
        for n, level in enumerate(self._smoothed()):
            if n > 0:
                shorter = np.concatenate([np.full((len(text), 1), ABSENT), before[:, :-1]], axis=1)
                if n == 1:
                    shorter = np.zeros_like(text)
                before = after(self._levels[n - 1].codes, shorter, text, self.vocabulary)
            here = before[..., None]
            p = level.blend(p, here, after(level.codes, here, symbols, self.vocabulary))
        return torch.from_numpy(np.log(p))

    def _smoothed(self) -> "list[_Smoothed]":
        require(self.N > 0, "KneserNey", "be fitted before it is asked", "no counts", "Call fit.")
        if not self._levels:
            self._levels = [
                _Smoothed(
                    getattr(self, f"codes_{n}").numpy(),
                    getattr(self, f"counts_{n}").numpy(),
                    1 if n == 1 else len(getattr(self, f"codes_{n - 1}")),
                    self.vocabulary,
                    self.modified,
                )
                for n in range(1, self.order + 1)
            ]
        return self._levels

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # The tables have the length of the text's grams, unknown until it is read.
        for name, buffer in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, buffer.new_empty(state_dict[prefix + name].shape))
        self._levels = []
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


@final
class _Smoothed:
    """One order: what each gram adds, and what its context leaves to the order below."""

    def __init__(
        self, codes: ndarray, counts: ndarray, contexts: int, V: int, modified: bool
    ) -> None:
        self.codes = codes
        self.discounts = _discounts(counts, modified)
        before = codes // V
        taken = self.discounts[np.minimum(counts, 3) - 1]
        total = np.bincount(before, weights=counts, minlength=contexts)
        taken_total = np.bincount(before, weights=taken, minlength=contexts)
        self._share = (counts - taken) / total[before]
        # A context met only at the very end of the text has no followers: it leaves all.
        self._left = np.divide(taken_total, total, out=np.ones_like(total), where=total > 0)

    def blend(self, lower: ndarray, before: ndarray, gram: ndarray) -> ndarray:
        """Return p at this order, from p at the order below, the contexts and the grams."""
        share = np.where(gram == ABSENT, 0.0, self._share[gram])
        return share + np.where(before == ABSENT, 1.0, self._left[before]) * lower


def _discounts(counts: ndarray, modified: bool) -> Float[ndarray, " 3"]:
    n1, n2, n3, n4 = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    if not modified:
        single = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
        return np.full(3, single)
    fallback = np.array([0.5, 1.0, 1.5])
    if min(n1, n2, n3, n4) == 0:
        return fallback
    Y = n1 / (n1 + 2 * n2)
    found = np.array([1 - 2 * Y * n2 / n1, 2 - 3 * Y * n3 / n2, 3 - 4 * Y * n4 / n3])
    return found if (found > 0).all() and (found < [1, 2, 3]).all() else fallback
