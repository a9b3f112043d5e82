"""Tokenizers of exports, as the files that `AutoTokenizer` reads."""

import json
from collections.abc import Sequence
from typing import Any

from allometry._core.errors import InputError
from allometry.construct.stock.stock_checkpoint import Symbols
from allometry.targets.vocabulary import BPE, Bytes, Characters, Marked, Vocabulary, Words


def of_vocabulary(vocabulary: Vocabulary) -> tuple[str, str]:
    """Content of `tokenizer.json` and `tokenizer_config.json` for a vocabulary."""
    from tokenizers import AddedToken, Tokenizer

    base = vocabulary.base if isinstance(vocabulary, Marked) else vocabulary
    unknown = None
    if isinstance(base, Characters):
        tokenizer = _letters(base.symbols, base.symbols[-1])
        unknown = base.symbols[-1]
    elif isinstance(base, Bytes):
        tokenizer = _bytes()
    elif isinstance(base, Words):
        raise InputError(
            "vocabulary must be characters, bytes or bpe for an export; got words. Train on one "
            "of those."
        )
    else:
        assert isinstance(base, BPE)
        tokenizer = Tokenizer.from_str(base.to_dict()["tokenizer"])
    if isinstance(vocabulary, Marked):
        tokenizer.add_special_tokens(
            [AddedToken(f"<{name}>", normalized=False) for name in vocabulary.names]
        )
    pad = unknown or tokenizer.id_to_token(0) or ""
    return tokenizer.to_str(), _settings(pad=pad, unknown=unknown)


def of_symbols(symbols: Symbols, ids: Sequence[int]) -> tuple[str, str]:
    """The same for a construction: its words, and the tokens around every text.

    Words of one character need no spaces between them; others are separated by spaces.
    """
    from tokenizers import processors

    inside = [w for i, w in enumerate(symbols.words) if i not in {*symbols.before, *symbols.after}]
    table = {word: ids[i] for i, word in enumerate(symbols.words)}
    words = [""] * (max(ids) + 1)
    for word, i in table.items():
        words[i] = word
    words = [word or "<pad>" for word in words]
    single = all(len(word) == 1 for word in inside)
    tokenizer = _letters(words, None) if single else _spaced(words)
    before = [symbols.words[i] for i in symbols.before]
    after = [symbols.words[i] for i in symbols.after]
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            special_tokens=[(w, table[w]) for w in dict.fromkeys([*before, *after])],
        )
    pad = "<pad>" if "<pad>" in words else (before or words)[0]
    special = {}
    if symbols.silent:
        special = {"bos_token": before[0]} if before else {}
        special |= {"eos_token": symbols.words[symbols.ends[0]]} if symbols.ends else {}
    return tokenizer.to_str(), _settings(pad=pad, unknown=None, **special)


def _letters(symbols: Sequence[str], unknown: str | None) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    table = {symbol: i for i, symbol in enumerate(symbols)}
    model = models.WordLevel(table, unk_token=unknown) if unknown else models.WordLevel(table)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _spaced(words: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _bytes() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    # The byte-level alphabet: printable Latin-1 bytes are their own characters, the others are
    # the code points from 256 on, in order.
    printable = {i for i in range(256) if 33 <= i <= 126 or 161 <= i <= 172 or i >= 174}
    hidden = [i for i in range(256) if i not in printable]
    letter = {i: chr(i) for i in printable} | {i: chr(256 + k) for k, i in enumerate(hidden)}
    tokenizer = Tokenizer(models.BPE({letter[i]: i for i in range(256)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _settings(pad: str, unknown: str | None, **special: str) -> str:
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    if unknown is not None:
        settings["unk_token"] = unknown
    return json.dumps(settings | special, indent=1)
