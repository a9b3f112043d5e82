"""A small language of formulas: `E + A/N^alpha + B/D^beta`, parsed and never evaluated as code.

```
sum     := product (("+" | "-") product)*
product := sign (("*" | "/") sign)*
sign    := ("-" | "+") sign | power
power   := atom (("^" | "**") sign)?
atom    := number | name | function "(" sum ("," sum)* ")" | "(" sum ")"
```

Functions: exp, log, log2, log10, sqrt, abs, tanh, sigmoid, softplus, min, max. A power binds more
tightly than a sign before it and associates to the right: `-N^-a^2` is `-(N^(-(a^2)))`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, final

from allometry._core.errors import InputError
from allometry._core.user_files import shorten

LONGEST = 4000
"""Largest number of characters of an expression."""

MOST_TOKENS = 800
"""Largest number of numbers, names and marks of an expression."""

DEEPEST = 60
"""Largest depth of nested brackets, signs and powers."""

FUNCTIONS = {
    **dict.fromkeys(("exp", "log", "log2", "log10", "sqrt", "abs", "tanh"), 1),
    **dict.fromkeys(("sigmoid", "softplus"), 1),
    **dict.fromkeys(("min", "max"), 2),
}
"""Functions of the language with their number of arguments."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![A-Za-z_0-9.])"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<mark>\*\*|[-+*/^(),]))",
    re.ASCII,
)


@final
@dataclass(frozen=True)
class Node:
    """A number, a name, or an operation on other nodes.

    Args:
        kind: `number`, `name`, `neg`, `+`, `-`, `*`, `/`, `^` or a function's name.
        parts: The operands.
        value: The value of a number.
        name: The name of a variable or parameter.
    """

    kind: str
    parts: tuple["Node", ...] = ()
    value: float = 0.0
    name: str = ""

    def names(self) -> Iterator[str]:
        """The names in the order of their first occurrence, with repetitions."""
        if self.kind == "name":
            yield self.name
        for part in self.parts:
            yield from part.names()

    def __str__(self) -> str:
        return _printed(self)


_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "^": 4}


def _printed(node: Node) -> str:
    """The node as text that parses to the same node."""
    if node.kind == "number":
        return f"{node.value:.12g}"
    if node.kind == "name":
        return node.name
    if node.kind not in _STRENGTH:
        return f"{node.kind}({', '.join(map(_printed, node.parts))})"
    mine = _STRENGTH[node.kind]

    def inside(part: Node, least: int) -> str:
        weak = _STRENGTH.get(part.kind, 9) < least
        return f"({_printed(part)})" if weak else _printed(part)

    if node.kind == "neg":
        return f"-{inside(node.parts[0], mine)}"
    left, right = node.parts
    if node.kind == "^":
        return f"{inside(left, 5)}^{inside(right, 3)}"
    space = " " if mine == 1 else ""
    # The right side of - and / needs brackets at equal strength; a sign there always.
    tight = inside(right, 4 if right.kind == "neg" else mine + 1)
    return f"{inside(left, mine)}{space}{node.kind}{space}{tight}"


