"""Base class of n-gram models: tables of counts as buffers, and three ways to query them.

Shapes: B batch, T time, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.ngram_tables import BEGINNING, Level, after, checked, count

Ids = Int[Tensor, " tokens"] | Int[ndarray, " tokens"]
M = TypeVar("M", bound="NgramModel")


@runtime_checkable
class Order(Protocol):
    """One order of a smoothed chain."""

    codes: ndarray

    def blend(self, lower: ndarray, before: ndarray, gram: ndarray) -> ndarray:
        """The probabilities at this order.

        Args:
            lower: Those at the order below.
            before: Index of each context; `ABSENT` if it does not occur, `BEGINNING` if it would
                begin before the text.
            gram: Index of context and symbol together, `ABSENT` or `BEGINNING` likewise.
        """
        ...


class NgramModel(nn.Module, ABC):
    """A Markov chain of order - 1 that stores counts of grams. Abstract.

    Args:
        order: Length of the longest grams: the order of the chain plus one.
        vocabulary: V, the number of symbols.
        boundary: The symbol between sentences. A context does not extend beyond it.
    """

    def __init__(self, order: int, vocabulary: int, boundary: int | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        require(order >= 1, f"{name}.order", "be at least 1", order)
        require(vocabulary >= 1, f"{name}.vocabulary", "be at least 1", vocabulary)
        known = boundary is None or 0 <= boundary < vocabulary
        require(known, f"{name}.boundary", f"lie between 0 and {vocabulary - 1}", boundary)
        self.order = order
        self.boundary = boundary
        self.vocabulary = vocabulary
        for n in range(1, order + 1):
            self.register_buffer(f"codes_{n}", torch.empty(0, dtype=torch.int64))
            self.register_buffer(f"counts_{n}", torch.empty(0, dtype=torch.int64))
        self._made: list[Order] = []

    @abstractmethod
    def _stored(self, n: int, level: Level) -> ndarray:
        """Which counts of the grams of length n the model keeps."""

    @abstractmethod
    def _orders(self, codes: list[ndarray], counts: list[ndarray]) -> list[Order]:
        """The orders, from the shortest grams to the longest."""

    @final
    def fit(self: M, ids: Ids) -> M:
        """Count the grams of a text; returns the model itself."""
        name = type(self).__name__
        text = checked(ids, self.vocabulary, f"{name}.fit")
        require(len(text) >= self.order, f"{name}.fit ids", f"be {self.order} or more", len(text))
        for n, level in enumerate(
            count(text, self.order, self.vocabulary, self.boundary), start=1
        ):
            setattr(self, f"codes_{n}", torch.from_numpy(level.codes))
            kept = self._stored(n, level).astype(np.int64)
            setattr(self, f"counts_{n}", torch.from_numpy(kept))
        self._made = []
        return self

    @final
    @property
    def N(self) -> int:
        """How many counts the model stores: its size."""
        return sum(len(getattr(self, f"counts_{n}")) for n in range(1, self.order + 1))

    @final
    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """None: an n-gram model has no embedding."""
        return iter(())

    @final
    def log_prob(self, ids: Ids) -> Float[Tensor, " tokens"]:
        """The natural log-probability of every token given all before it.

        The first tokens are predicted from shorter contexts; the very first from none.
        """
        text = checked(ids, self.vocabulary, f"{type(self).__name__}.log_prob")
        p = np.full(len(text), 1.0 / self.vocabulary)
        before = np.zeros(len(text), dtype=np.int64)  # the empty gram, at every token
        for n, order in enumerate(self.orders()):
            gram = after(order.codes, before, text, self.vocabulary)
            p = order.blend(p, before, gram)
            ends = self._in_sentence(gram, text, n)
            before = np.concatenate([[BEGINNING], ends[:-1]]) if len(text) else ends
        return torch.from_numpy(np.log(p))

    @final
    def logits(self, context: Int[Tensor, "*batch T"]) -> Float[Tensor, "*batch V"]:
        """The log-probabilities of the symbol after `context`, which may be empty."""
        text = checked(context, self.vocabulary, f"{type(self).__name__}.logits")
        text = text[..., max(0, text.shape[-1] - self.order + 1) :]
        batch = text.shape[:-1]
        symbols = np.arange(self.vocabulary)
        # For each length, the n-grams that end at the last tokens; the last one is the context.
        grams = np.zeros((*batch, text.shape[-1] + 1), dtype=np.int64)
        p = np.full((*batch, self.vocabulary), 1.0 / self.vocabulary)
        for n, order in enumerate(self.orders()):
            if n > text.shape[-1]:
                break
            before = grams[..., -1:]
            p = order.blend(p, before, after(order.codes, before, symbols, self.vocabulary))
            grams = after(order.codes, grams[..., :-1], text[..., n:], self.vocabulary)
            grams = self._in_sentence(grams, text[..., n:], n)
        return torch.from_numpy(np.log(p))

    @final
    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The log-probabilities of the symbol after each prefix."""
        text = checked(tokens, self.vocabulary, f"{type(self).__name__}.forward")
        symbols = np.arange(self.vocabulary)
        p = np.full((*text.shape, self.vocabulary), 1.0 / self.vocabulary)
        ends = np.zeros(text.shape, dtype=np.int64)  # the gram that ends at each token
        for n, order in enumerate(self.orders()):
            here = ends[..., None]
            p = order.blend(p, here, after(order.codes, here, symbols, self.vocabulary))
            start = np.full((len(text), 1), 0 if n == 0 else BEGINNING)
            before = np.concatenate([start, ends[:, :-1]], axis=1)
            ends = self._in_sentence(after(order.codes, before, text, self.vocabulary), text, n)
        return torch.from_numpy(np.log(p))

    @final
    def _in_sentence(self, grams: ndarray, text: ndarray, n: int) -> ndarray:
        """The grams of n + 1 symbols as contexts: longer ones do not end in a boundary."""
        if self.boundary is None or n == 0:
            return grams
        return np.where(text == self.boundary, BEGINNING, grams)

    @final
    def orders(self) -> list[Order]:
        """The smoothed orders, computed from the counts at the first use."""
        name = type(self).__name__
        require(self.N > 0, name, "be fitted first", "no counts", "Call fit.")
        if not self._made:
            ns = range(1, self.order + 1)
            codes = [getattr(self, f"codes_{n}").numpy() for n in ns]
            self._made = self._orders(codes, [getattr(self, f"counts_{n}").numpy() for n in ns])
        return self._made

    @final
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
        # The length of the tables depends on the text, so buffers are resized before loading.
        for name, buffer in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, buffer.new_empty(state_dict[prefix + name].shape))
        self._made = []
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def per_context(values: ndarray, codes: ndarray, V: int, contexts: int) -> ndarray:
    """Sums of `values`, one for each gram, over the grams of each context."""
    # Without any gram, which sentences allow, bincount gives integers.
    return np.bincount(codes // V, weights=values, minlength=contexts).astype(np.float64)


def contexts(codes: list[ndarray], n: int) -> int:
    """How many contexts the grams of length n + 1 can have."""
    return 1 if n == 0 else len(codes[n - 1])


def take(values: ndarray, number: ndarray, otherwise: float) -> ndarray:
    """`values[number]`, or `otherwise` where there is no such gram."""
    if len(values) == 0:  # no sentence is as long as these grams
        return np.full(number.shape, otherwise)
    return np.where(number < 0, otherwise, values[np.maximum(number, 0)])
