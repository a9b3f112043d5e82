"""Tasks that a program solves exactly, with random inputs, plain answers and lower bounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from allometry.construct.programs import (
    aggregate,
    combine,
    indices,
    latest,
    library,
    select,
    tokens,
)
from allometry.construct.programs.expressions import SequenceOperator

Words = list[list[str]]


@final
@dataclass(frozen=True)
class Task:
    """A task on sequences: one answer at every position.

    Attributes:
        words: Description.
        program: Makes the expression that solves it.
        alphabet: The tokens.
        answer: The answers in plain Python.
        draw: Random inputs of one length, from a generator, their number and the length.
        causal: Whether answers depend on earlier tokens only.
        layers: A lower bound on the number of attention layers.
        reason: Why.
    """

    words: str
    program: Callable[[], SequenceOperator]
    alphabet: str
    answer: Callable[[Sequence[str]], list[Any]]
    draw: Callable[[np.random.Generator, int, int], Words]
    causal: bool = False
    layers: int = 1
    reason: str = "The answer depends on other positions, which only attention reads."


def _uniform(letters: str) -> Callable[[np.random.Generator, int, int], Words]:
    def draw(rng: np.random.Generator, count: int, length: int) -> Words:
        return [
            [letters[i] for i in row] for row in rng.integers(len(letters), size=(count, length))
        ]

    return draw


def _brackets(rng: np.random.Generator, count: int, length: int) -> Words:
    """Words of even length; half are balanced, the others have two changed symbols."""
    found, length = [], length - length % 2
    for k in range(count):
        word, depth = [], 0
        for i in range(length):
            close = depth == length - i or (depth > 0 and rng.random() < 0.5)
            word.append(")" if close else "(")
            depth += -1 if close else 1
        if k % 2:
            for i in rng.integers(length, size=2):
                word[i] = "(" if word[i] == ")" else ")"
        found.append(word)
    return found


def _sums(rng: np.random.Generator, count: int, length: int) -> Words:
    found = []
    for _ in range(count):
        bits = ["01"[i] for i in rng.integers(2, size=length)]
        bits[int(rng.integers(1, length - 1)) if length > 2 else 0] = "+"
        found.append(bits)
    return found


def _copies(rng: np.random.Generator, count: int, length: int) -> Words:
    half = max(1, (length - 1) // 2)
    letters = _uniform("abcd")(rng, count, half)
    return [[*w, "|", *["_"] * half] for w in letters]


def _copied(word: Sequence[str]) -> list[Any]:
    at = list(word).index("|")
    return [*word[: at + 1], *word[:at]]


def _copy() -> SequenceOperator:
    bar = aggregate(latest(select(tokens, "|")), indices, 0)
    copied = aggregate(select(indices, indices - bar - 1), tokens, "_")
    return combine(lambda t, c: c if t == "_" else t, tokens, copied)


def _added(word: Sequence[str]) -> list[Any]:
    first, second = "".join(word).split("+")
    total = int(first or "0", 2) + int(second or "0", 2)
    return list(f"{total:b}".rjust(len(word), "0"))


def _followed(word: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for i, token in enumerate(word):
        earlier = [j for j in range(i) if word[j] == token]
        found.append(word[earlier[-1] + 1] if earlier else None)
    return found


def _balanced(word: Sequence[str]) -> list[Any]:
    depth, lowest = 0, 0
    for c in word:
        depth += 1 if c == "(" else -1
        lowest = min(lowest, depth)
    return [depth == 0 and lowest == 0] * len(word)


TASKS: dict[str, Task] = {
    "parity": Task(
        "whether the number of ones is odd",
        library.parity,
        "01",
        lambda w: [w.count("1") % 2] * len(w),
        _uniform("01"),
        reason="The answer depends on every position. With hard attention no depth is enough for "
        "all lengths (Hahn, 2020).",
    ),
    "majority": Task(
        "whether most tokens are ones",
        library.majority,
        "01",
        lambda w: [w.count("1") * 2 > len(w)] * len(w),
        _uniform("01"),
        reason="The answer depends on every position. Majority has no circuits of constant depth "
        "with and, or and not, so hard attention can't compute it.",
    ),
    "copy": Task(
        "the letters before the bar, again after it",
        _copy,
        "abcd|_",
        _copied,
        _copies,
    ),
    "sorting": Task(
        "the tokens in ascending order",
        library.sort,
        "abcd",
        sorted,
        _uniform("abcd"),
    ),
    "induction": Task(
        "the token after the latest earlier occurrence of the present one",
        library.induction,
        "abcd",
        _followed,
        _uniform("abcd"),
        causal=True,
        layers=2,
        reason="By communication complexity one layer needs a width times heads times bits that "
        "grows like n; two layers do not (Sanford, Hsu and Telgarsky, 2024).",
    ),
    "dyck": Task(
        "whether the brackets are balanced",
        library.shuffle_dyck,
        "()",
        _balanced,
        _brackets,
        reason="The answer depends on every position.",
    ),
    "addition": Task(
        "the sum of two binary numbers, most significant digit first",
        lambda: library.addition(2),
        "01+",
        _added,
        _sums,
    ),
}
"""Tasks by name."""
