"""N-gram models: Markov chains with Kneser-Ney, add-constant and Katz smoothing."""

from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.models.ngram_models import NgramModel, Order, contexts, per_context, take
from allometry.models.ngram_tables import BEGINNING, Level, suffixes


@final
class KneserNey(NgramModel):
    r"""Interpolated Kneser-Ney smoothing of a Markov chain of order - 1.

    $$p_n(w \mid h) = \frac{c_n(hw) - D_n(c_n(hw))}{\sum_v c_n(hv)} + \gamma_n(h)\,
    p_{n-1}(w \mid h'),$$
    where $h'$ is $h$ without its oldest symbol and $\gamma_n$ makes the sum one. At the highest
    order $c$ counts occurrences, at lower orders the distinct symbols before $hw$. Below the
    lowest order is the uniform distribution $1/V$, so nothing has probability zero. The modified
    form has three discounts per order, for counts of one, two, and three or more, estimated from
    the number of n-grams that occur one to four times.

    Differs from the paper: where those numbers vanish or give a discount outside $(0, c)$, as for
    single characters, the discounts are 0.5, 1 and 1.5 (the fallback of KenLM); the beginning of
    the text counts as a symbol before its first n-grams.

    Args:
        order: Length of the longest grams: the order of the chain plus one.
        vocabulary: V, the number of symbols.
        modified: Three discounts per order rather than one.
        boundary: The symbol between sentences: a context does not extend beyond it.

    Example:
        >>> import torch
        >>> from allometry.models import KneserNey
        >>> model = KneserNey(order=3, vocabulary=2).fit(torch.tensor([0, 1] * 50))
        >>> round(model.logits(torch.tensor([0, 1])).exp()[0].item(), 2)
        0.99

    References: `chen1999` Sec. 3; `kneser1995`; `heafield2013` for the fallback.
    """

    def __init__(
        self, order: int, vocabulary: int, modified: bool = True, boundary: int | None = None
    ) -> None:
        super().__init__(order, vocabulary, boundary)
        self.modified = modified

    @property
    def discounts(self) -> Float[ndarray, "order 3"]:
        """The discounts of counts 1, 2 and 3 or more, at each order."""
        ns = range(1, self.order + 1)
        counts = [getattr(self, f"counts_{n}").numpy() for n in ns]
        return np.stack([_discounts(c, self.modified) for c in counts])

    def _stored(self, n: int, level: Level) -> ndarray:
        return level.counts if n == self.order else level.distinct

    def _orders(self, codes: list[ndarray], counts: list[ndarray]) -> list[Order]:
        made: list[Order] = []
        for n in range(self.order):
            discounts = _discounts(counts[n], self.modified)
            taken = discounts[np.minimum(counts[n], 3) - 1]
            size = contexts(codes, n)
            total = per_context(counts[n], codes[n], self.vocabulary, size)
            left = per_context(taken, codes[n], self.vocabulary, size)
            share = (counts[n] - taken) / total[codes[n] // self.vocabulary]
            # A context seen only at the end of the text has no followers: all its mass backs off.
            left = np.divide(left, total, out=np.ones_like(total), where=total > 0)
            made.append(_Interpolated(codes[n], share, left))
        return made


@final
class AddConstant(NgramModel):
    r"""Add-constant smoothing: $p(w \mid h) = (c(hw) + \alpha) / (c(h) + \alpha V)$.

    $\alpha = 1$ is Laplace's rule, $1/2$ that of Krichevsky and Trofimov. An unseen context
    predicts uniformly; the first tokens of a text use shorter n-grams.

    Args:
        order: Length of the grams: the order of the chain plus one.
        vocabulary: V, the number of symbols.
        alpha: Positive: with maximum likelihood unseen text would have probability zero.
        boundary: The symbol between sentences: a context does not extend beyond it.

    References: `krichevsky1981`; `chen1999` Sec. 2.1.
    """

    def __init__(
        self, order: int, vocabulary: int, alpha: float = 1.0, boundary: int | None = None
    ) -> None:
        super().__init__(order, vocabulary, boundary)
        require(alpha > 0, "AddConstant.alpha", "be positive", alpha)
        self.alpha = alpha

    def _stored(self, n: int, level: Level) -> ndarray:
        return level.counts

    def _orders(self, codes: list[ndarray], counts: list[ndarray]) -> list[Order]:
        V = self.vocabulary
        made: list[Order] = []
        for n in range(self.order):
            total = per_context(counts[n], codes[n], V, contexts(codes, n))
            made.append(_Alone(codes[n], counts[n], total, self.alpha, V))
        return made


@final
class Katz(NgramModel):
    r"""Katz back-off: Good-Turing estimates for seen n-grams, shorter ones for unseen n-grams.

    $$p(w \mid h) = d_{c(hw)}\, c(hw) / c(h) \ \text{ if } c(hw) > 0, \quad
    \alpha(h)\, p(w \mid h') \text{ otherwise},$$
    with $d_r$ from Good and Turing's $r^* = (r+1) n_{r+1} / n_r$ for $r \le k$ and 1 above.

    Differs from the paper: where the counts of counts give a $d_r$ outside $(0, 1)$ it is
    $1 - 1/2r$; where discounting leaves no mass for unseen symbols, the total of the context is
    raised by one, so nothing has probability zero.

    Args:
        order: Length of the longest grams: the order of the chain plus one.
        vocabulary: V, the number of symbols.
        k: Counts above it are not discounted.
        boundary: The symbol between sentences: a context does not extend beyond it.

    References: `katz1987`; `good1953`.
    """

    def __init__(
        self, order: int, vocabulary: int, k: int = 5, boundary: int | None = None
    ) -> None:
        super().__init__(order, vocabulary, boundary)
        require(k >= 1, "Katz.k", "be at least 1", k)
        self.k = k

    def _stored(self, n: int, level: Level) -> ndarray:
        return level.counts

    def _orders(self, codes: list[ndarray], counts: list[ndarray]) -> list[Order]:
        V = self.vocabulary
        shorter = suffixes(codes, V)
        made: list[Order] = []
        lower = np.array([1.0 / V])
        for n in range(self.order):
            size = contexts(codes, n)
            total = per_context(counts[n], codes[n], V, size)
            kept = counts[n] * _good_turing(counts[n], self.k)
            met = per_context(np.ones(len(kept)), codes[n], V, size)
            full = per_context(kept, codes[n], V, size) >= total - 1e-9
            total = total + (full & (met < V))
            below = lower[shorter[n]] if n else np.full(len(kept), 1.0 / V)
            share, left = kept / np.maximum(total, 1)[codes[n] // V], np.ones(size)
            mass = per_context(share, codes[n], V, size)
            unmet = 1 - per_context(below, codes[n], V, size)
            some = (met > 0) & (met < V)
            left[some] = (1 - mass[some]) / unmet[some]
            # If every symbol has been seen, no mass is left for unseen symbols.
            share = share / np.where(met == V, mass, 1.0)[codes[n] // V]
            made.append(_BackOff(codes[n], share, left))
            lower = share
        return made


@final
class _Interpolated:
    """Probability of the n-gram plus the back-off weight times the lower order."""

    def __init__(self, codes: ndarray, share: ndarray, left: ndarray) -> None:
        self.codes = codes
        self._share = share
        self._left = left

    def blend(self, lower: ndarray, before: ndarray, gram: ndarray) -> ndarray:
        return take(self._share, gram, 0.0) + take(self._left, before, 1.0) * lower


@final
class _BackOff:
    """Probability of the n-gram or, if unseen, of the lower order times the back-off weight."""

    def __init__(self, codes: ndarray, share: ndarray, left: ndarray) -> None:
        self.codes = codes
        self._share = share
        self._left = left

    def blend(self, lower: ndarray, before: ndarray, gram: ndarray) -> ndarray:
        backed = take(self._left, before, 1.0) * lower
        return np.where(gram < 0, backed, take(self._share, gram, 0.0))


@final
class _Alone:
    """Counts of one order; the lower order is used only at the beginning of a text."""

    def __init__(
        self, codes: ndarray, counts: ndarray, total: ndarray, alpha: float, V: int
    ) -> None:
        self.codes = codes
        self._counts = counts + alpha
        self._total = total + alpha * V
        self._alpha = alpha
        self._nothing = alpha * V

    def blend(self, lower: ndarray, before: ndarray, gram: ndarray) -> ndarray:
        p = take(self._counts, gram, self._alpha) / take(self._total, before, self._nothing)
        return np.where(before == BEGINNING, lower, p)


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


def _good_turing(counts: ndarray, k: int) -> Float[ndarray, " grams"]:
    """The discount ratio d_r of every count."""
    n = np.bincount(np.minimum(counts, k + 2), minlength=k + 3).astype(np.float64)
    r = np.arange(1, k + 1)
    ratio = 1 - 1 / (2 * r)
    if n[1 : k + 2].min() > 0:
        common = (k + 1) * n[k + 1] / n[1]
        found = ((r + 1) * n[r + 1] / (n[r] * r) - common) / (1 - common) if common < 1 else 0 * r
        ratio = np.where((found > 0) & (found < 1), found, ratio)
    return np.concatenate([ratio, [1.0]])[np.minimum(counts, k + 1) - 1]
