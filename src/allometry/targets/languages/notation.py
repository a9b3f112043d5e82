"""Parse grammars in text form: `S -> '(' S ')' S [0.4] | [0.6]`."""

import re
from dataclasses import dataclass
from typing import final

from allometry._core.errors import InputError

_PIECE = re.compile(
    r"""\s*(?:(?P<comment>\#.*)|(?P<arrow>->|→|::=)|(?P<bar>\|)|(?P<weight>\[\s*[^\]\s]*\s*\])
    |'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<name><[^<>\s]+>|[^\s'"|\[\]]+))""",
    re.VERBOSE,
)
EMPTY = ("ε", "epsilon")


@final
@dataclass(frozen=True)
class Rule:
    """One rule of a grammar.

    Args:
        left: The nonterminal.
        right: Its expansion as pairs (is a terminal, name).
        weight: Weight relative to the other rules of `left`.
        line: Line number in the text; 0 if none.
    """

    left: str
    right: tuple[tuple[bool, str], ...]
    weight: float
    line: int = 0

    def __str__(self) -> str:
        body = " ".join(repr(s) if terminal else s for terminal, s in self.right) or "ε"
        return f"{self.left} -> {body}"


def read_rules(text: str) -> list[Rule]:
    """Parse the rules of a grammar in the notation of NLTK and BNF.

    One rule per line, or alternatives separated by `|`, which may start a line. Terminals are
    quoted, nonterminals are not; nothing, `ε` or `epsilon` is the empty word; a number in brackets
    is a weight (default: 1); `#` starts a comment.

    Raises:
        InputError: A line is invalid; the message names it.
    """
    rules: list[Rule] = []
    left = ""
    for number, line in enumerate(text.splitlines(), 1):
        pieces = _pieces(line, number)
        if not pieces:
            continue
        if len(pieces) > 1 and pieces[1][0] == "arrow":
            if pieces[0][0] != "name":
                raise _wrong(number, line, "have a nonterminal before the arrow")
            left, pieces = pieces[0][1], pieces[2:]
        elif pieces[0][0] == "bar" and left:
            pieces = pieces[1:]
        else:
            raise _wrong(number, line, "begin with 'NAME ->', or with '|' below such a line")
        if any(kind == "arrow" for kind, _ in pieces):
            raise _wrong(number, line, "have one arrow")
        rules += [_rule(left, part, number, line) for part in _split(pieces)]
    if not rules:
        raise InputError("grammar must have at least one rule; got none.")
    return rules


def _pieces(line: str, number: int) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    at = 0
    text = line.rstrip()
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is not None and match.lastgroup == "comment":
            break
        if match is None:
            raise _wrong(number, line, f"be readable at column {at + 1} (an open quote?)")
        kind = match.lastgroup or ""
        pieces.append((kind, match.group(kind)))
        at = match.end()
    return pieces


def _split(pieces: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    parts: list[list[tuple[str, str]]] = [[]]
    for piece in pieces:
        if piece[0] == "bar":
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts


def _rule(left: str, pieces: list[tuple[str, str]], number: int, line: str) -> Rule:
    weight = 1.0
    if pieces and pieces[-1][0] == "weight":
        shown = pieces[-1][1]
        try:
            weight = float(shown[1:-1])
        except ValueError:
            raise _wrong(number, line, f"have a number in brackets, not {shown}") from None
        pieces = pieces[:-1]
        if not 0 < weight < float("inf"):
            raise _wrong(number, line, f"have a weight above 0, not {shown}")
    if any(kind == "weight" for kind, _ in pieces):
        raise _wrong(number, line, "have its weight at the end of the rule")
    right = []
    for kind, name in pieces:
        if kind == "name" and name in EMPTY:
            continue
        terminal = kind in ("single", "double")
        if terminal and not name:
            continue  # '' is the empty word too
        right.append((terminal, name))
    return Rule(left, tuple(right), weight, number)


def _wrong(number: int, line: str, constraint: str) -> InputError:
    return InputError(f"grammar line {number} must {constraint}; got {line.strip()!r}.")
