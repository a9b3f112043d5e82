r"""Constructed recognisers and generators of the Dyck language $\mathrm{Dyck}_{k,D}$.

Letters: b words, n symbols, v symbols of the alphabet.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry.construct.dyck_weights import compact, layered
from allometry.construct.exact_certificate import Batch, Exactness, check
from allometry.construct.head_patterns import attention_maps
from allometry.models.transformer.model import Transformer
from allometry.targets.languages.dyck_language import Dyck
from allometry.targets.languages.language import Word

MOST_SCORES = 2**18
"""Largest number of scores or activations per batch; they should fit into the CPU cache."""


LARGEST = 1 << 20
"""Largest number of bracket types, nesting depth or length."""


def dyck(
    k: int,
    D: int,
    n: int,
    mode: str = "recognise",
    *,
    form: str = "layered",
    p: float = 0.5,
) -> "DyckRecogniser | DyckGenerator":
    r"""A transformer that recognises or generates $\mathrm{Dyck}_{k,D}$ up to n symbols.

    Args:
        k: Number of bracket types.
        D: Largest nesting depth.
        n: Largest length of a word.
        mode: "recognise" gives verdicts, "generate" the next-symbol distribution.
        form: Architecture of the recogniser. "layered" is the paper's: D + 1 layers of hard
            attention, each of which cancels the innermost remaining brackets. "compact" has three
            softmax layers for any D and gives the verdict on every prefix in one pass.
        p: Probability of an opening bracket, for the generator (see `targets.Dyck`).

    Example:
        >>> from allometry.construct import dyck
        >>> made = dyck(2, 3, 16)
        >>> made("([])[]"), made("([)]")
        (True, False)
        >>> made.model.depth
        4

    References:
        `yao2021`.
    """
    for name, value in (("k", k), ("D", D), ("n", n)):
        require(1 <= value <= LARGEST, f"dyck.{name}", f"be from 1 to {LARGEST:,}", value)
    require(mode in ("recognise", "generate"), "dyck.mode", "be recognise or generate", mode)
    require(form in ("layered", "compact"), "dyck.form", "be layered or compact", form)
    if mode == "generate" or form == "compact":
        # Scores reach 80 (n + 1) 5 (D + 2)^2; their rounding errors must stay below gaps of 40.
        size = 400 * (n + 1) * (D + 2) ** 2
        fix = "Choose a smaller n or D, or the layered form."
        require(size < 2**49, "dyck.n", "leave scores exact in float64", (n, D), fix)
    if mode == "generate":
        return DyckGenerator(Dyck(k, D, p), n)
    return DyckRecogniser(Dyck(k, D), n, form)


@final
class DyckRecogniser:
    """A recogniser; call it on a word for its verdict.

    Args:
        language: The language.
        n: Largest length of a word.
        form: "layered" or "compact".

    Attributes:
        model: The transformer.
    """

    def __init__(self, language: Dyck, n: int, form: str) -> None:
        self.language, self.n, self.form = language, n, form
        assert language.depth is not None
        self.k, self.D = language.k, language.depth
        self.model: Transformer = (
            layered(self.k, self.D, n) if form == "layered" else compact(self.k, self.D, n, None)
        )

    def __call__(self, word: Word) -> bool:
        """The network's verdict: whether `word` belongs to the language."""
        ids = self._ids(word)
        return bool(self.many(np.array([ids], dtype=np.int64).reshape(1, len(ids)))[0])

    def prefixes(self, word: Word) -> list[bool]:
        """Verdicts on all prefixes: entry i is the verdict on the first i + 1 symbols."""
        ids = self._ids(word)
        if not ids:
            return []
        if self.form == "compact":
            return (self._compact(np.array([ids]))[0, 1:, 0] > 0.5).tolist()
        words = np.tile(np.array(ids, dtype=np.int64), (len(ids), 1))
        return self.many(words, np.arange(1, len(ids) + 1)).tolist()

    def many(
        self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"] | None = None
    ) -> Bool[ndarray, " b"]:
        """Verdicts on a batch of words.

        Args:
            words: Symbol ids; entries beyond a word's length are ignored.
            lengths: Length of each word. Default: n for all.
        """
        return self.margins(words, lengths) > 0

    def margins(
        self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"] | None = None
    ) -> Float[ndarray, " b"]:
        """Distance of each output from the threshold: above 0 accepts; the ideal value is 1/2."""
        b, n = words.shape
        require(n <= self.n, "words", f"have at most {self.n} symbols", n)
        if self.form == "compact":
            step = max(1, MOST_SCORES // ((n + 1) ** 2 * self.model.heads))
            tables = [self._compact(words[i : i + step])[..., 0] for i in range(0, b, step)]
            last = np.full(b, n) if lengths is None else lengths
            return np.concatenate([np.zeros((0, n + 1)), *tables])[np.arange(b), last] - 0.5
        # Words of one length form a batch: without padding, attention takes time n, not n^2.
        margins = np.zeros(b)
        for length in [n] if lengths is None else np.unique(lengths).tolist():
            rows = np.arange(b) if lengths is None else np.flatnonzero(lengths == length)
            step = max(1, MOST_SCORES // ((length + 2) * self.model.width))
            for i in range(0, len(rows), step):
                part = rows[i : i + step]
                margins[part] = self._layered(words[part, :length])
        return margins

    def _layered(self, words: ndarray) -> ndarray:
        with torch.no_grad():
            return 0.5 - self.model(self._framed(words))[:, 0, 0].numpy()

    def _compact(self, words: ndarray) -> ndarray:
        start = np.full((len(words), 1), 2 * self.k)
        tokens = torch.from_numpy(np.concatenate([start, words], axis=1))
        with torch.no_grad():
            return self.model(tokens).numpy()

    def _framed(self, words: ndarray) -> Int[Tensor, "b n_plus_2"]:
        """Start symbol, word, end symbol."""
        tokens = np.full((len(words), words.shape[1] + 2), 2 * self.k + 1)
        tokens[:, 0] = 2 * self.k
        tokens[:, 1:-1] = words
        return torch.from_numpy(tokens)

    def where(self, word: Word) -> int | None:
        """The position of the error, or `None` for a word of the language.

        Compact: the first symbol after which no continuation is a word, or the length if brackets
        stay open. Layered: the first bracket without a partner, or with one of another type.
        """
        ids = self._ids(word)
        if self(ids):
            return None
        if self.form == "compact":
            begins = self._compact(np.array([ids]))[0, 1:, 1] > 0.5
            return int(np.argmin(begins)) if not begins.all() else len(ids)
        tokens = self._framed(np.array([ids]))
        b = self.model.width
        left = self.model.states(tokens)[self.D, 0, 1:-1]
        names = {"opening": (b - 8) // 2, "closing": (b - 8) // 2 + 1, "error": b - 2}
        wrong = sum(left[:, i] for i in names.values())
        assert isinstance(wrong, Tensor)
        return int((wrong > 0.5).int().argmax())

    def slots(self, word: Word) -> tuple[Int[Tensor, "1 n"], list[str]]:
        """The model's input tokens for a word, and their symbols."""
        ids = self._ids(word)
        frame = [2 * self.k, *ids] + ([2 * self.k + 1] if self.form == "layered" else [])
        inside = [self.language.alphabet[i] for i in ids]
        labels = ["start", *inside] + (["end"] if self.form == "layered" else [])
        return torch.tensor([frame]), labels

    def attention(self, word: Word) -> list[Float[Tensor, "h n n"]]:
        """Attention weights of each layer; position 0 is the start symbol."""
        maps = attention_maps(self.model, self.slots(word)[0])
        return [m[0] for m in maps if m is not None]

    def partners(self, word: Word) -> list[int | None]:
        """The matching bracket of each bracket, as attended to by the network; `None` if none."""
        ids = self._ids(word)
        partners: list[int | None] = [None] * len(ids)
        maps = self.attention(ids)
        for layer in [maps[1]] if self.form == "compact" else maps[: self.D]:
            for i, symbol in enumerate(ids):
                if symbol % 2 == 0 or partners[i] is not None:
                    continue
                j = int(layer[0, i + 1].argmax()) - 1
                if 0 <= j < len(ids) and ids[j] == symbol - 1 and partners[j] is None:
                    partners[i], partners[j] = j, i
        return partners

    def softened(self, scale: float) -> "DyckRecogniser":
        """The same network with softmax, its scores multiplied by `scale`."""
        softened = copy.copy(self)
        softened.__dict__.pop("certificate", None)
        if self.form == "layered":
            softened.model = layered(self.k, self.D, self.n, hard=False, scale=scale)
        else:
            softened.model = compact(self.k, self.D, self.n, None, scale=scale)
        return softened

    @cached_property
    def certificate(self) -> Exactness:
        """Five seconds of verification against the language; see `verify`."""
        return self.verify(5.0)

    def verify(self, seconds: float, rng: np.random.Generator | None = None) -> Exactness:
        """Test every string over the 2k brackets for half the time, then samples.

        Args:
            seconds: Time limit.
            rng: Generator of the samples.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        random = (
            self.compare(words, lengths) for words, lengths in samples(self.language, self.n, rng)
        )
        return check(self.model, self._exhaust, random, longest=self.n, seconds=seconds)

    def _exhaust(self, length: int) -> Iterator[Batch]:
        symbols = 2 * self.k
        if length == 0:
            yield self.compare(np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64))
            return
        # The last symbols vary within a batch, the earlier ones from batch to batch.
        tail = min(length, max(1, int(math.log(2e4, symbols))))
        grid = np.array(list(product(range(symbols), repeat=tail)), dtype=np.int64)
        for head in product(range(symbols), repeat=length - tail):
            words = np.concatenate([np.tile(np.array(head, np.int64), (len(grid), 1)), grid], 1)
            yield self.compare(words, np.full(len(words), length))

    def compare(self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"]) -> Batch:
        """Compare the verdicts with the language's; see `Batch`."""
        margins = self.margins(words, lengths)
        is_word, _ = self.language.verdicts(words, lengths)
        last = np.maximum(lengths - 1, 0)
        truth = np.where(
            lengths > 0, is_word[np.arange(len(words)), last] if words.size else True, True
        )
        wrong = np.flatnonzero((margins > 0) != truth)
        first = words[wrong[0], : lengths[wrong[0]]].tolist() if len(wrong) else None
        return len(words), len(wrong), float(np.abs(margins).min(initial=math.inf)), first

    def _ids(self, word: Word) -> list[int]:
        ids = self.language.ids(word)
        require(len(ids) <= self.n, "word", f"have at most {self.n} symbols", len(ids))
        return ids


@final
class DyckGenerator:
    """A generator; call it on a prefix for the next-symbol distribution.

    Args:
        language: The language with its distribution.
        n: Largest length of a prefix.

    Attributes:
        model: The transformer; its outputs are logits of the 2k brackets and the end.
    """

    def __init__(self, language: Dyck, n: int) -> None:
        self.language, self.n = language, n
        assert language.depth is not None
        self.k, self.D = language.k, language.depth
        self.model: Transformer = compact(self.k, self.D, n, language.p)

    def __call__(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Probabilities of the 2k brackets and, last, of the end after a valid `prefix`."""
        return self.distributions(prefix)[-1]

    def distributions(self, word: Word) -> Float[ndarray, "prefixes v_plus_1"]:
        """Next-symbol distributions after all prefixes, starting with the empty one."""
        with torch.no_grad():
            logits = self.model(self.slots(word)[0])
        return logits[0].softmax(-1).numpy()

    def slots(self, word: Word) -> tuple[Int[Tensor, "1 n"], list[str]]:
        """The model's input tokens for a prefix, and their symbols."""
        ids = self.language.ids(word)
        require(len(ids) <= self.n, "word", f"have at most {self.n} symbols", len(ids))
        labels = ["start", *(self.language.alphabet[i] for i in ids)]
        return torch.tensor([[2 * self.k, *ids]]), labels

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word, truncated to n symbols."""
        word: list[int] = []
        cache, token = self.model.new_cache(), 2 * self.k
        while len(word) <= self.n:
            with torch.no_grad():
                logits = self.model(torch.tensor([[token]]), cache=cache)[0, -1]
            token = int(np.searchsorted(np.cumsum(logits.softmax(-1).numpy()), rng.random()))
            if token >= 2 * self.k:
                break
            word.append(token)
        return word[: self.n]

    def error(self, words: Sequence[Word]) -> float:
        """Largest difference from the exact probabilities over all prefixes of the words."""
        worst = 0.0
        for word in words:
            ids = self.language.ids(word)
            exact = np.array([self.language.next_symbol(ids[:t]) for t in range(len(ids) + 1)])
            worst = max(worst, float(np.abs(self.distributions(ids) - exact).max()))
        return worst


def samples(
    language: Dyck, n: int, rng: np.random.Generator, batch: int = 256
) -> Iterator[tuple[Int[ndarray, "b n"], Int[ndarray, " b"]]]:
    """Batches of words, near misses and noise; lengths up to n, uniform in the logarithm."""
    while True:
        length = int(np.exp(rng.uniform(0, math.log(n + 1))))
        even = max(2, length - length % 2)
        third = max(1, batch // 3)
        if even > n:
            words = rng.integers(2 * language.k, size=(batch, length))
            yield words, np.full(batch, length)
            continue
        words = np.concatenate(
            [
                language.uniform(third, even, rng),
                language.near_misses(batch - third, even, rng),
            ]
        )
        lengths = np.full(batch, even)
        # A tenth are truncated to one length: prefixes of words, rarely words themselves.
        lengths[rng.random(batch) < 0.1] = rng.integers(0, even + 1)
        yield words, lengths
