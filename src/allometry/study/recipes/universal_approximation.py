"""Constructed and trained transformers on one sequence-to-sequence function."""

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
from allometry.study.recipes.base import CountedRun, grid, identity
from allometry.study.recipes.run_outcome import journal_columns, outcome
from allometry.study.recipes.transformer_runs import decoder_shapes
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import SequenceFunction
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost
from allometry.train.device import device_of
from allometry.train.loop import Progress
from allometry.train.objectives import squared_error
from allometry.train.optimiser import adamw
from allometry.train.training import Training

BASE_WIDTH = 16
"""The width at which the peak learning rate equals the requested one."""

BUILDERS = {"thin": construct.universal, "compact": construct.compact}


def distance(model: Callable[[Tensor], Tensor], target: SequenceFunction, seed: int) -> Estimate:
    """The distance $d_2$ between a model and the function, on held-out points."""
    device = device_of(model) if isinstance(model, nn.Module) else torch.device("cpu")

    def values(x: Tensor) -> Tensor:
        return model(x.float().to(device)).cpu().double()

    return d_p(values, target.f, shape=(target.d, target.n), seed=seed)


@final
@dataclass(frozen=True)
class BuiltRun(Request):
    """One construction. Its data are the cells at which the function is evaluated.

    Args:
        target: The function.
        method: "thin" (the proof's blocks) or "compact" (two wide ones).
        cells: Along each entry, 1/delta.
        rung: Index of the grid, from 0.
    """

    target: SequenceFunction
    method: str
    cells: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape and rung; a construction has no seed."""
        shape = f"cells of 1/{self.cells}"
        return identity(f"{self.method} construction", self.target.name, shape, self.rung)

    @property
    def _cost(self) -> construct.UniversalCost:
        t = self.target
        return construct.cost(t.d, t.n, delta=1 / self.cells, positions=t.positions)

    def budget(self) -> Budget:
        """Parameters (of the compact form those not 0); without training, C is 0."""
        t = self.target
        compact = count(t.d, t.n, self.cells, t.positions)
        N = compact if self.method == "compact" else self._cost.parameters
        return Budget(N, 0, self._cost.cells, 0.0)

    def work(self) -> float:
        """Blocks are built and evaluated on some thousand points."""
        return 1.0 + 2e-3 * self._cost.blocks

    def __call__(self, context: RunContext) -> Outcome:
        """Build, evaluate, save the weights."""
        started, t = time.monotonic(), self.target
        built = BUILDERS[self.method](t.f, t.d, t.n, 1 / self.cells, positions=t.positions)
        loss, test = (d_p(built, t.f, shape=(t.d, t.n), points=512, seed=seed) for seed in (1, 2))
        built.save(context.weights)
        context.watch(Progress(1, 1, loss.value))
        nonzero = sum(int((w != 0).sum()) for w in built.model.parameters())
        budget = dataclasses.replace(self.budget(), N=nonzero)
        columns = journal_columns(
            budget,
            loss,
            test,
            D_unique=budget.D,
            seconds=time.monotonic() - started,
            counted=False,
            blocks=built.model.depth,
        )
        return Outcome(columns=self.columns | columns)


@final
@dataclass(frozen=True, kw_only=True)
class LearnerRun(CountedRun):
    """One transformer trained on random inputs of the function and its values.

    Further arguments: see `CountedRun`.

    Args:
        target: The function.
        width: Of the residual stream.
        depth: Blocks.
        heads: Attention heads of a block.
        batch: Sequences in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1; divided by the square root of
            depth.
    """

    target: SequenceFunction
    width: int
    depth: int
    heads: int

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return "trained transformer"

    @property
    def shape_name(self) -> str:
        """Layers and width."""
        return f"{self.depth} layers, width {self.width}"

    def model(self, rng: torch.Generator | None) -> Transformer:
        """An untrained model, reading and writing columns as the constructions do."""
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

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per sequence."""
        t = self.target
        return _cost(t.spec, self.width, self.depth, self.heads, t.d, t.n)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.003 + 0.002 * self.depth) + self.budget().C / 2e10

    def __call__(self, context: RunContext) -> Outcome:
        """Train, evaluate on new points, save the weights."""
        model, target = self.model(torch.Generator().manual_seed(self.seed)), self.target
        lr = self.lr / math.sqrt(self.depth)
        training = Training(
            model=model,
            optimiser=adamw(model, lr=lr, width=self.width, base_width=BASE_WIDTH),
            objective=squared_error,
            batch=lambda step: target.batch(step, size=self.batch, seed=self.seed),
            measure=lambda model: distance(model, target, seed=1),
            steps=self.steps,
            seen=self.batch,
        )
        trained = context.train(training)
        test = distance(model, target, seed=2)
        checkpoint.save_weights(context.weights, model, {"family": self.family_name})
        budget = self.budget()
        more = {"C_6ND": budget.C_6ND * target.n, "blocks": self.depth}
        return outcome(self, trained, test, D_unique=budget.D, **more)


@functools.cache
def _cost(
    target: Spec, width: int, depth: int, heads: int, d: int, n: int
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per sequence."""
    sizes = {"width": width, "depth": depth, "heads": heads}
    run = LearnerRun(target=target(), **sizes, batch=1, steps=1, lr=1e-3, seed=0, rung=0)

    def loss(model: nn.Module) -> Tensor:
        x = torch.zeros(1, d, n)
        return squared_error(model, x, x)

    return count_cost(functools.partial(run.model, None), loss, 12 * depth * width**2)


def built(
    target: SequenceFunction,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    most_blocks: int = 2000,
) -> list[Spec]:
    """Requests for both constructions on grids of 2, 4, 8, ... cells.

    Args:
        target: The function.
        ladder: Not used: a construction's size follows from its grid.
        tokens: Not used.
        seeds: Not used.
        most_blocks: Largest number of blocks of the thin construction; the compact one uses the
            same grids.

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
        ladder: Sizes N.
        tokens: Training sequences D.
        seeds: Repetitions.
        batch: Sequences in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.

    References: `vaswani2017`; `yang2022` for the rate.
    """
    require(batch >= 1, "learner.batch", "be at least 1", batch)
    shapes = decoder_shapes(ladder)
    return grid(LearnerRun, target, shapes, tokens, seeds, batch, batch=batch, lr=lr)
