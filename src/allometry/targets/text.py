"""Text as a target: predict the next symbol."""

import hashlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec, identified_by_content
from allometry.targets.corpus import read, topics
from allometry.targets.vocabulary import BPE, Bytes, Characters, Vocabulary, Words

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_UNITS = {"characters": "character", "bytes": "byte", "words": "word", "bpe": "token"}


@final
class Text:
    r"""Next-symbol prediction on text files.

    Each file is split into a contiguous beginning (train), middle (validation) and end (test); the
    parts of several files are joined in the given order. The vocabulary is built from the training
    part only: a character that occurs only later becomes the unknown symbol and is counted in
    `unknown`. Files are read as UTF-8; a byte order mark is dropped and Windows line ends become
    `\n` (with `vocabulary="bytes"` the file is read unchanged).

    Args:
        *paths: One or more text files.
        vocabulary: `"characters"`, `"bytes"`, `"words"` (with punctuation and a symbol at the end
            of each sentence), or `"bpe"` (byte-level, learnt from the train part).
        size: Largest number of symbols. For characters and words, the rarest become unknown; by
            default all characters are kept, and all words that occur twice. For bpe, 1,024 by
            default. Bytes are always 256.
        splits: Shares of train, validation and test, which sum to one. All but train may be 0.
        fingerprint: Expected fingerprint: a study resumes only on the same text.

    Attributes:
        train: Token ids of the training part; likewise `validation`, `test`.
        unknown: Number of unknown tokens of each split.
        unit: Unit of the loss.
        fingerprint: SHA-256 over contents, vocabulary and splits.

    Example:
        >>> from allometry.targets import Text
        >>> text = Text.from_string("to be or not to be, that is the question " * 40)
        >>> text.batch(0, size=2, context=8, seed=0).shape
        torch.Size([2, 9])
        >>> text.unit
        'nats per character'
    """

    def __init__(
        self,
        *paths: str | Path,
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float | int] = (0.9, 0.05, 0.05),
        fingerprint: str | None = None,
    ) -> None:
        require(len(paths) > 0, "Text.paths", "name at least one file", paths)
        _check(vocabulary, splits)
        # Absolute paths, for workers in other folders. The key depends on the content, not on the
        # path, so a link to the file gives the same key.
        files = [str(Path(path).expanduser().absolute()) for path in paths]
        documents = [read(Path(file), vocabulary) for file in files]
        arguments = {"paths": files, "vocabulary": vocabulary, "size": size, "splits": splits}
        self._build(documents, Path(files[0]).stem, Text.from_paths, arguments)
        self._verify(fingerprint, "its files")

    @staticmethod
    @identified_by_content("paths")
    def from_paths(
        paths: Sequence[str],
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float | int] = (0.9, 0.05, 0.05),
        fingerprint: str | None = None,
    ) -> "Text":
        """`Text(*paths, ...)` with keyword arguments only, for a `Spec`."""
        return Text(
            *paths, vocabulary=vocabulary, size=size, splits=splits, fingerprint=fingerprint
        )

    @staticmethod
    def from_string(
        text: str,
        name: str = "string",
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float | int] = (0.9, 0.05, 0.05),
        fingerprint: str | None = None,
    ) -> "Text":
        """A target from text in memory."""
        _check(vocabulary, splits)
        target = object.__new__(Text)
        arguments: dict[str, Any] = {"text": text, "name": name, "vocabulary": vocabulary}
        arguments |= {"size": size, "splits": splits}
        target._build([text], name, Text.from_string, arguments)
        target._verify(fingerprint, "its text")
        return target

    @staticmethod
    def embedded(
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float | int] = (0.9, 0.05, 0.05),
        repeats: bool = False,
        fingerprint: str | None = None,
    ) -> "Text":
        """The English prose in Python's library: the language reference behind `help()`.

        Topics are in alphabetical order. Several of them repeat whole sections of others (a fifth
        of the text; a sixth of the last twentieth occurs verbatim before). A paragraph is kept
        only where it first occurs, so that the test part does not repeat the training part. The
        text depends on the Python version (characters without repeats, with repeats): 3.11.7 has
        373,103 and 465,048, 3.12.1 396,820 and 492,233, 3.13.0 413,994 and 510,664. Compare losses
        only for equal fingerprints.

        Args:
            vocabulary: See `Text`.
            size: See `Text`.
            splits: See `Text`.
            repeats: Keep paragraphs that occur more than once.
            fingerprint: See `Text`.
        """
        _check(vocabulary, splits)
        target = object.__new__(Text)
        arguments = {"vocabulary": vocabulary, "size": size, "splits": splits, "repeats": repeats}
        target._build([topics(repeats)], "embedded", Text.embedded, arguments)
        version = platform.python_version()
        target._verify(fingerprint, f"the documentation of Python {version}")
        return target

    def _build(
        self,
        documents: Sequence[str | bytes],
        name: str,
        maker: Any,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self.splits = tuple(float(share) for share in arguments["splits"])
        kind, size = arguments["vocabulary"], arguments["size"]
        texts: list[Any] = _cut(documents, self.splits)
        if kind == "bytes":
            require(size in (None, 256), "size", "be 256 or left out for bytes", size)
            texts = [t.encode() if isinstance(t, str) else t for t in texts]
        self.vocabulary: Vocabulary
        if kind == "characters":
            self.vocabulary = Characters.counted(texts[0], size)
        elif kind == "words":
            self.vocabulary = Words.counted(texts[0], size)
        elif kind == "bpe":
            self.vocabulary = BPE.trained(texts[0], size)
        else:
            self.vocabulary = Bytes()
        ids = [self._encode(t) for t in texts]
        self.train, self.validation, self.test = (torch.from_numpy(i) for i in ids)
        self._characters = {s: _characters(t) for s, t in zip(SPLITS, texts, strict=True)}
        unknown = self.vocabulary.unknown
        self.unknown = {
            s: 0 if unknown is None else int((i == unknown).sum())
            for s, i in zip(SPLITS, ids, strict=True)
        }
        self.unit = f"nats per {_UNITS[kind]}"
        self.fingerprint = _fingerprint(texts, self.vocabulary, self.splits)
        self.arguments = {**arguments, "splits": list(self.splits)}
        self._maker = maker
        self._shuffles: dict[tuple[int, int, int], tuple[int, ndarray]] = {}

    def _encode(self, text: str | bytes) -> ndarray:
        if isinstance(text, bytes):
            return Bytes().encode_bytes(text)
        return self.vocabulary.encode(text)

    def _verify(self, fingerprint: str | None, source: str) -> None:
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise InputError(
                f"Text.fingerprint must be {self.fingerprint[:12]}... of {self.name}; got "
                f"{fingerprint[:12]}.... The text changed ({source}); start a new study for it."
            )

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(self._maker, **self.arguments, fingerprint=self.fingerprint)

    @property
    def D_unique(self) -> int:
        """Number of training tokens; training on more repeats them."""
        return len(self.train)

    def split(self, name: str) -> Int[Tensor, " tokens"]:
        """The token ids of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def characters_per_token(self, split: str) -> float:
        """Mean characters per token; a loss divided by it is in nats per character."""
        tokens = len(self.split(split))
        require(tokens > 0, "split", "not be empty", split, "Give it a share in splits.")
        return self._characters[split] / tokens

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        shown = {k: v for k, v in self.arguments.items() if k != "text"}
        tokens = {s: len(self.split(s)) for s in SPLITS}
        return {
            "target": self.name,
            **shown,
            "vocabulary_size": self.vocabulary.size,
            "tokens": tokens,
            "characters": dict(self._characters),
            "unknown": dict(self.unknown),
            "D_unique": self.D_unique,
            "unit": self.unit,
            "fingerprint": self.fingerprint,
            "python": platform.python_version() if self.name == "embedded" else None,
        }

    def windows(self, context: int) -> int:
        """Number of windows of one epoch: all that fit, minus one so that the grid can shift."""
        require(context >= 1, "context", "be at least 1", context)
        predicted = len(self.train) - 1
        if predicted < context:
            raise InputError(
                f"{self.name} must have a training part longer than the context; got "
                f"{len(self.train)} tokens for a context of {context}. "
                "Give a longer text or a shorter context."
            )
        return max(1, predicted // context - 1)

    def epochs(self, steps: int, *, size: int, context: int) -> float:
        """Number of epochs of `steps` batches of `size` windows."""
        return steps * size / self.windows(context)

    def batch(
        self, step: int, *, size: int, context: int, seed: int
    ) -> Int[Tensor, "{size} {context}+1"]:
        """The training windows of one step: inputs are `[:, :-1]`, targets `[:, 1:]`.

        A pure function of its arguments, so a resumed run sees the same batches. In every epoch
        the text is divided into non-overlapping windows of `context` targets on a randomly shifted
        grid, and the windows are shuffled. No token is a target twice in an epoch; over epochs,
        each occurs at every distance from a window's start.

        Args:
            step: Number of the batch, from 0.
            size: Windows in the batch.
            context: Context length in tokens.
            seed: Seed of the order.
        """
        require(step >= 0, "step", "be at least 0", step)
        require(size >= 1, "size", "be at least 1", size)
        require(seed >= 0, "seed", "be at least 0", seed)
        n = self.windows(context)
        number = np.arange(step * size, (step + 1) * size)
        starts = np.empty(size, dtype=np.int64)
        for epoch in range(number[0] // n, number[-1] // n + 1):
            here = number // n == epoch
            shift, order = self._shuffle(seed, epoch, context)
            starts[here] = shift + context * order[number[here] % n]
        index = torch.from_numpy(starts)[:, None] + torch.arange(context + 1)
        return self.train[index].long()

    def _shuffle(self, seed: int, epoch: int, context: int) -> tuple[int, ndarray]:
        key = (seed, epoch, context)
        if key not in self._shuffles:
            n = self.windows(context)
            rng = np.random.default_rng([seed, epoch, context])
            shift = int(rng.integers(len(self.train) - n * context))
            while len(self._shuffles) >= 16:  # the packed models of a rung, with their seeds
                self._shuffles.pop(next(iter(self._shuffles)))
            self._shuffles[key] = shift, rng.permutation(n).astype(np.int64)
        return self._shuffles[key]

    def blocks(
        self, split: str, context: int, overlap: int = 0
    ) -> tuple[
        Int[Tensor, "windows {context}"],
        Int[Tensor, "windows {context}"],
        Bool[Tensor, "windows {context}"],
    ]:
        """A whole split as `(inputs, targets, mask)`, in order.

        Every token but the first is a target at exactly one position where `mask` is true. A token
        early in its window is predicted from a short context. `overlap` repeats the last tokens of
        a window at the start of the next, where the mask excludes them, so that every prediction
        after the first window has at least `overlap` tokens of context.
        """
        require(context >= 1, "context", "be at least 1", context)
        require(0 <= overlap < context, "overlap", "be at least 0 and below context", overlap)
        ids = self.split(split).long()
        if len(ids) < 2:
            raise InputError(
                f"{self.name} must have at least 2 tokens in its {split} split; got {len(ids)}. "
                "Give a longer text or a larger share in splits."
            )
        stride = context - overlap
        predicted = len(ids) - 1
        n = 1 + max(0, -(-(predicted - context) // stride))
        index = stride * torch.arange(n)[:, None] + torch.arange(context)
        mask = index < predicted
        mask[1:, :overlap] = False
        index = index.clamp(max=predicted - 1)
        return ids[index], ids[index + 1], mask

    def __repr__(self) -> str:
        return (
            f"Text({self.name}: {self.D_unique:,} training tokens, "
            f"{self.vocabulary.size} {self.vocabulary.kind})"
        )


def _check(vocabulary: str, splits: Sequence[float | int]) -> None:
    require(
        vocabulary in _UNITS, "Text.vocabulary", "be characters, bytes, words or bpe", vocabulary
    )
    valid = len(splits) == 3 and all(0 <= s <= 1 for s in splits) and abs(sum(splits) - 1) < 1e-9
    require(
        valid and splits[0] > 0,
        "Text.splits",
        "be three shares of train, validation and test that sum to 1, train above 0",
        tuple(splits),
    )


def _cut(documents: Sequence[str | bytes], shares: Sequence[float | int]) -> list[Any]:
    """The three parts, each joined over the documents."""
    parts: list[list[Any]] = [[], [], []]
    for document in documents:
        n = len(document)
        # Rounded before the cut: 0.9 + 0.05 is slightly below 0.95 in binary.
        first = int(n * shares[0])
        second = n if shares[2] == 0 else int(n * round(shares[0] + shares[1], 12))
        for part, (a, b) in zip(parts, ((0, first), (first, second), (second, n)), strict=True):
            part.append(document[a:b])
    joined = [p[0] if len(p) == 1 else p[0][:0].join(p) for p in parts]
    for name, share, part in zip(SPLITS, shares, joined, strict=True):
        if share > 0 and len(part) < 2:
            raise InputError(
                f"text must be long enough for its splits; got {sum(map(len, documents))} "
                f"characters, of which {len(part)} for {name}. Give a longer text or set the "
                f"share of {name} to 0."
            )
    return joined


def _characters(text: str | bytes) -> int:
    """Number of characters of a part; in bytes, those that start a UTF-8 character."""
    if isinstance(text, str):
        return len(text)
    return int(((np.frombuffer(text, dtype=np.uint8) & 0xC0) != 0x80).sum())


def _fingerprint(
    texts: Sequence[str | bytes], vocabulary: Vocabulary, splits: Sequence[float | int]
) -> str:
    head = [vocabulary.to_dict(), list(splits), [len(t) for t in texts]]
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for text in texts:
        digest.update(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
