"""Constructed networks beside trained ones on tasks that programs solve exactly.

Letters: b words in a batch, n positions.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import torch
from torch.nn import functional as F

from allometry._core.spec import Spec
from allometry.construct import program
from allometry.construct.programs.interpreter import plain
from allometry.construct.programs.value_sets import Domains
from allometry.models.transformer.model import Transformer
from allometry.study.recipes.algorithm_tasks import TASKS
from allometry.study.recipes.base import identity, layers
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.request import Outcome, Request, RunContext
from allometry.train.budget import Budget
from allometry.train.loop import Progress, Stopped

LENGTH = 11
"""Training length; odd, for a copy of five letters."""
SHARES = (1.0, 1.5, 2.0)
"""Tested lengths, as multiples of the training length."""
GOAL = 0.999
"""Share of words that must be right at every position."""
SIZES = ((1, 8), (2, 8), (2, 16), (2, 32), (2, 64))
"""Depth and width of trained networks, from small to large."""
BATCH = 64
TESTED = 1000
RATE = 3e-3


def tested_lengths(length: int) -> list[int]:
    """The tested lengths; odd, as the training length."""
    return [int(length * share) // 2 * 2 + 1 if share > 1 else length for share in SHARES]


@final
@dataclass(frozen=True)
class BuiltRun(Request):
    """The program of a task, compiled for all tested lengths, and checked.

    Args:
        task: A name in `TASKS`.
        length: The training length of its rivals.
    """

    task: str
    length: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target and shape; nothing is random."""
        return identity("built", self.task, "compiled program")

    @property
    def dtype(self) -> torch.dtype:
        """Constructions are exact in double precision."""
        return torch.float64

    def budget(self) -> Budget:
        """Parameters are known once it is compiled; nothing is trained."""
        return Budget(1, 0, 0, 0.0)

    def work(self) -> float:
        """Compiling takes milliseconds, checking a second."""
        return 2.0

    def __call__(self, context: RunContext) -> Outcome:
        """Compile the program and compare it with plain Python at each length."""
        started = time.monotonic()
        task = TASKS[self.task]
        longest = max(tested_lengths(self.length))
        made = program(task.program(), alphabet=task.alphabet, n=longest)
        rng = np.random.default_rng(1)
        right = []
        for n in tested_lengths(self.length):
            words = task.draw(rng, 200, n)
            answers = made.many(words)
            equal = [a == task.answer(w) for a, w in zip(answers, words, strict=True)]
            right.append(sum(equal) / len(equal))
        context.watch(Progress(1, 1, 1 - right[0]))
        size = sum(p.numel() for p in made.model.parameters())
        columns = journal_columns(
            Budget(size, 0, 0, 0.0),
            None,
            D_unique=0,
            seconds=time.monotonic() - started,
            counted=False,
            part="built",
            layers=made.model.depth,
            width=made.model.width,
            accuracy=right,
            lengths=tested_lengths(self.length),
            bound=task.layers,
            reason=task.reason,
        )
        return Outcome(columns=self.columns | columns)


@cache
def _values(name: str) -> tuple[Any, ...]:
    """The possible answers of a task; the same at every length from 3 on."""
    task = TASKS[name]
    return tuple(plain(v) for v in Domains(tuple(task.alphabet), 3).values(task.program()))


