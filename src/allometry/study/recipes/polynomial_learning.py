"""Stacks of chosen degrees at one budget, trained with Adam on teachers of eight variables.

Many seeds are packed, and a rate is chosen on a validation split.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from allometry._core.spec import Spec
from allometry.measure import epsilon_rank, matricization
from allometry.measure.uncertainty import median
from allometry.study.recipes.polynomial_stacks import STACKS, Stack
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import high_rank_functions
from allometry.targets.high_rank_functions import HighRank
from allometry.train.budget import Budget
from allometry.train.packed_regression import RATES, learn_function, uniform_points

BATCH = 128
EPSILON = 0.1

TEACHERS: dict[str, Spec] = {
    "power": Spec(high_rank_functions.inner_power, h=4, q=3),
    "median": Spec(high_rank_functions.median, h=4),
    "largest": Spec(high_rank_functions.largest_product, h=4),
}
"""Of eight variables, four a side."""


@final
@dataclass(frozen=True)
class LearningRun(Request):
    """One stack on one teacher: a rate chosen on validation points, then many seeds at it.

    Args:
        teacher: The function.
        stack: Its layers.
        name: Its name in `STACKS`, for tables.
        seeds: Trained at the chosen rate.
        trials: Trained at each rate to choose it.
        rates: To choose from.
        steps: Updates of each training.
        rung: Which stack this is, from 0.
    """

    teacher: HighRank
    stack: Stack
    name: str
    seeds: int
    trials: int
    rates: list[float | int]
    steps: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, teacher, shape; seeds are inside."""
        return {
            "family": self.name,
            "target": self.teacher.name,
            "shape": self.stack.words,
            "rung": self.rung,
            "seed": 0,
        }

    def budget(self) -> Budget:
        """Of one seed: C is six for each parameter and point."""
        N, D = self.stack.size(self.teacher.inputs), self.steps * BATCH
        return Budget(N, 0, D, 6.0 * N * D)

    def work(self) -> float:
        """Members are stepped together; layers cost calls, members arithmetic."""
        members = self.seeds + self.trials * len(self.rates)
        each = (
            2.0 if self.stack.fractional else 1.0
        )  # what reads a share of its inputs gathers them
        return 1.0 + each * self.steps * (8e-4 * len(self.stack.degrees) + 1.6e-4 * members)

    def __call__(self, place: RunContext) -> Outcome:
        """Train, choose, train, judge on fresh points."""
        torch.set_default_dtype(torch.float32)
        started = time.monotonic()
        learnt = learn_function(
            lambda rng: self.stack.made(self.teacher.inputs, True, rng),
            self.teacher,
            self.teacher.inputs,
            seeds=self.seeds,
            rates=self.rates,
            trials=self.trials,
            steps=self.steps,
            batch=BATCH,
            watch=place.watch,
            stop=place.stop,
        )
        test = median(learnt.test)
        budget = self.budget()
        return Outcome(
            columns=self.columns
            | {
                "part": "learning",
                "N": budget.N,
                "N_embedding": 0,
                "D": budget.D,
                "D_unique": budget.D,
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": _finite(min(learnt.validation.values())),
                "loss_se": None,
                "test_loss": _finite(test.value),
                "test_lo": _finite(test.interval[0]),
                "test_hi": _finite(test.interval[1]),
                "seeds": self.seeds,
                "rate": learnt.rate,
                "errors": [_finite(e) for e in learnt.test],
                "rank": self.teacher.rank,
                "epsilon_rank": teacher_epsilon_rank(self.teacher),
                "seconds": time.monotonic() - started,
            }
        )


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def teacher_epsilon_rank(teacher: HighRank, epsilon: float = EPSILON, points: int = 400) -> int:
    """The rank that comes within a relative distance epsilon of the teacher at random points."""
    rng = torch.Generator().manual_seed(4)
    sides = (teacher.side, teacher.inputs - teacher.side)
    a, b = (uniform_points(points, n, rng).double() for n in sides)
    return epsilon_rank(matricization(teacher, a, b).numpy(), epsilon)


def learners(
    chosen: Sequence[str] = tuple(STACKS),
    *,
    seeds: int = 16,
    points: float = 192_000,
    trials: int = 3,
    rates: Sequence[float] = RATES,
    teachers: Sequence[str] = tuple(TEACHERS),
) -> list[Spec]:
    """Requests for stacks on teachers of eight variables, trained with Adam.

    Args:
        chosen: Of `STACKS`.
        seeds: Trainings at the chosen rate.
        points: Seen in each training.
        trials: Trainings at each rate to choose it.
        rates: To choose from.
        teachers: Of `TEACHERS`.
    """
    return [
        Spec(
            LearningRun,
            teacher=TEACHERS[teacher],
            stack=STACKS[name].spec,
            name=name,
            seeds=seeds,
            trials=trials,
            rates=list(rates),
            steps=max(1, round(points / BATCH)),
            rung=list(STACKS).index(name),
        )
        for teacher in teachers
        for name in chosen
    ]
