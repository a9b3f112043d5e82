"""Vocabularies: encode text to token ids and decode them. Decoding never fails."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.user_files import shorten
from allometry.targets.sentences import BOUNDARY, joined, words

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""Decoded form of the unknown symbol."""

_CHUNK = 1 << 22  # characters processed at once: limits the memory for four bytes per character

Ids = Int[Tensor, " tokens"] | Int[ndarray, " tokens"] | Sequence[int]


class Vocabulary(ABC):
    """A finite set of symbols with ids 0..size-1. Abstract; every subclass is final."""

    kind: str
    symbols: list[str]
    unknown: int | None
    """The id of the unknown symbol; `None` if every text can be encoded."""
    boundary: int | None = None
    """The id of the symbol between sentences, if there is one."""

    @final
    @property
    def size(self) -> int:
        """Number of symbols, including the unknown one."""
        return len(self.symbols)

    @abstractmethod
    def encode(self, text: str) -> Int[ndarray, " tokens"]:
        """The ids of `text`, in the smallest sufficient signed dtype."""

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """The text of `ids`; an id outside the vocabulary becomes the unknown symbol."""

    @abstractmethod
    def token_bytes(self) -> list[bytes]:
        """The bytes of each symbol; empty for the unknown one. For grammars."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The vocabulary as JSON values; `vocabulary_from_dict` reads them."""

    @final
    def __len__(self) -> int:
        return self.size

    @final
    def _dtype(self) -> type[np.signedinteger]:
        # Never uint8: torch interprets uint8 indices as a mask.
        return np.int16 if self.size <= 1 << 15 else np.int32


@final
class Characters(Vocabulary):
    """One symbol for each given character, in code-point order, then the unknown symbol.

    Args:
        characters: The known characters. Any other is encoded as `unknown`.

    Example:
        >>> from allometry.targets.vocabulary import Characters
        >>> v = Characters("abc")
        >>> v.encode("cabz").tolist(), v.decode([2, 0, 1, 3])
        ([2, 0, 1, 3], 'cab�')
    """

    kind = "characters"

    def __init__(self, characters: str) -> None:
        known = sorted(set(characters))
        require(len(known) > 0, "Characters.characters", "hold at least one", characters)
        self.symbols = [*known, UNKNOWN]
        self.unknown = len(known)
        self._table = np.full(ord(known[-1]) + 2, self.unknown, dtype=self._dtype())
        self._table[[ord(c) for c in known]] = np.arange(len(known))

    @staticmethod
    def counted(text: str, size: int | None = None) -> "Characters":
        """The characters of `text`; at most `size` symbols, the rarest become unknown."""
        counts = np.zeros(0x110000, dtype=np.int64)
        for codes in _codes(text):
            chunk = np.bincount(codes)
            counts[: len(chunk)] += chunk
        known = np.flatnonzero(counts)
        if size is not None:
            require(size >= 2, "size", "be at least 2 (one character and the unknown)", size)
            # Ties go to the lower code point.
            known = known[np.argsort(-counts[known], kind="stable")][: size - 1]
        return Characters("".join(map(chr, known)))

    def encode(self, text: str) -> Int[ndarray, " tokens"]:  # noqa: D102
        last = len(self._table) - 1
        parts = [self._table[np.minimum(codes, last)] for codes in _codes(text)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=self._dtype())

    def decode(self, ids: Ids) -> str:  # noqa: D102
        return "".join(self.symbols[i if 0 <= i < self.size else -1] for i in _integers(ids))

    def token_bytes(self) -> list[bytes]:  # noqa: D102
        return [s.encode() for s in self.symbols[:-1]] + [b""]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "characters": "".join(self.symbols[:-1])}


@final
class Bytes(Vocabulary):
    """The 256 bytes. Nothing is unknown; bytes that are not UTF-8 are decoded as �.

    Example:
        >>> from allometry.targets.vocabulary import Bytes
        >>> Bytes().encode("é").tolist(), Bytes().decode([195, 169, 195])
        ([195, 169], 'é�')
    """

    kind = "bytes"

    def __init__(self) -> None:
        self.symbols = [chr(i) if 32 <= i < 127 else f"\\x{i:02x}" for i in range(256)]
        self.unknown = None

    def encode(self, text: str) -> Int[ndarray, " tokens"]:  # noqa: D102
        # Lone surrogates (a broken terminal's input) must not crash a prompt.
        return self.encode_bytes(text.encode("utf-8", errors="replace"))

    def encode_bytes(self, data: bytes) -> Int[ndarray, " tokens"]:
        """The ids of raw bytes: themselves."""
        return np.frombuffer(data, dtype=np.uint8).astype(self._dtype())

    def decode(self, ids: Ids) -> str:  # noqa: D102
        data = b"".join(bytes([i]) if 0 <= i < 256 else UNKNOWN.encode() for i in _integers(ids))
        return data.decode("utf-8", errors="replace")

    def token_bytes(self) -> list[bytes]:  # noqa: D102
        return [bytes([i]) for i in range(256)]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind}


