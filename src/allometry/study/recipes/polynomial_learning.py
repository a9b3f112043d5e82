"""Polynomial networks at one parameter budget, trained with Adam on functions of eight variables.

Seeds are vectorised, and the learning rate is chosen on validation points.
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
from allometry.study.recipes.base import identity
from allometry.study.recipes.polynomial_stacks import STACKS, Stack
from allometry.study.recipes.run_outcome import journal_columns
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
"""Target functions of eight variables, four on each side of the partition."""


@final
@dataclass(frozen=True)
class LearningRun(Request):
    """One stack on one function: the learning rate is chosen first, then many seeds are trained.

    Args:
        teacher: The function.
        stack: Its layers.
        name: Name in `STACKS`, for tables.
        seeds: Trainings at the chosen rate.
        trials: Trainings at each rate to choose it.
        rates: Candidate learning rates.
        steps: Updates of each training.
        rung: Index of the stack, from 0.
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
        """Family, target and shape; one run has all seeds."""
        return identity(self.name, self.teacher.name, self.stack.words, self.rung)

    def budget(self) -> Budget:
        """Of one seed; C is six FLOPs per parameter and point."""
        N, D = self.stack.size(self.teacher.inputs), self.steps * BATCH
        return Budget(N, 0, D, 6.0 * N * D)

    def work(self) -> float:
        """Members are vectorised: layers cost calls, members arithmetic."""
        members = self.seeds + self.trials * len(self.rates)
        # A fractional layer gathers the share of its inputs that it reads.
        factor = 2.0 if self.stack.fractional else 1.0
        return 1.0 + factor * self.steps * (8e-4 * len(self.stack.degrees) + 1.6e-4 * members)

    def __call__(self, context: RunContext) -> Outcome:
        """Choose the rate, train all seeds, evaluate on new points."""
        started = time.monotonic()
        learnt = learn_function(
            lambda rng: self.stack.network(self.teacher.inputs, True, rng),
            self.teacher,
            self.teacher.inputs,
            seeds=self.seeds,
            rates=self.rates,
            trials=self.trials,
            steps=self.steps,
            batch=BATCH,
            watch=context.watch,
            stop=context.stop,
        )
        test, budget = median(learnt.test), self.budget()
        columns = journal_columns(
            budget,
            None,
            D_unique=budget.D,
            seconds=time.monotonic() - started,
            part="learning",
            test_loss=_finite(test.value),
            test_lo=_finite(test.interval[0]),
            test_hi=_finite(test.interval[1]),
            seeds=self.seeds,
            rate=learnt.rate,
            errors=[_finite(e) for e in learnt.test],
            rank=self.teacher.rank,
            epsilon_rank=teacher_epsilon_rank(self.teacher),
        )
        loss = _finite(min(learnt.validation.values()))
        return Outcome(columns=self.columns | columns | {"loss": loss})


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def teacher_epsilon_rank(teacher: HighRank, epsilon: float = EPSILON, points: int = 400) -> int:
    """The smallest rank within relative distance epsilon of the function at random points."""
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
    """Requests for stacks on functions of eight variables, trained with Adam.

    Args:
        chosen: Of `STACKS`.
        seeds: Trainings at the chosen rate.
        points: Points seen in each training.
        trials: Trainings at each rate to choose it.
        rates: Candidate learning rates.
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
