"""Grammars (Lark, regular expressions, JSON schema) for any vocabulary, through llguidance."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from allometry._core.errors import InputError, require, require_extra


@final
class Grammar:
    """A `Constraint` from a grammar over bytes and the bytes of every token.

    Use one of `regex`, `lark` and `json_schema`.

    Args:
        source: The grammar in llguidance's own form.
        tokens: The bytes each token stands for; empty bytes for one that is never allowed.
    """

    def __init__(self, source: str, tokens: Sequence[bytes]) -> None:
        self._llguidance: Any = require_extra("llguidance", "grammar")
        require(len(tokens) > 0, "Grammar.tokens", "hold at least one", 0)
        self.V = len(tokens)
        self._tokens = frozenset(tokens)
        self._tokenizer = self._llguidance.LLTokenizer(
            self._llguidance.TokenizerWrapper(_Tokens(tokens))
        )
        self._source = source
        problem = self._llguidance.LLMatcher.validate_grammar(source, self._tokenizer)
        if problem:
            raise InputError(f"grammar must be one that can be read; got: {_line(problem)}.")

    def start(self) -> Any:
        """A matcher that has read nothing."""
        # Level 0: the library otherwise prints warnings to stderr.
        return self._llguidance.LLMatcher(self._tokenizer, self._source, log_level=0)

    def allowed(self, state: Any) -> Bool[Tensor, " V"]:
        """The tokens after which the text can still become one of the grammar.

        Raises:
            InputError: The grammar goes on with something that no token is the beginning of.
        """
        forced: bytes = state.compute_ff_bytes()
        if forced and not any(token and _meet(token, forced) for token in self._tokens):
            text = forced.decode("utf-8", "replace")
            raise InputError(
                "grammar must keep to what the model's vocabulary can write; got one in which "
                f"{text[:20]!r} must come next, which it can't."
            )
        return self._bits(state)

    def _bits(self, state: Any) -> Tensor:
        bits = np.frombuffer(state.compute_bitmask(), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(bits, bitorder="little", count=self.V)).bool()

    def advance(self, state: Any, token: int) -> Any:
        """A matcher that has read one token more."""
        after = state.deep_copy()
        if not after.consume_token(token):
            raise InputError(f"token {token} must be allowed by the grammar; it is not.")
        return after

    def complete(self, state: Any) -> bool:
        """Whether what was read is a text of the grammar."""
        return bool(state.is_accepting())


def regex(pattern: str, tokens: Sequence[bytes]) -> Grammar:
    """The texts that match a regular expression from beginning to end."""
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_regex(pattern), tokens)


def lark(text: str, tokens: Sequence[bytes]) -> Grammar:
    """The texts of a context-free grammar in Lark's notation, beginning at `start`."""
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_lark(text), tokens)


def json_schema(schema: Mapping[str, Any], tokens: Sequence[bytes]) -> Grammar:
    """The JSON documents that a schema describes."""
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_json_schema(json.dumps(schema)), tokens)


@final
class _Tokens:
    """What llguidance asks of a tokenizer. The end of text is one more token, never drawn."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        absent = [i for i, token in enumerate(tokens) if not token]
        named = [t or f"<absent {i}>".encode() for i, t in enumerate(tokens)]
        self.tokens = [*named, b"<end>"]
        self.eos_token_id = len(tokens)
        self.bos_token_id = None
        self.special_token_ids = [*absent, len(tokens)]
        self._ids = {t: i for i, t in reversed(list(enumerate(tokens))) if t}
        self._longest = max(map(len, tokens), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """The longest token first; ends where no token fits."""
        found, at = [], 0
        while at < len(text):
            lengths = range(min(self._longest, len(text) - at), 0, -1)
            size = next((n for n in lengths if text[at : at + n] in self._ids), 0)
            if not size:
                break
            found.append(self._ids[text[at : at + size]])
            at += size
        return found


def _meet(token: bytes, forced: bytes) -> bool:
    """Whether a token goes some way with the bytes that must come, or beyond them."""
    return forced.startswith(token) or token.startswith(forced)


def _line(problem: object) -> str:
    """What is wrong, without the picture of the source below it."""
    told = re.split(r"\n\s*(?:\d+\s*)?\|", str(problem), maxsplit=1)[0]
    return " ".join(told.split())[:300].rstrip(" .:")