@final
class Words(Vocabulary):
    r"""Words and punctuation marks, then the sentence boundary `</s>` and the unknown symbol.

    White space is not encoded, so decoding gives one sentence a line. Other words are unknown.

    Example:
        >>> from allometry.targets.vocabulary import Words
        >>> v = Words(["not", "to", "be", ",", "."])
        >>> v.encode("to be, not be. To").tolist(), v.boundary, v.unknown
        ([4, 2, 0, 3, 2, 1, 5, 6], 5, 6)
        >>> v.decode([4, 2, 0, 3, 2, 1, 5])
        'to be, not be.\n'
    """

    kind = "words"

    def __init__(self, listed: Sequence[str]) -> None:
        known = sorted(set(listed) - {BOUNDARY, UNKNOWN})
        require(len(known) > 0, "Words.listed", "have at least one word", listed)
        self.symbols = [*known, BOUNDARY, UNKNOWN]
        self.boundary, self.unknown = len(known), len(known) + 1
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}

    @staticmethod
    def counted(text: str, size: int | None = None) -> "Words":
        """The `size` most frequent symbols; by default all words that occur twice or more."""
        require(size is None or size >= 3, "size", "be at least 3 for words", size)
        counts = Counter(word for word in words(text) if word != BOUNDARY)
        # Ties go to the first word in the alphabet.
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        often = [word for word in ranked if counts[word] > 1] or ranked
        return Words(often if size is None else ranked[: size - 2])

    def encode(self, text: str) -> Int[ndarray, " tokens"]:  # noqa: D102
        ids = [self._ids.get(word, self.unknown) for word in words(text)]
        return np.array(ids, dtype=self._dtype())

    def decode(self, ids: Ids) -> str:  # noqa: D102
        return joined(self.symbols[i if 0 <= i < self.size else -1] for i in _integers(ids))

    def token_bytes(self) -> list[bytes]:  # noqa: D102
        return [*(f"{word} ".encode() for word in self.symbols[:-2]), b"\n", b""]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "words": self.symbols[:-2]}


