r"""Networks for $\mathrm{Dyck}_{k,D}$ whose weights come from a proof.

Letters: b words, n symbols, v symbols of the alphabet.
"""

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
from allometry.construct.attention_maps import attention_maps
from allometry.construct.dyck_weights import compact, layered
from allometry.construct.exact_certificate import Batch, Exactness, check
from allometry.models.transformer.model import Transformer
from allometry.targets.languages.dyck import Dyck
from allometry.targets.languages.language import Word

MOST_SCORES = 2**18
"""Numbers worked on at once, scores or the stream: what a processor's cache holds."""


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
        k: Types of brackets.
        D: Depth of nesting allowed.
        n: Symbols of the longest word.
        mode: "recognise" gives verdicts, "generate" the law of the next symbol.
        form: Of the recogniser: "layered" is the paper's, D + 1 layers of hard attention of which
            each cancels the innermost brackets left; "compact" has three layers of softmax for
            any D and gives the verdict of every prefix in one pass.
        p: Probability of opening, for the generator (see `targets.Dyck`).

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
        require(value >= 1, f"dyck.{name}", "be at least 1", value)
    require(mode in ("recognise", "generate"), "dyck.mode", "be recognise or generate", mode)
    require(form in ("layered", "compact"), "dyck.form", "be layered or compact", form)
    if mode == "generate" or form == "compact":
        # Scores reach 80 (n + 1) 5 (D + 2)^2; their rounding must stay below the gaps of 40.
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
        language: What it recognises.
        n: Symbols of the longest word.
        form: "layered" or "compact".

    Attributes:
        model: The transformer.
    """

    def __init__(self, language: Dyck, n: int, form: str) -> None:
        self.language, self.n, self.form = language, n, form
        assert language.depth is not None
        self.k, self.D = language.k, language.depth
        make = (
            layered(self.k, self.D, n) if form == "layered" else compact(self.k, self.D, n, None)
        )
        self.model: Transformer = make

    def __call__(self, word: Word) -> bool:
        """Whether `word` belongs to the language, by the network's word."""
        ids = self._ids(word)
        return bool(self.many(np.array([ids], dtype=np.int64).reshape(1, len(ids)))[0])

    def prefixes(self, word: Word) -> list[bool]:
        """The verdict on every prefix: entry i is that on the first i + 1 symbols."""
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
        """Verdicts on many words at once.

        Args:
            words: Ids; what lies beyond a word's length means nothing.
            lengths: How long each is; all alike unless told.
        """
        return self.margins(words, lengths) > 0

    def margins(
        self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"] | None = None
    ) -> Float[ndarray, " b"]:
        """How far each output lies from the threshold: above 0 accepts, 1/2 is as it should be."""
        b, n = words.shape
        require(n <= self.n, "words", f"have at most {self.n} symbols", n)
        if self.form == "compact":
            step = max(1, MOST_SCORES // ((n + 1) ** 2 * self.model.heads))
            tables = [self._compact(words[i : i + step])[..., 0] for i in range(0, b, step)]
            last = np.full(b, n) if lengths is None else lengths
            return np.concatenate([np.zeros((0, n + 1)), *tables])[np.arange(b), last] - 0.5
        # Words of one length go together: without padding, its attention takes time n, not n^2.
        made = np.zeros(b)
        for length in [n] if lengths is None else np.unique(lengths).tolist():
            rows = np.arange(b) if lengths is None else np.flatnonzero(lengths == length)
            step = max(1, MOST_SCORES // ((length + 2) * self.model.width))
            for i in range(0, len(rows), step):
                part = rows[i : i + step]
                made[part] = self._layered(words[part, :length])
        return made

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
        """The place at which it went wrong, or `None` for a word.

        Compact: the first symbol after which no word can follow, or the length where brackets
        stay open. Layered: the first bracket that nothing cancelled or whose partner is of another
        type.
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
        """What the model reads for a word, and the symbols that stand there."""
        ids = self._ids(word)
        frame = [2 * self.k, *ids] + ([2 * self.k + 1] if self.form == "layered" else [])
        inside = [self.language.alphabet[i] for i in ids]
        labels = ["start", *inside] + (["end"] if self.form == "layered" else [])
        return torch.tensor([frame]), labels

    def attention(self, word: Word) -> list[Float[Tensor, "h n n"]]:
        """What each slot looks at, layer by layer; slot 0 is the start symbol."""
        maps = attention_maps(self.model, self.slots(word)[0])
        return [m[0] for m in maps if m is not None]

    def partners(self, word: Word) -> list[int | None]:
        """For each closing bracket the place its head looks at when it is matched, and back."""
        ids = self._ids(word)
        found: list[int | None] = [None] * len(ids)
        maps = self.attention(ids)
        looks = [maps[1]] if self.form == "compact" else maps[: self.D]
        for layer in looks:
            for i, symbol in enumerate(ids):
                if symbol % 2 == 0 or found[i] is not None:
                    continue
                j = int(layer[0, i + 1].argmax()) - 1
                if 0 <= j < len(ids) and ids[j] == symbol - 1 and found[j] is None:
                    found[i], found[j] = j, i
        return found

    def softened(self, scale: float) -> "DyckRecogniser":
        """The same network with softmax, its scores multiplied by `scale`."""
        make = object.__new__(DyckRecogniser)
        make.language, make.n, make.form = self.language, self.n, self.form
        make.k, make.D = self.k, self.D
        if self.form == "layered":
            make.model = layered(self.k, self.D, self.n, hard=False, scale=scale)
        else:
            make.model = compact(self.k, self.D, self.n, None, scale=scale)
        return make

    @cached_property
    def certificate(self) -> Exactness:
        """Five seconds of checking against the language; `verify` takes as long as you like."""
        return self.verify(5.0)

    def verify(self, seconds: float, rng: np.random.Generator | None = None) -> Exactness:
        """Every string over the 2k brackets while half the time lasts, then samples.

        Args:
            seconds: Time to spend.
            rng: Source of the samples.
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
        # The last symbols are laid out as an array, those before them one after another.
        tail = min(length, max(1, int(math.log(2e4, symbols))))
        grid = np.array(list(product(range(symbols), repeat=tail)), dtype=np.int64)
        for head in product(range(symbols), repeat=length - tail):
            words = np.concatenate([np.tile(np.array(head, np.int64), (len(grid), 1)), grid], 1)
            yield self.compare(words, np.full(len(words), length))

    def compare(self, words: Int[ndarray, "b n"], lengths: Int[ndarray, " b"]) -> Batch:
        """Words tried, verdicts unlike the language's, least margin, first wrong word."""
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
    """A generator; call it on a prefix for the law of the next symbol.

    Args:
        language: Whose law it has.
        n: Symbols of the longest prefix.

    Attributes:
        model: The transformer; its outputs are logits of the 2k brackets and the end.
    """

    def __init__(self, language: Dyck, n: int) -> None:
        self.language, self.n = language, n
        assert language.depth is not None
        self.k, self.D = language.k, language.depth
        self.model: Transformer = compact(self.k, self.D, n, language.p)

    def __call__(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Shares of the 2k brackets and, last, of the end after `prefix`, which begins a word."""
        return self.laws(prefix)[-1]

    def laws(self, word: Word) -> Float[ndarray, "prefixes v_plus_1"]:
        """The law after every prefix, from the empty one on, in one pass."""
        with torch.no_grad():
            logits = self.model(self.slots(word)[0])
        return logits[0].softmax(-1).numpy()

    def slots(self, word: Word) -> tuple[Int[Tensor, "1 n"], list[str]]:
        """What the model reads for a prefix, and the symbols that stand there."""
        ids = self.language.ids(word)
        require(len(ids) <= self.n, "word", f"have at most {self.n} symbols", len(ids))
        labels = ["start", *(self.language.alphabet[i] for i in ids)]
        return torch.tensor([[2 * self.k, *ids]]), labels

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A word generated symbol by symbol; cut at n."""
        word: list[int] = []
        cache, token = self.model.new_cache(), 2 * self.k
        while len(word) <= self.n:
            with torch.no_grad():
                law = self.model(torch.tensor([[token]]), cache=cache)[0, -1].softmax(-1)
            token = int(np.searchsorted(np.cumsum(law.numpy()), rng.random()))
            if token >= 2 * self.k:
                break
            word.append(token)
        return word[: self.n]

    def error(self, words: Sequence[Word]) -> float:
        """Largest difference from the exact law, over all prefixes of the words."""
        worst = 0.0
        for word in words:
            ids = self.language.ids(word)
            exact = np.array([self.language.next_symbol(ids[:t]) for t in range(len(ids) + 1)])
            worst = max(worst, float(np.abs(self.laws(ids) - exact).max()))
        return worst


def samples(
    language: Dyck, n: int, rng: np.random.Generator, batch: int = 256
) -> Iterator[tuple[Int[ndarray, "b n"], Int[ndarray, " b"]]]:
    """Words of all lengths to n, spread evenly in the logarithm: words, near misses, noise."""
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
        # A tenth are cut short, to one length: prefixes of words, which are words only by chance.
        lengths[rng.random(batch) < 0.1] = rng.integers(0, even + 1)
        yield words, lengths
