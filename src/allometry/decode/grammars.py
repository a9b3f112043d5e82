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

    Use `regex`, `lark` or `json_schema` to create one.

    Args:
        source: The grammar in llguidance's format.
        tokens: The bytes of each token; empty bytes for a token that is never allowed.
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
            raise InputError(f"grammar must be valid; got: {_line(problem)}.")

    def start(self) -> Any:
        """A matcher at the beginning of the text."""
        # Level 0: the library otherwise prints warnings to stderr.
        return self._llguidance.LLMatcher(self._tokenizer, self._source, log_level=0)

    def allowed(self, state: Any) -> Bool[Tensor, " V"]:
        """Tokens after which the text can still become a text of the grammar.

        Raises:
            InputError: The grammar requires bytes that no token starts with.
        """
        forced: bytes = state.compute_ff_bytes()
        if forced and not any(token and _agree(token, forced) for token in self._tokens):
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
        """A matcher after one more token."""
        after = state.deep_copy()
        if not after.consume_token(token):
            raise InputError(f"token {token} must be allowed by the grammar; it is not.")
        return after

    def complete(self, state: Any) -> bool:
        """Whether the text so far is a text of the grammar."""
        return bool(state.is_accepting())


def regex(pattern: str, tokens: Sequence[bytes]) -> Grammar:
    """Texts that match a regular expression completely."""
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_regex(pattern), tokens)


def lark(text: str, tokens: Sequence[bytes]) -> Grammar:
    """Texts of a context-free grammar in Lark's notation with the start symbol `start`."""
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_lark(text), tokens)


def json_schema(schema: Any, tokens: Sequence[bytes]) -> Grammar:
    """JSON documents that are valid under a schema.

    Args:
        schema: A mapping, or a boolean, as JSON schemas are.
        tokens: The vocabulary.
    """
    kinds = isinstance(schema, Mapping | bool)
    require(kinds, "json_schema.schema", "be a JSON object", type(schema).__name__)
    matcher: Any = require_extra("llguidance", "grammar").LLMatcher
    return Grammar(matcher.grammar_from_json_schema(json.dumps(schema)), tokens)


@final
class _Tokens:
    """The tokenizer interface of llguidance. The end of text is an extra token, never sampled."""

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
        """Greedy longest-match tokenization; stops where no token matches."""
        ids, at = [], 0
        while at < len(text):
            lengths = range(min(self._longest, len(text) - at), 0, -1)
            size = next((n for n in lengths if text[at : at + n] in self._ids), 0)
            if not size:
                break
            ids.append(self._ids[text[at : at + size]])
            at += size
        return ids


def _agree(token: bytes, forced: bytes) -> bool:
    """Whether a token is a prefix of the required bytes or the other way round."""
    return forced.startswith(token) or token.startswith(forced)


def _line(problem: object) -> str:
    """The message of llguidance without the excerpt of the source below it."""
    message = re.split(r"\n\s*(?:\d+\s*)?\|", str(problem), maxsplit=1)[0]
    return " ".join(message.split())[:300].rstrip(" .:")