@final
class BPE(Vocabulary):
    """Byte-level byte-pair encoding. Nothing is unknown: all 256 bytes are symbols.

    Args:
        tokenizer: The JSON text of a `tokenizers.Tokenizer`.

    References: `sennrich2016`, on bytes as in `radford2019`.
    """

    kind = "bpe"

    def __init__(self, tokenizer: str) -> None:
        from tokenizers import Tokenizer  # takes half a second; other vocabularies don't need it

        try:
            self._tokenizer = Tokenizer.from_str(tokenizer)
        # A panic in Rust derives from BaseException only.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise InputError(
                f"BPE.tokenizer must be the JSON of a tokenizer; got {shorten(error)}."
            ) from None
        size = self._tokenizer.get_vocab_size()
        self.symbols = [self._tokenizer.id_to_token(i) or UNKNOWN for i in range(size)]
        self.unknown = None

    @staticmethod
    def trained(text: str, size: int | None = None) -> "BPE":
        """Merges learnt from `text` until there are `size` symbols (default: 1,024)."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        size = 1024 if size is None else size
        require(256 <= size <= 1 << 20, "size", "be between 256 and 1,048,576 for bpe", size)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        lines = text.splitlines(keepends=True)
        tokenizer.train_from_iterator(lines, trainer)
        return BPE(tokenizer.to_str())

    def encode(self, text: str) -> Int[ndarray, " tokens"]:  # noqa: D102
        text = text.encode("utf-8", errors="replace").decode("utf-8")
        # In pieces of whole lines, so that a long file does not become one huge Encoding.
        lines, pieces, length = text.splitlines(keepends=True), [], 0
        batch: list[str] = []
        for line in lines:
            batch.append(line)
            length += len(line)
            if length >= _CHUNK // 4:
                pieces.append(self._piece("".join(batch)))
                batch, length = [], 0
        pieces.append(self._piece("".join(batch)))
        return np.concatenate(pieces)

    def _piece(self, text: str) -> Int[ndarray, " tokens"]:
        return np.asarray(self._tokenizer.encode(text).ids, dtype=self._dtype())

    def decode(self, ids: Ids) -> str:  # noqa: D102
        parts: list[str] = []
        known: list[int] = []
        for i in _integers(ids):
            if 0 <= i < self.size:
                known.append(i)
            else:
                parts += [self._tokenizer.decode(known, skip_special_tokens=False), UNKNOWN]
                known = []
        return "".join([*parts, self._tokenizer.decode(known, skip_special_tokens=False)])

    def token_bytes(self) -> list[bytes]:  # noqa: D102
        # The byte-level alphabet: printable Latin-1 bytes are their own characters, the others are
        # the code points from 256 on, in order.
        printable = {i for i in range(256) if 33 <= i <= 126 or 161 <= i <= 172 or i >= 174}
        hidden = [i for i in range(256) if i not in printable]
        byte = {chr(i): i for i in printable} | {chr(256 + k): i for k, i in enumerate(hidden)}
        # Symbols of other tokenizers may be outside this alphabet: no grammar allows them.
        return [
            bytes(byte[c] for c in symbol) if all(c in byte for c in symbol) else b""
            for symbol in self.symbols
        ]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "tokenizer": self._tokenizer.to_str()}


@final
class Marked(Vocabulary):
    """A vocabulary with control codes after its symbols: one for each source of a text.

    A code is written `<name>`. It is recognised only at the very start of a text, as in a prompt;
    the same characters inside a text are not a code.

    Args:
        base: The symbols of the text.
        names: Names of the codes.

    Example:
        >>> from allometry.targets.vocabulary import Characters, Marked
        >>> v = Marked(Characters("ab"), ["prose", "code"])
        >>> v.encode("<code>ab").tolist(), v.decode([3, 0])
        ([4, 0, 1], '<prose>a')

    References: `keskar2019` for the codes.
    """

    kind = "marked"

    def __init__(self, base: Vocabulary, names: Sequence[str]) -> None:
        require(len(set(names)) == len(names) > 0, "Marked.names", "be different", list(names))
        self.base, self.names = base, list(names)
        self.symbols = [*base.symbols, *(f"<{name}>" for name in names)]
        self.unknown = base.unknown

    def code(self, name: str) -> int:
        """The id of a source's code."""
        require(name in self.names, "code", f"be one of {', '.join(self.names)}", name)
        return self.base.size + self.names.index(name)

    def encode(self, text: str) -> Int[ndarray, " tokens"]:  # noqa: D102
        for name in self.names:
            mark = f"<{name}>"
            if text.startswith(mark):
                rest = self.base.encode(text[len(mark) :]).astype(self._dtype())
                return np.concatenate([np.array([self.code(name)], dtype=self._dtype()), rest])
        return self.base.encode(text).astype(self._dtype())

    def decode(self, ids: Ids) -> str:  # noqa: D102
        parts: list[str] = []
        known: list[int] = []
        for i in _integers(ids):
            if self.base.size <= i < self.size:
                parts += [self.base.decode(known), self.symbols[i]]
                known = []
            else:
                known.append(i)
        return "".join([*parts, self.base.decode(known)])

    def token_bytes(self) -> list[bytes]:  # noqa: D102
        return [*self.base.token_bytes(), *(b"" for _ in self.names)]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "base": self.base.to_dict(), "names": self.names}


def vocabulary_from_dict(data: Any) -> Vocabulary:
    """The vocabulary that `to_dict` wrote.

    Raises:
        InputError: `data` is not valid; it may come from an untrusted file.
    """
    return _from_dict(data, marked=True)


def _from_dict(data: Any, *, marked: bool) -> Vocabulary:
    require(isinstance(data, Mapping), "vocabulary", "be an object", data)
    kind = data.get("kind")
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        return Characters(_text(data, "characters"))
    if kind == "bpe":
        return BPE(_text(data, "tokenizer"))
    if kind == "words":
        return Words(_texts(data, "words"))
    if kind == "marked" and marked:
        return Marked(_from_dict(data.get("base"), marked=False), _texts(data, "names"))
    known = "characters, bytes, words, bpe" + (" or marked" if marked else "")
    raise InputError(f"vocabulary.kind must be {known}; got {shorten(repr(kind))}.")


def _text(data: Mapping[str, Any], name: str) -> str:
    require(isinstance(data.get(name), str), f"vocabulary.{name}", "be text", data.get(name))
    return str(data[name])


def _texts(data: Mapping[str, Any], name: str) -> list[str]:
    texts = data.get(name)
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return texts
    raise InputError(f"vocabulary.{name} must be a list of {name}; got {shorten(repr(texts))}.")


def _codes(text: str) -> Iterator[Int[ndarray, " characters"]]:
    """Yield the code points of `text` in chunks."""
    for start in range(0, len(text), _CHUNK):
        piece = text[start : start + _CHUNK].encode("utf-32-le", errors="surrogatepass")
        yield np.frombuffer(piece, dtype=np.uint32).astype(np.int64)


def _integers(ids: Ids) -> list[int]:
    return ids.reshape(-1).tolist() if isinstance(ids, Tensor | ndarray) else [int(i) for i in ids]