@final
@dataclass(frozen=True)
class TrainedRun(Request):
    """One transformer trained on a task at one length; it stops when it reaches the goal.

    Args:
        task: A name in `TASKS`.
        length: Training length.
        depth: Blocks.
        width: Of the residual stream.
        points: Most training tokens.
        rung: Index of the size, from 0.
        seed: Of weights and data.
    """

    task: str
    length: int
    depth: int
    width: int
    points: float
    rung: int
    seed: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape and seed."""
        shape = layers(self.depth, self.width)
        return identity("trained", self.task, shape, self.rung, self.seed)

    @property
    def steps(self) -> int:
        """Most updates."""
        return max(1, round(self.points / (BATCH * self.length)))

    def model(self) -> Transformer:
        """The untrained network: rotary positions, so that it has no limit on its length."""
        task = TASKS[self.task]
        return Transformer(
            len(task.alphabet),
            self.width,
            self.depth,
            4 if self.width >= 16 else 2,
            max(tested_lengths(self.length)),
            kind="decoder" if task.causal else "encoder",
            positions="rotary",
            outputs=len(_values(self.task)),
            rng=torch.Generator().manual_seed(self.seed),
        )

    def budget(self) -> Budget:
        """C is six FLOPs per parameter and token."""
        N, D = sum(p.numel() for p in self.model().parameters()), self.steps * BATCH * self.length
        return Budget(N, 0, D, 6.0 * N * D)

    def work(self) -> float:
        """A step costs calls for each block, and arithmetic."""
        return 1.0 + self.steps * self.depth * (1.5e-3 + 4e-5 * self.width)

    def __call__(self, context: RunContext) -> Outcome:
        """Train until the goal is reached or the tokens are used, then test longer words."""
        started = time.monotonic()
        model, rng = self.model(), np.random.default_rng(self.seed)
        optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
        plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=self.steps)
        taken, accuracy = 0, 0.0
        for step in range(1, self.steps + 1):
            loss = self._loss(model, rng)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            plan.step()
            taken = step
            if step % 100 == 0 or step == self.steps:
                context.watch(Progress(step, self.steps, loss.item()))
                accuracy = self._accuracy(model, self.length, 200)
                if accuracy >= GOAL and self._accuracy(model, self.length, TESTED) >= GOAL:
                    break
            if context.stop():
                raise Stopped
        right = [self._accuracy(model, n, TESTED) for n in tested_lengths(self.length)]
        budget = self.budget()
        D = taken * BATCH * self.length
        columns = journal_columns(
            Budget(budget.N, 0, D, 6.0 * budget.N * D),
            None,
            D_unique=D,
            seconds=time.monotonic() - started,
            part="trained",
            layers=self.depth,
            width=self.width,
            accuracy=right,
            lengths=tested_lengths(self.length),
            reached=right[0] >= GOAL,
        )
        return Outcome(columns=self.columns | columns | {"loss": 1 - right[0]})

    def _batch(
        self, rng: np.random.Generator, count: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and answer numbers (b, n)."""
        task, number = TASKS[self.task], {v: i for i, v in enumerate(_values(self.task))}
        place = {t: i for i, t in enumerate(task.alphabet)}
        words = task.draw(rng, count, length)
        ids = torch.tensor([[place[t] for t in w] for w in words])
        return ids, torch.tensor([[number[a] for a in task.answer(w)] for w in words])

    def _loss(self, model: Transformer, rng: np.random.Generator) -> torch.Tensor:
        ids, answers = self._batch(rng, BATCH, self.length)
        return F.cross_entropy(model(ids).flatten(0, 1), answers.flatten())

    @torch.no_grad()
    def _accuracy(self, model: Transformer, length: int, count: int) -> float:
        """Share of words with the right answer at every position."""
        ids, answers = self._batch(np.random.default_rng(10_000 + length), count, length)
        return float((model(ids).argmax(-1) == answers).all(1).double().mean())


def built_and_trained(
    tasks: Sequence[str] = tuple(TASKS),
    *,
    seeds: int = 1,
    points: float = 1.2e6,
    sizes: Sequence[tuple[int, int]] = SIZES,
    length: int = LENGTH,
) -> list[Spec]:
    """Requests for the constructed network and trained ones of each task.

    Args:
        tasks: Of `TASKS`.
        seeds: Trainings of each size.
        points: Most tokens of a training.
        sizes: Depth and width of each size.
        length: Training length.
    """
    built = [Spec(BuiltRun, task=task, length=length) for task in tasks]
    trained = [
        Spec(
            TrainedRun,
            task=task,
            length=length,
            depth=depth,
            width=width,
            points=points,
            rung=rung,
            seed=seed,
        )
        for task in tasks
        for rung, (depth, width) in enumerate(sizes)
        for seed in range(seeds)
    ]
    return [*built, *trained]