def parse(text: str, *, longest: int = LONGEST) -> Node:
    """The expression in `text` as a tree.

    Args:
        text: The expression.
        longest: Largest number of characters; tokens are limited in proportion.

    Raises:
        InputError: The text is not an expression; the message names the position.

    Example:
        >>> print(parse("E + A/N**alpha"))
        E + A/N^alpha
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            f"The expression must be text such as 'E + A/N^alpha'; got {shorten(repr(text), 40)}."
        )
    if len(text) > longest:
        raise InputError(
            f"The expression must have at most {longest:,} characters; got {len(text):,}."
        )
    parser = _Parser(text, MOST_TOKENS * max(1, longest // LONGEST))
    node = parser.sum(0)
    parser.end()
    return node


@final
class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, most: int) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self.fail(at, "hold numbers, names, + - * / ^ ( ) and commas only")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match.group(kind), match.start(kind)))
            at = match.end()
        if len(self.tokens) > most:
            raise InputError(
                f"The expression must have at most {most} numbers, names and marks; got "
                f"{len(self.tokens):,}."
            )
        self.at = 0

    def fail(self, at: int, wanted: str) -> NoReturn:
        found = shorten(self.text[at : at + 12], 12) if at < len(self.text) else "its end"
        raise InputError(
            f"The expression must {wanted}; got {found!r} at character {at + 1} of "
            f"{shorten(self.text, 60)!r}."
        )

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def position(self) -> int:
        return self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)

    def expect(self, mark: str) -> None:
        if self.peek() != mark:
            self.fail(self.position(), f"have {mark!r} here")
        self.at += 1

    def end(self) -> None:
        if self.at < len(self.tokens):
            self.fail(self.position(), "have an operator between its terms")

    def sum(self, depth: int) -> Node:
        left = self.product(depth)
        while self.peek() in ("+", "-"):
            mark = self.peek()
            self.at += 1
            left = Node(mark, (left, self.product(depth)))
        return left

    def product(self, depth: int) -> Node:
        left = self.sign(depth)
        while self.peek() in ("*", "/"):
            mark = self.peek()
            self.at += 1
            left = Node(mark, (left, self.sign(depth)))
        return left

    def sign(self, depth: int) -> Node:
        if depth > DEEPEST:
            self.fail(self.position(), f"be nested at most {DEEPEST} deep")
        if self.peek() in ("-", "+"):
            mark = self.peek()
            self.at += 1
            inner = self.sign(depth + 1)
            return Node("neg", (inner,)) if mark == "-" else inner
        return self.power(depth)

    def power(self, depth: int) -> Node:
        base = self.atom(depth)
        if self.peek() not in ("^", "**"):
            return base
        self.at += 1
        return Node("^", (base, self.sign(depth + 1)))

    def atom(self, depth: int) -> Node:
        if self.at >= len(self.tokens):
            self.fail(len(self.text), "go on with a number, a name or a bracket")
        kind, token, at = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return Node("number", value=self._number(token, at))
        if kind == "name":
            if self.peek() == "(":
                return self._call(token, at, depth)
            if token in FUNCTIONS:
                self.fail(at, f"give {token} its argument in brackets")
            return Node("name", name=token)
        if token != "(":
            self.fail(at, "have a number, a name or a bracket here")
        inner = self.sum(depth + 1)
        self.expect(")")
        return inner

    def _number(self, token: str, at: int) -> float:
        value = float(token)
        if value == float("inf"):
            self.fail(at, "hold finite numbers")
        return value

    def _call(self, name: str, at: int, depth: int) -> Node:
        if name not in FUNCTIONS:
            self.fail(at, f"use the functions {', '.join(FUNCTIONS)}, and * for products")
        self.expect("(")
        parts = [self.sum(depth + 1)]
        while self.peek() == ",":
            self.at += 1
            parts.append(self.sum(depth + 1))
        self.expect(")")
        if len(parts) != FUNCTIONS[name]:
            count = FUNCTIONS[name]
            self.fail(at, f"give {name} {count} argument{'s' if count > 1 else ''}")
        return Node(name, tuple(parts))


def degree(node: Node, names: frozenset[str]) -> int:
    """0 if the node does not depend on `names`, 1 if it is affine in them together, else 2."""
    if node.kind == "name":
        return int(node.name in names)
    parts = [degree(part, names) for part in node.parts]
    if node.kind in ("+", "-", "neg"):
        return max(parts)
    if node.kind == "*":
        return min(sum(parts), 2)
    if node.kind == "/" and not parts[1]:
        return parts[0]
    return 2 if any(parts) else 0


def replaced(node: Node, by: Mapping[str, Node]) -> Node:
    """The node with names replaced by other nodes."""
    if node.kind == "name":
        return by.get(node.name, node)
    return Node(node.kind, tuple(replaced(part, by) for part in node.parts), node.value, node.name)
