"""Built and trained transformers on one sequence-to-sequence function, error against size."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry import construct
from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.construct.two_block import count
from allometry.measure import d_p
from allometry.models import Transformer
from allometry.study.recipes.run_outcome import untrained
from allometry.study.recipes.transformer import grow
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import SequenceFunction
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost
from allometry.train.loop import Progress, descend
from allometry.train.objectives import squared_error
from allometry.train.optimiser import adamw

BASE_WIDTH = 16
"""The width at which the learning rate is the number that was asked for."""

BUILDERS = {"thin": construct.universal, "compact": construct.compact}


def distance(model: Callable[[Tensor], Tensor], target: SequenceFunction, seed: int) -> Estimate:
    """The distance $d_2$ of a model from the function, on points that no training sees."""
    return d_p(
        lambda x: model(x.float()).double(), target.f, shape=(target.d, target.n), seed=seed
    )


@final
@dataclass(frozen=True)
class BuiltRun(Request):
    """One construction. Its data are the cells whose values were asked of the function.

    Args:
        target: The function.
        method: "thin" (the proof's blocks) or "compact" (two wide ones).
        cells: Along each entry, 1/delta.
        rung: Which of the grids this is, from 0.
    """

    target: SequenceFunction
    method: str
    cells: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung; a construction has no seed."""
        return {
            "family": f"{self.method} construction",
            "target": self.target.name,
            "shape": f"cells of 1/{self.cells}",
            "rung": self.rung,
            "seed": 0,
        }

    @property
    def _cost(self) -> construct.UniversalCost:
        t = self.target
        return construct.cost(t.d, t.n, delta=1 / self.cells, positions=t.positions)

    def budget(self) -> Budget:
        """Parameters (of the compact form those not zero); no training, so C is 0."""
        t = self.target
        compact = count(t.d, t.n, self.cells, t.positions)
        N = compact if self.method == "compact" else self._cost.parameters
        return Budget(N, 0, self._cost.cells, 0.0)

    def work(self) -> float:
        """Blocks are built and run on some thousand points."""
        return 1.0 + 2e-3 * self._cost.blocks

    def __call__(self, place: RunContext) -> Outcome:
        """Build, measure, keep the weights."""
        started, t = time.monotonic(), self.target
        made = BUILDERS[self.method](t.f, t.d, t.n, 1 / self.cells, positions=t.positions)
        loss, test = (d_p(made, t.f, shape=(t.d, t.n), points=512, seed=seed) for seed in (1, 2))
        made.save(place.weights)
        place.watch(Progress(1, 1, loss.value))
        there = sum(int((w != 0).sum()) for w in made.model.parameters())
        budget = dataclasses.replace(self.budget(), N=there)
        found = untrained(budget, loss, test, time.monotonic() - started)
        return Outcome(columns=self.columns | found | {"blocks": made.model.depth})


@final
@dataclass(frozen=True)
class LearnerRun(Request):
    """One transformer trained on random inputs of the function and its answers.

    Args:
        target: The function.
        width: Of the residual stream.
        depth: Blocks.
        heads: Attention heads of a block.
        batch: Sequences in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1; it falls as the root of the depth.
        seed: Of weights and data.
        rung: Which size of the ladder this is, from 0.
    """

    target: SequenceFunction
    width: int
    depth: int
    heads: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return {
            "family": "trained transformer",
            "target": self.target.name,
            "shape": f"{self.depth} layers, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    def model(self) -> Transformer:
        """The untrained model, reading and writing columns as the constructions do."""
        return self.drawn(torch.Generator().manual_seed(self.seed))

    def drawn(self, rng: torch.Generator | None) -> Transformer:
        """A model of this shape."""
        return Transformer(
            *(None, self.width, self.depth, self.heads, self.target.n),
            kind="encoder",
            positions="learned" if self.target.positions else None,
            inputs=self.target.d,
            outputs=self.target.d,
            columns=True,
            readout_scale=BASE_WIDTH / self.width,
            rng=rng,
        )

    def budget(self) -> Budget:
        """Counted on a model of this shape."""
        N, ends, per_sequence = _cost(
            self.target.spec, self.width, self.depth, self.heads, self.target.d, self.target.n
        )
        D = self.steps * self.batch
        return Budget(N, ends, D, per_sequence * D)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic at a modest rate."""
        return self.steps * (0.003 + 0.002 * self.depth) + self.budget().C / 2e10

    def __call__(self, place: RunContext) -> Outcome:
        """Train, measure on fresh points, keep the weights."""
        torch.set_default_dtype(torch.float32)
        model, target = self.model(), self.target
        rate = self.lr / math.sqrt(self.depth)
        optimiser = adamw(model, lr=rate, width=self.width, base_width=BASE_WIDTH)
        trained = descend(
            model,
            optimiser,
            lambda step: squared_error(
                model, *target.batch(step, size=self.batch, seed=self.seed)
            ),
            lambda: distance(model, target, seed=1),
            steps=self.steps,
            seen=self.batch,
            save_to=place.checkpoint,
            watch=place.watch,
            stop=place.stop,
        )
        test = distance(model, target, seed=2)
        checkpoint.save_weights(place.weights, model, {"family": "trained transformer"})
        budget = self.budget()
        each = budget.C / budget.D
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": budget.N_embedding,
                "D": budget.D,
                "D_unique": budget.D,
                "C": budget.C,
                "C_6ND": budget.C_6ND * target.n,
                "loss": trained.loss.value,
                "loss_se": trained.loss.se,
                "test_loss": test.value,
                "test_loss_se": test.se,
                "seconds": trained.seconds,
                "dtype": trained.precision,
                "blocks": self.depth,
            },
            curve={
                "step": [float(s) for s in trained.curve.step],
                "tokens": [float(t) for t in trained.curve.tokens],
                "flops": [t * each for t in trained.curve.tokens],
                "loss": trained.curve.loss,
            },
        )


@functools.cache
def _cost(
    target: Spec, width: int, depth: int, heads: int, d: int, n: int
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per sequence."""
    run = LearnerRun(target(), width, depth, heads, 1, 1, 1e-3, 0, 0)

    def loss(model: nn.Module) -> Tensor:
        x = torch.zeros(1, d, n)
        return squared_error(model, x, x)

    return count_cost(functools.partial(run.drawn, None), loss, 12 * depth * width**2)


def built(
    target: SequenceFunction,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    most_blocks: int = 2000,
) -> list[Spec]:
    """Requests for both constructions on grids of 2, 4, 8, ... cells; sizes are their own.

    Args:
        target: The function.
        ladder: Not used: a construction's size follows from its grid.
        tokens: Not used.
        seeds: Not used.
        most_blocks: Where the thin construction stops; the compact one goes as far.

    References: `yun2020` Theorems 2 and 3; `kajitsuka2024`.
    """
    require(most_blocks >= 1, "built.most_blocks", "be at least 1", most_blocks)
    specs = []
    for rung in range(8):
        cells = 2 ** (rung + 1)
        size = construct.cost(target.d, target.n, delta=1 / cells, positions=target.positions)
        enough = target.positions or cells**target.d >= target.n
        if enough and size.fits and size.blocks <= most_blocks:
            specs += [
                Spec(BuiltRun, target=target.spec, method=method, cells=cells, rung=rung)
                for method in BUILDERS
            ]
    return specs


def learner(
    target: SequenceFunction,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 128,
    lr: float = 0.01,
) -> list[Spec]:
    """Requests for a trained transformer of each size, each number of sequences and each seed.

    Args:
        target: The function.
        ladder: Wanted sizes N.
        tokens: Training sequences D.
        seeds: Repetitions.
        batch: Sequences in a batch.
        lr: Peak rate at `BASE_WIDTH` and depth 1.

    References: `vaswani2017`; `yang2022` for the rate.
    """
    require(batch >= 1, "learner.batch", "be at least 1", batch)
    return [
        Spec(
            LearnerRun,
            target=target.spec,
            width=width,
            depth=depth,
            heads=heads,
            batch=batch,
            steps=max(1, round(D / batch)),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, (width, depth, heads) in enumerate(dict.fromkeys(grow(N) for N in ladder))
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
