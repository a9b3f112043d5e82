"""What every formal language offers: verdicts, words, counts and an exact next-symbol law."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require

Word = str | Sequence[int]
"""A word as text, or as ids of symbols."""


class Language(ABC):
    """A set of words with a probability law on them. Abstract; every subclass is final.

    Words are sequences of ids, or text: character by character where every symbol is one
    character, otherwise split at white space.

    Attributes:
        alphabet: The symbols; the id of a symbol is its place here.
    """

    alphabet: tuple[str, ...]

    @abstractmethod
    def accepts(self, word: Word) -> bool:
        """Whether `word` belongs to the language."""

    @abstractmethod
    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """The exact law of what follows `prefix`: one share per symbol, the last for the end.

        Raises:
            InputError: `prefix` begins no word.
        """

    @abstractmethod
    def count(self, length: int) -> int:
        """How many words of `length` symbols there are."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> list[int]:
        """A word drawn from the law."""

    @final
    def ids(self, word: Word) -> list[int]:
        """The ids of a word given as text or as ids, each known to be a symbol.

        Raises:
            InputError: A symbol is not in the alphabet; the message says which and where.
        """
        if isinstance(word, str):
            number = {symbol: i for i, symbol in enumerate(self.alphabet)}
            short = all(len(symbol) == 1 for symbol in self.alphabet)
            parts = list(word) if short else word.split()
            for place, part in enumerate(parts):
                if part not in number:
                    shown = " ".join(self.alphabet[:12]) + (" ..." if self.size > 12 else "")
                    raise InputError(
                        f"word must be made of the symbols {shown}; got {part!r} at place {place}."
                    )
            return [number[part] for part in parts]
        ids = [int(i) for i in word]
        for place, i in enumerate(ids):
            inside = 0 <= i < self.size
            require(inside, f"word[{place}]", f"be an id below {self.size}", i)
        return ids

    @final
    def text(self, word: Sequence[int]) -> str:
        """The word as text, the inverse of `ids`."""
        short = all(len(symbol) == 1 for symbol in self.alphabet)
        return ("" if short else " ").join(self.alphabet[i] for i in word)

    @final
    @property
    def size(self) -> int:
        """Symbols in the alphabet."""
        return len(self.alphabet)

    @final
    def log_prob(self, word: Word) -> float:
        """Natural logarithm of the probability of `word`; minus infinity outside the language."""
        ids = self.ids(word)
        total = 0.0
        for symbol, law in zip([*ids, self.size], self._laws(ids), strict=False):
            if law[symbol] <= 0:
                return -math.inf
            total += math.log(law[symbol])
        return total

    def _laws(self, ids: list[int]) -> Iterator[Float[ndarray, " v_plus_1"]]:
        """`next_symbol` of every prefix from the empty one on, while there are words."""
        for place in range(len(ids) + 1):
            yield self.next_symbol(ids[:place])

    @final
    def words(self, length: int) -> Iterator[list[int]]:
        """Every word of `length` symbols, in order of ids, each once."""
        yield from self._extend([], length)

    def _extend(self, prefix: list[int], left: int) -> Iterator[list[int]]:
        law = self.next_symbol(prefix)
        if left == 0:
            if law[-1] > 0:
                yield prefix
            return
        for symbol in np.flatnonzero(law[:-1] > 0):
            yield from self._extend([*prefix, int(symbol)], left - 1)


def draw(law: Float[ndarray, " v"], rng: np.random.Generator) -> int:
    """An index drawn with the shares of `law`."""
    return min(int(np.searchsorted(np.cumsum(law), rng.random())), len(law) - 1)


def not_a_prefix(place: int, symbol: str) -> InputError:
    """The error of asking what follows something that begins no word."""
    return InputError(
        f"prefix must begin some word of the language; got {symbol!r} at place {place}, which "
        "no word allows there."
    )
