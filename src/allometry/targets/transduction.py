"""From one sequence to another: reversal, sorting, transliteration.

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
"""Letters and groups of letters with one sign each; the longest group that fits is read first."""


@final
class Transduction:
    r"""The job of turning a random sequence into another by a rule, known exactly.

    Ids of the symbols are 0..V-1; the answer begins after `start` = V and ends with `end` = V + 1,
    and both sides are filled up with `end`, which is padding beyond the first.

    - reversal: the sequence backwards;
    - sorting: its symbols in order;
    - transliteration: Latin letters to Cyrillic, where groups such as sh and shch have one sign,
      so that an answer is shorter than its source by an amount that must be found out.

    Args:
        kind: One of `KINDS`.
        size: V for reversal and sorting; transliteration has its own.
        length: The most symbols of a source; lengths are drawn from half of it up.

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
        """Symbols there are, with start and end."""
        return self.symbols + 2

    @property
    def start(self) -> int:
        """What an answer begins after."""
        return self.symbols

    @property
    def end(self) -> int:
        """What an answer ends with."""
        return self.symbols + 1

    @property
    def spec(self) -> Spec:
        """The request that makes this target again in another process."""
        return Spec(Transduction, kind=self.kind, size=self._size, length=self.length)

    @property
    def fingerprint(self) -> str:
        """What tells this job from others."""
        said = f"{self.kind} {self.symbols} {self.length}"
        return hashlib.sha256(said.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a journal should remember of the target, in plain values."""
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
        """What a written source becomes, for transliteration."""
        require(self.kind == KINDS[2], "Transduction.answer", "be of transliteration", self.kind)
        made, place = "", 0
        while place < len(source):
            longest = (g for g in (4, 2, 1) if source[place : place + g] in CYRILLIC)
            group = next(longest, 0)
            require(group > 0, "source", f"be of the letters {''.join(self._latin)}", source)
            made += CYRILLIC[source[place : place + group]]
            place += group
        return made

    def solve(self, source: list[int]) -> list[int]:
        """The answer to a source of ids, without start and end."""
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

        Steps below 0 are for measuring: no training sees them.
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
        """The source with groups of letters put in at random, for chance makes few."""
        groups = [g for g in CYRILLIC if len(g) > 1]
        written = [self._latin[i] for i in source]
        for place in range(len(written)):
            if rng.random() < 0.25:
                written[place] = groups[int(rng.integers(len(groups)))]
        return [self._latin.index(c) for c in "".join(written)[: self.length]]

    def __repr__(self) -> str:
        return f"Transduction({self.kind}: {self.symbols} symbols, up to {self.length} long)"
