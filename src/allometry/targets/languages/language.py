"""Base class of formal languages: membership, words, counts, next-symbol distributions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require

Word = str | Sequence[int]
"""A word as text, or as symbol ids."""


class Language(ABC):
    """A set of words with a probability distribution. Abstract; every subclass is final.

    Words are sequences of ids, or text: one character per symbol if all symbols are single
    characters, otherwise separated by white space.

    Attributes:
        alphabet: The symbols; the id of a symbol is its index.
    """

    alphabet: tuple[str, ...]

    @abstractmethod
    def accepts(self, word: Word) -> bool:
        """Whether `word` belongs to the language."""

    @abstractmethod
    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Exact probabilities of the symbols after `prefix`; the last entry is the end.

        Raises:
            InputError: `prefix` is not a prefix of a word.
        """

    @abstractmethod
    def count(self, length: int) -> int:
        """Number of words of `length` symbols."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word."""

    @final
    def ids(self, word: Word) -> list[int]:
        """The symbol ids of a word given as text or as ids.

        Raises:
            InputError: A symbol is not in the alphabet; the message names it.
        """
        if isinstance(word, str):
            number = {symbol: i for i, symbol in enumerate(self.alphabet)}
            short = all(len(symbol) == 1 for symbol in self.alphabet)
            parts = list(word) if short else word.split()
            for position, part in enumerate(parts):
                if part not in number:
                    symbols = " ".join(self.alphabet[:12]) + (" ..." if self.size > 12 else "")
                    raise InputError(
                        f"word must be made of the symbols {symbols}; got {part!r} at position "
                        f"{position}."
                    )
            return [number[part] for part in parts]
        ids = [int(i) for i in word]
        for position, i in enumerate(ids):
            valid = 0 <= i < self.size
            require(valid, f"word[{position}]", f"be an id below {self.size}", i)
        return ids

    @final
    def text(self, word: Sequence[int]) -> str:
        """The word as text; the inverse of `ids`."""
        short = all(len(symbol) == 1 for symbol in self.alphabet)
        return ("" if short else " ").join(self.alphabet[i] for i in word)

    @final
    @property
    def size(self) -> int:
        """Number of symbols in the alphabet."""
        return len(self.alphabet)

    @final
    def log_prob(self, word: Word) -> float:
        """Natural logarithm of the probability of `word`; minus infinity outside the language."""
        ids = self.ids(word)
        total = 0.0
        for symbol, p in zip([*ids, self.size], self._distributions(ids), strict=False):
            if p[symbol] <= 0:
                return -math.inf
            total += math.log(p[symbol])
        return total

    def _distributions(self, ids: list[int]) -> Iterator[Float[ndarray, " v_plus_1"]]:
        """`next_symbol` of every prefix from the empty one on, while words continue it."""
        for length in range(len(ids) + 1):
            yield self.next_symbol(ids[:length])

    @final
    def words(self, length: int) -> Iterator[list[int]]:
        """Yield every word of `length` symbols in the order of ids."""
        yield from self._extend([], length)

    def _extend(self, prefix: list[int], left: int) -> Iterator[list[int]]:
        probabilities = self.next_symbol(prefix)
        if left == 0:
            if probabilities[-1] > 0:
                yield prefix
            return
        for symbol in np.flatnonzero(probabilities[:-1] > 0):
            yield from self._extend([*prefix, int(symbol)], left - 1)


def draw(probabilities: Float[ndarray, " v"], rng: np.random.Generator) -> int:
    """Sample an index from a distribution."""
    index = int(np.searchsorted(np.cumsum(probabilities), rng.random()))
    return min(index, len(probabilities) - 1)


def not_a_prefix(position: int, symbol: str) -> InputError:
    """The error for a sequence that is not a prefix of a word."""
    return InputError(
        f"prefix must begin some word of the language; got {symbol!r} at position {position}, "
        "which no word allows there."
    )
