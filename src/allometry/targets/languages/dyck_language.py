r"""Dyck languages: well-nested brackets of k types; and shuffles of one-type Dyck languages.

The id of the opening bracket of type i is 2i, of the closing one 2i + 1.
Letters: b words, n symbols.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.targets.languages.language import Language, Word, draw, not_a_prefix

_PAIRS = ("()", "[]", "{}", "<>")


def bracket_alphabet(k: int) -> tuple[str, ...]:
    """Symbols of k bracket types: ()[]{}<> for up to four types, otherwise (0 )0 (1 )1 ..."""
    if k <= len(_PAIRS):
        return tuple(symbol for pair in _PAIRS[:k] for symbol in pair)
    return tuple(f"{side}{i}" for i in range(k) for side in "()")


@final
class Dyck(Language):
    r"""$\mathrm{Dyck}_{k,D}$: well-nested brackets of k types with nesting depth at most D.

    Words are generated as follows. While the depth is below D, a bracket opens with probability p
    (all types equally likely); otherwise the latest open bracket closes, or the word ends if none
    is open. At depth D a bracket closes.

    Args:
        k: Number of bracket types.
        depth: Largest depth D; `None` for no bound, which needs p below one half.
        p: Probability of an opening bracket.

    Example:
        >>> from allometry.targets import Dyck
        >>> Dyck(2, 3).accepts("([])[]"), Dyck(2, 1).accepts("([])[]")
        (True, False)
        >>> [Dyck(1).count(n) for n in (2, 4, 6, 8)]
        [1, 2, 5, 14]

    References:
        `hewitt2020` for the bounded language; `yao2021`.
    """

    def __init__(self, k: int, depth: int | None = None, p: float | None = None) -> None:
        require(k >= 1, "Dyck.k", "be at least 1", k)
        require(depth is None or depth >= 1, "Dyck.depth", "be at least 1 or None", depth)
        p = (0.5 if depth is not None else 0.4) if p is None else p
        require(0 < p < 1, "Dyck.p", "lie between 0 and 1", p)
        valid = depth is not None or p < 0.5
        require(valid, "Dyck.p", "be below 1/2 without a bound on the depth", p)
        self.k, self.depth, self.p = k, depth, p
        self.alphabet = bracket_alphabet(k)

    def accepts(self, word: Word) -> bool:
        """Whether `word` is well nested with depth at most D."""
        ids = self.ids(word)
        return self.error(ids) is None and 2 * sum(i % 2 for i in ids) == len(ids)

    def error(self, word: Word) -> int | None:
        """The first position after which no continuation is a word; `None` if there is none."""
        stack: list[int] = []
        for position, symbol in enumerate(self.ids(word)):
            if symbol % 2 == 0:
                stack.append(symbol)
                if self.depth is not None and len(stack) > self.depth:
                    return position
            elif not stack or stack.pop() != symbol - 1:
                return position
        return None

    def partners(self, word: Word) -> list[int | None]:
        """The position of each bracket's partner, up to the first error."""
        ids = self.ids(word)
        partners: list[int | None] = [None] * len(ids)
        stack: list[int] = []
        for position in range(len(ids) if (wrong := self.error(ids)) is None else wrong):
            if ids[position] % 2 == 0:
                stack.append(position)
            else:
                opening = stack.pop()
                partners[position], partners[opening] = opening, position
        return partners

    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Probabilities of the 2k brackets and of the end after `prefix`."""
        ids = self.ids(prefix)
        wrong = self.error(ids)
        if wrong is not None:
            raise not_a_prefix(wrong, self.alphabet[ids[wrong]])
        *_, probabilities = self._distributions(ids)
        return probabilities

    def _distributions(self, ids: list[int]) -> Iterator[Float[ndarray, " v_plus_1"]]:
        stack: list[int] = []
        wrong = self.error(ids)
        for symbol in [*(ids if wrong is None else ids[:wrong]), -1]:
            probabilities = np.zeros(2 * self.k + 1)
            p = 0.0 if len(stack) == self.depth else self.p
            probabilities[0:-1:2] = p / self.k
            probabilities[stack[-1] + 1 if stack else -1] = 1 - p
            yield probabilities
            if symbol % 2 == 0:
                stack.append(symbol)
            elif symbol > 0:
                stack.pop()

    def count(self, length: int) -> int:
        r"""Number of words of `length` symbols: $k^{n/2}$ times the paths of height at most D."""
        require(length >= 0, "length", "be at least 0", length)
        top = length // 2 if self.depth is None else min(self.depth, length // 2)
        paths = [1] + [0] * top
        for _ in range(length):
            up, down = [0, *paths[:-1]], [*paths[1:], 0]
            paths = [a + b for a, b in zip(up, down, strict=True)]
        return paths[0] * self.k ** (length // 2) if length % 2 == 0 else 0

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word."""
        word: list[int] = []
        stack: list[int] = []
        while True:
            if len(stack) != self.depth and rng.random() < self.p:
                stack.append(2 * int(rng.integers(self.k)))
                word.append(stack[-1])
            elif stack:
                word.append(stack.pop() + 1)
            else:
                return word

    @cached_property
    def mean_length(self) -> Estimate:
        """Expected number of symbols of a word, from the expected visits to each depth."""
        if self.depth is None:
            return Estimate(2 * self.p / (1 - 2 * self.p), exact=True, method="closed form")
        return Estimate(float(self._visits.sum() - 1), exact=True, method="linear system")

    @cached_property
    def entropy(self) -> Estimate:
        """Entropy of a word in nats: the irreducible loss, summed over its symbols."""
        chance = -self.p * math.log(self.p / self.k) - (1 - self.p) * math.log(1 - self.p)
        if self.depth is None:
            # Every symbol, and the end, is one such choice.
            steps = float(self.mean_length) + 1
            return Estimate(steps * chance, exact=True, method="closed form")
        visits = self._visits
        return Estimate(float(visits[:-1].sum() * chance), exact=True, method="linear system")

    @property
    def _visits(self) -> Float[ndarray, " depths"]:
        """Expected number of choices at each depth 0..D, including the end."""
        assert self.depth is not None
        D, p = self.depth, self.p
        move = np.zeros((D + 1, D + 1))
        for h in range(D):
            move[h, h + 1] = p
            move[h + 1, h] = 1 - p if h + 1 < D else 1.0
        start = np.zeros(D + 1)
        start[0] = 1
        return np.linalg.solve(np.eye(D + 1) - move.T, start)

    def verdicts(
        self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"] | None = None
    ) -> tuple[Bool[ndarray, "b n"], Bool[ndarray, "b n"]]:
        """Whether each prefix of each word is a word, and whether it is a prefix of a word.

        Args:
            words: Symbol ids; entries beyond a word's length are ignored.
            lengths: Length of each word. Default: n for all. Beyond it both results are False.
        """
        b, n = words.shape
        top = n if self.depth is None else self.depth
        stack = np.full((b, top + 2), -1, dtype=np.int64)
        height, valid = np.zeros(b, dtype=np.int64), np.ones(b, dtype=bool)
        rows = np.arange(b)
        is_word, begins = np.zeros((b, n), dtype=bool), np.zeros((b, n), dtype=bool)
        for t in range(n):
            symbol = words[:, t]
            opening = symbol % 2 == 0
            valid &= np.where(opening, height < top, stack[rows, height] == symbol - 1)
            # The height of an invalid row does not matter; it only has to stay inside the array.
            height = np.where(valid, height + np.where(opening, 1, -1), 0)
            push = valid & opening
            stack[rows[push], height[push]] = symbol[push]
            begins[:, t], is_word[:, t] = valid, valid & (height == 0)
        if lengths is not None:
            inside = np.arange(n) < lengths[:, None]
            begins, is_word = begins & inside, is_word & inside
        return is_word, begins

    def uniform(
        self, count: int, length: int, rng: np.random.Generator
    ) -> Int[ndarray, "{count} {length}"]:
        """`count` words of `length` symbols, uniform over all words of that length."""
        require(length % 2 == 0 and length >= 0, "length", "be even", length)
        top = length // 2 if self.depth is None else self.depth
        up = _opening_share(length, top)
        words = np.empty((count, length), dtype=np.int64)
        stack = np.zeros((count, top + 2), dtype=np.int64)
        height, rows = np.zeros(count, dtype=np.int64), np.arange(count)
        for t in range(length):
            opening = rng.random(count) < up[length - t, height]
            kinds = rng.integers(self.k, size=count)
            words[:, t] = np.where(opening, 2 * kinds, 2 * stack[rows, height] + 1)
            height += np.where(opening, 1, -1)
            stack[rows[opening], height[opening]] = kinds[opening]
        return words

    def near_misses(
        self, count: int, length: int, rng: np.random.Generator
    ) -> Int[ndarray, "{count} {length}"]:
        """Adversarial strings: words corrupted at one or two positions.

        A fifth each: one closing bracket of another type; two symbols swapped; one symbol replaced
        at random; a nest one deeper than allowed; a rotation. Some are still words; `verdicts`
        decides.
        """
        words = self.uniform(count, length, rng)
        if length < 2 or count == 0:
            return words
        rows, kinds = np.arange(count), rng.integers(5, size=count)
        first, second = rng.integers(length, size=(2, count))
        old = words[rows, first]
        other = 2 * rng.integers(self.k, size=count) + 1
        retyped = np.where(old % 2 == 1, other, old)
        swapped = words.copy()
        swapped[rows, first], swapped[rows, second] = words[rows, second], old
        positions = (first[:, None] + np.arange(length)) % length
        rotated = np.take_along_axis(words, positions, axis=1)
        deep = self._too_deep(words, rng)
        result = words.copy()
        result[rows, first] = np.where(kinds == 0, retyped, rng.integers(2 * self.k, size=count))
        for kind, corrupted in ((1, swapped), (3, deep), (4, rotated)):
            result[kinds == kind] = corrupted[kinds == kind]
        return result

    def _too_deep(self, words: ndarray, rng: np.random.Generator) -> ndarray:
        """The words with a nest of depth D + 1 at the start, or as deep as fits."""
        depth = (words.shape[1] // 2 if self.depth is None else self.depth) + 1
        depth = min(depth, words.shape[1] // 2)
        kinds = 2 * rng.integers(self.k, size=(len(words), depth))
        deep = words.copy()
        deep[:, : 2 * depth] = np.concatenate([kinds, kinds[:, ::-1] + 1], axis=1)
        return deep


@final
class ShuffleDyck(Language):
    r"""The shuffle of k one-type Dyck languages: each type is balanced separately.

    Words are generated as follows. A bracket opens with probability p (all types equally likely).
    Otherwise one of the open types closes (equally likely), or the word ends if none is open.

    Args:
        k: Number of bracket types.
        p: Probability of an opening bracket, below one half so that words end.

    Example:
        >>> from allometry.targets import ShuffleDyck
        >>> ShuffleDyck(2).accepts("([)]")
        True
    """

    def __init__(self, k: int, p: float = 0.4) -> None:
        require(k >= 1, "ShuffleDyck.k", "be at least 1", k)
        require(0 < p < 0.5, "ShuffleDyck.p", "lie between 0 and 1/2", p)
        self.k, self.p = k, p
        self.alphabet = bracket_alphabet(k)

    def accepts(self, word: Word) -> bool:
        """Whether every bracket type is balanced and none closes before it opens."""
        ids = self.ids(word)
        return self._error(ids) is None and not any(self._open(ids))

    def _open(self, ids: Sequence[int]) -> list[int]:
        return [sum((i == 2 * t) - (i == 2 * t + 1) for i in ids) for t in range(self.k)]

    def _error(self, ids: Sequence[int]) -> int | None:
        heights = [0] * self.k
        for position, symbol in enumerate(ids):
            heights[symbol // 2] += 1 - 2 * (symbol % 2)
            if heights[symbol // 2] < 0:
                return position
        return None

    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Probabilities of the 2k brackets and of the end after `prefix`."""
        ids = self.ids(prefix)
        wrong = self._error(ids)
        if wrong is not None:
            raise not_a_prefix(wrong, self.alphabet[ids[wrong]])
        probabilities = np.zeros(2 * self.k + 1)
        probabilities[0:-1:2] = self.p / self.k
        open_types = [t for t, h in enumerate(self._open(ids)) if h]
        for t in open_types:
            probabilities[2 * t + 1] = (1 - self.p) / len(open_types)
        probabilities[-1] = 0 if open_types else 1 - self.p
        return probabilities

    def count(self, length: int) -> int:
        r"""Number of words of `length` symbols: $\sum \binom{n}{2m} C_m$, recursively by type."""
        require(length >= 0, "length", "be at least 0", length)
        return _shuffles(self.k, length)

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word."""
        word: list[int] = []
        while (symbol := draw(self.next_symbol(word), rng)) < self.size:
            word.append(symbol)
        return word


@lru_cache(maxsize=4096)
def _shuffles(k: int, length: int) -> int:
    if k == 0:
        return int(length == 0)
    return sum(
        math.comb(length, 2 * m)
        * math.comb(2 * m, m)
        // (m + 1)
        * _shuffles(k - 1, length - 2 * m)
        for m in range(length // 2 + 1)
    )


@lru_cache(maxsize=64)
def _opening_share(length: int, top: int) -> Float[ndarray, "left heights"]:
    """Share of completions that open next, by remaining symbols and height."""
    paths = np.zeros((length + 1, top + 2))
    paths[0, 0] = 1
    share = np.zeros((length + 1, top + 2))
    for left in range(1, length + 1):
        up = np.append(paths[left - 1, 1:], 0)
        up[top:] = 0  # no opening at full height
        total = up + np.insert(paths[left - 1, :-1], 0, 0)
        share[left] = np.divide(up, total, out=np.zeros_like(up), where=total > 0)
        paths[left] = total / total.max()  # only ratios matter, and counts would overflow
    return share
