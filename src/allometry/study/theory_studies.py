"""Studies that ask a question of theory rather than do a job: degree, rank, Mixer."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import require
from allometry.study.recipes.chebyshev import chebyshevs
from allometry.study.recipes.polynomial_learning import learners
from allometry.study.recipes.polynomial_stacks import STACKS
from allometry.study.recipes.rank_runs import FORMS, MIXERS, mixers, ranks, stacks
from allometry.study.study import Study


@final
@dataclass(frozen=True)
class Question:
    """What is asked, standing where other studies have their target.

    Args:
        name: In one word; what the report answers goes by it.
        asked: The question in words.
        unit: Of what is measured.
    """

    name: str
    asked: str
    unit: str
    D_unique: float = math.inf

    def describe(self) -> dict[str, Any]:
        """What a journal should remember of it, in plain values."""
        print_ = hashlib.sha256(f"question {self.name}".encode()).hexdigest()
        said = {"kind": "question", "name": self.name, "question": self.asked, "unit": self.unit}
        return said | {"token": "point", "fingerprint": print_}


QUESTIONS = {
    "degree": Question(
        "degree",
        "Which degree of layer learns most at one budget of parameters?",
        "relative squared error",
    ),
    "rank": Question(
        "rank", "Which degree of layer has the largest separation rank at one budget?", "rank"
    ),
    "mixer": Question("mixer", "Where does an MLP-Mixer's separation rank come from?", "rank"),
}
"""By the name that `allometry run` knows them by."""


_FAMILIES: dict[str, Any] = {"degree": STACKS, "rank": FORMS, "mixer": MIXERS}


def families() -> dict[str, list[str]]:
    """What the families of each question are called."""
    return {name: list(known) for name, known in _FAMILIES.items()}


def question_study(
    name: str,
    *,
    families: Sequence[str] = (),
    seeds: int | None = None,
    points: Sequence[float] | None = None,
) -> Study:
    """The study of one of `QUESTIONS`.

    Args:
        name: Which.
        families: For degree which stacks (of `learning.STACKS`); for rank and mixer which forms
            (of `expressive.FORMS`, `expressive.MIXERS`); all unless told.
        seeds: Trainings of each stack on each teacher, 16 unless told; a rank has none.
        points: Points seen in each training, one number; 192,000 unless told.
    """
    known = _FAMILIES[name]
    for family in families:
        require(family in known, "family", f"be one of {', '.join(known)} for {name}", family)
    chosen = list(dict.fromkeys(families)) or list(known)
    points = list(points or [192_000])
    require(len(points) == 1, "tokens", f"be one number for {name}", points)
    seeds = 16 if seeds is None else seeds
    if name == "degree":
        require(seeds >= 6, "seeds", "be at least 6 for the median to have an interval", seeds)

    def recipe(target: Any, ladder: Any, *, tokens: Sequence[float], seeds: int) -> list[Any]:
        if name == "rank":
            return [*ranks(chosen), *stacks()]
        if name == "mixer":
            return mixers(chosen)
        return [*chebyshevs(chosen), *learners(chosen, seeds=seeds, points=tokens[0])]

    return Study(QUESTIONS[name], recipes=[recipe], ladder=[1], seeds=seeds, tokens=points)
