"""Sequence transduction: reversal, sorting, transliteration.

Letters: b pairs, k symbols of a source, n of its answer.
"""

import hashlib
import math
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from allometry._core.errors import require
from allometry._core.spec import Spec

KINDS = ("reversal", "sorting", "transliteration")

CYRILLIC = dict(zip("abvgdezijklmnoprstufhcy", "абвгдезийклмнопрстуфхцы", strict=True))
CYRILLIC |= {"zh": "ж", "kh": "х", "ch": "ч", "sh": "ш", "yu": "ю", "ya": "я", "shch": "щ"}
"""Cyrillic signs of letters and groups of letters; the longest matching group is read first."""


@final
class Transduction:
    r"""Map a random sequence to another by an exact rule.

    Symbol ids are 0..V-1. The answer starts after `start` = V and ends with `end` = V + 1. Both
    sides are padded with `end`.

    - reversal: the reversed sequence;
    - sorting: its symbols in ascending order;
    - transliteration: Latin letters to Cyrillic. Groups such as sh and shch have one sign, so an
      answer is shorter than its source by an amount that depends on the source.

    Args:
        kind: One of `KINDS`.
        size: V for reversal and sorting; transliteration has its own.
        length: Largest length of a source; lengths are uniform from half of it up.

    Example:
        >>> from allometry.targets import Transduction
        >>> job = Transduction("transliteration")
        >>> job.answer("borshch")
        'борщ'

    References: `sutskever2014`; `vaswani2017` for the models that attend to a source.
    """

    unit = "nats per symbol"
    D_unique = math.inf

    def __init__(self, kind: str = "reversal", size: int = 16, length: int = 12) -> None:
        require(kind in KINDS, "Transduction.kind", f"be one of {', '.join(KINDS)}", kind)
        require(size >= 2, "Transduction.size", "be at least 2", size)
        require(length >= 2, "Transduction.length", "be at least 2", length)
        self.kind, self.length = kind, length
        self.name = kind
        self._latin = sorted(set("".join(CYRILLIC)))
        self._signs = sorted(set(CYRILLIC.values()))
        self.symbols = max(len(self._latin), len(self._signs)) if kind == KINDS[2] else size
        self._size = size

    @property
    def size(self) -> int:
        """Number of symbols, including start and end."""
        return self.symbols + 2

    @property
    def start(self) -> int:
        """The symbol before an answer."""
        return self.symbols

    @property
    def end(self) -> int:
        """The symbol after an answer."""
        return self.symbols + 1

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(Transduction, kind=self.kind, size=self._size, length=self.length)

    @property
    def fingerprint(self) -> str:
        """Identifies this target."""
        text = f"{self.kind} {self.symbols} {self.length}"
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            "kind": self.kind,
            "size": self.size,
            "length": self.length,
            "unit": self.unit,
            "fingerprint": self.fingerprint,
        }

    def answer(self, source: str) -> str:
        """The transliteration of a source text."""
        require(self.kind == KINDS[2], "Transduction.answer", "be of transliteration", self.kind)
        signs, at = "", 0
        while at < len(source):
            longest = (g for g in (4, 2, 1) if source[at : at + g] in CYRILLIC)
            group = next(longest, 0)
            require(group > 0, "source", f"be of the letters {''.join(self._latin)}", source)
            signs += CYRILLIC[source[at : at + group]]
            at += group
        return signs

    def solve(self, source: list[int]) -> list[int]:
        """The answer to a source, as ids without start and end."""
        if self.kind == "reversal":
            return source[::-1]
        if self.kind == "sorting":
            return sorted(source)
        written = self.answer("".join(self._latin[i] for i in source))
        return [self._signs.index(sign) for sign in written]

    def batch(
        self, step: int, *, size: int, seed: int
    ) -> tuple[Int[Tensor, "b k"], Int[Tensor, "b n"]]:
        """Sources, and answers after `start`; a pure function of its arguments.

        Negative steps are for evaluation: training does not use them.
        """
        rng = np.random.default_rng([seed, abs(step), int(step < 0), 8])
        letters = len(self._latin) if self.kind == KINDS[2] else self.symbols
        sources, answers = [], []
        for _ in range(size):
            n = int(rng.integers(max(1, self.length // 2), self.length + 1))
            source = rng.integers(letters, size=n).tolist()
            if self.kind == KINDS[2]:
                source = self._grouped(source, rng)
            sources.append(source + [self.end] * (self.length - len(source)))
            solved = self.solve(source)
            answers.append([self.start, *solved, *[self.end] * (self.length + 1 - len(solved))])
        return torch.tensor(sources), torch.tensor(answers)

    def _grouped(self, source: list[int], rng: np.random.Generator) -> list[int]:
        """The source with random groups of letters inserted, which are rare by chance."""
        groups = [g for g in CYRILLIC if len(g) > 1]
        letters = [self._latin[i] for i in source]
        for i in range(len(letters)):
            if rng.random() < 0.25:
                letters[i] = groups[int(rng.integers(len(groups)))]
        return [self._latin.index(c) for c in "".join(letters)[: self.length]]

    def __repr__(self) -> str:
        return f"Transduction({self.kind}: {self.symbols} symbols, up to {self.length} long)"
