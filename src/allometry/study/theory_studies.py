"""Studies that answer a question of theory: degree, rank, Mixer, built against trained."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import require
from allometry.study.job_table import JOBS
from allometry.study.recipes.built_runs import built_and_trained
from allometry.study.recipes.chebyshev_runs import chebyshevs
from allometry.study.recipes.polynomial_learning import learners
from allometry.study.recipes.rank_runs import mixers, ranks, stacks
from allometry.study.study import Study


@final
@dataclass(frozen=True)
class Question:
    """A question; it takes the place of a study's target.

    Args:
        name: One word, the name of the job.
        asked: The question.
        unit: Of the measured quantity.
    """

    name: str
    asked: str
    unit: str
    D_unique: float = math.inf

    def describe(self) -> dict[str, Any]:
        """The question in `study.json`, as plain values."""
        fingerprint = hashlib.sha256(f"question {self.name}".encode()).hexdigest()
        about = {"kind": "question", "name": self.name, "question": self.asked, "unit": self.unit}
        return about | {"token": "point", "fingerprint": fingerprint}


QUESTIONS = {
    name: Question(name, asked, JOBS[name].unit)
    for name, asked in {
        "degree": "Which degree of layer learns most at one budget of parameters?",
        "rank": "Which degree of layer has the largest separation rank at one budget?",
        "mixer": "Where does an MLP-Mixer's separation rank come from?",
        "built-against-trained": "How large are built and trained networks for the same task?",
    }.items()
}
"""Questions by the name of their job."""


def question_study(
    name: str,
    *,
    families: Sequence[str] = (),
    seeds: int | None = None,
    points: Sequence[float] | None = None,
) -> Study:
    """The study of one of `QUESTIONS`.

    Args:
        name: Of the question.
        families: Stacks for degree (`polynomial_stacks.STACKS`); forms for rank and mixer
            (`rank_runs.FORMS`, `rank_runs.MIXERS`); tasks for built-against-trained
            (`algorithm_tasks.TASKS`). Default: all.
        seeds: Trainings of each stack on each function, or of each size on each task. Default: 16,
            for tasks 1; a rank has none.
        points: Points or tokens seen in each training, one number. Default: 192,000, for tasks
            2,000,000.
    """
    known = JOBS[name].families
    for family in families:
        require(family in known, "family", f"be one of {', '.join(known)} for {name}", family)
    chosen = list(dict.fromkeys(families)) or list(known)
    points = list(points or JOBS[name].tokens)
    require(len(points) == 1, "tokens", f"be one number for {name}", points)
    usual = 1 if name == "built-against-trained" else 16
    seeds = usual if seeds is None else seeds
    if name == "degree":
        require(seeds >= 6, "seeds", "be at least 6 for the median to have an interval", seeds)

    def recipe(target: Any, ladder: Any, *, tokens: Sequence[float], seeds: int) -> list[Any]:
        if name == "rank":
            return [*ranks(chosen), *stacks()]
        if name == "mixer":
            return mixers(chosen)
        if name == "built-against-trained":
            return built_and_trained(chosen, seeds=seeds, points=tokens[0])
        return [*chebyshevs(chosen), *learners(chosen, seeds=seeds, points=tokens[0])]

    return Study(QUESTIONS[name], recipes=[recipe], ladder=[1], seeds=seeds, tokens=points)
