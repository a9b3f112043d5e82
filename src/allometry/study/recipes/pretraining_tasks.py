"""What a task is worth before another: one body trained on each, judged by one readout.

Letters: b windows, d width.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.measure import block_mean, linear_probe
from allometry.models import Transformer
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.transformer import BASE_WIDTH, grow
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Sources
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_next_token
from allometry.train.evaluate import evaluate
from allometry.train.loop import descend
from allometry.train.objectives import next_token
from allometry.train.optimiser import adamw
from allometry.train.pretraining import (
    cloze,
    cloze_losses,
    hide,
    next_passage,
    next_passage_losses,
    pair,
)

TASKS = ("next symbol", "cloze", "next passage")

MARKS = 3
"""Symbols that no text has: mask, classification, separator."""

PROBED = 2400
"""Windows of the training part that a readout is fitted on, at most."""


@final
@dataclass(frozen=True)
class UpstreamRun(Request):
    r"""One transformer trained on one task, its body frozen, then asked where a window is from.

    The loss is that of the best linear readout of the mean state over a held-out window of
    `context` symbols, in nats: $\log s$ for s equal sources is chance. No task has seen a source's
    name. "untrained" is the same with the body as it was before training, and `upstream_loss` what
    the task itself reached.

    Args:
        target: Several sources, without codes.
        fingerprint: Of their content.
        task: Of `TASKS`.
        width: Of the residual stream.
        depth: Blocks.
        heads: Attention heads of a block.
        context: Symbols of a window, even.
        batch: Windows in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.
        seed: Of weights, data order and masks.
        rung: Which size of the ladder this is, from 0.
        weight_decay: Decoupled, on hidden matrices.
    """

    target: Sources
    fingerprint: str
    task: str
    width: int
    depth: int
    heads: int
    context: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int
    weight_decay: float = 0.1

    @property
    def columns(self) -> dict[str, Any]:
        """The task stands for the family."""
        plural = "s" if self.depth > 1 else ""
        return {
            "family": self.task,
            "target": self.target.name,
            "shape": f"{self.depth} layer{plural}, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def _shape(self) -> tuple[str, int, int, int, int, int]:
        V = self.target.vocabulary.size
        return self.task, V, self.width, self.depth, self.heads, self.context

    def model(self) -> Transformer:
        """The untrained model."""
        return body(*self._shape, rng=torch.Generator().manual_seed(self.seed))

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, N_embedding, per_token = _cost(*self._shape)
        D = self.steps * self.batch * self.context
        return Budget(N, N_embedding, D, per_token * D)

    def work(self) -> float:
        """A fixed price per step and layer, the arithmetic, and the readouts."""
        return 10.0 + self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10

    def __call__(self, place: RunContext) -> Outcome:
        """Probe, train, probe again."""
        if self.target.fingerprint != self.fingerprint:
            raise InputError(f"{self.target.name} must not change while its study goes on.")
        torch.set_default_dtype(torch.float32)
        before = self.probe(self.model(), "validation")[0]
        model = self.model()
        optimiser = adamw(
            model,
            lr=self.lr / math.sqrt(self.depth),
            width=self.width,
            base_width=BASE_WIDTH,
            weight_decay=self.weight_decay,
        )
        trained = descend(
            model,
            optimiser,
            lambda step: self.objective(model, step),
            lambda: self.probe(model, "validation")[0],
            steps=self.steps,
            seen=self.batch * self.context,
            curve_points=4,
            save_to=place.checkpoint,
            watch=place.watch,
            stop=place.stop,
        )
        test, right = self.probe(model, "test")
        reached = self.reached(model)
        about = {"family": self.task, "target": self.target.name}
        checkpoint.save_weights(place.weights, model, about)
        return outcome(
            self.columns,
            self.budget(),
            trained,
            loss=trained.loss,
            test=test,
            D_unique=self.target.D_unique,
            measures={"right": right, "untrained": before, "upstream_loss": reached},
        )

    def objective(self, model: Transformer, step: int) -> Float[Tensor, ""]:
        """The task's loss on the batch of a step."""
        drawn = self.target.batch(step, size=self.batch, context=self.context, seed=self.seed)
        if self.task == "next symbol":
            return next_token(model, drawn)
        rng = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + step)
        V = self.target.vocabulary.size
        if self.task == "cloze":
            return cloze(model, hide(drawn[:, 1:], V, rng))
        return next_passage(model, pair(drawn[:, 1:], V + 1, rng))

    @torch.no_grad()
    def reached(self, model: Transformer) -> Estimate:
        """The task's own loss on the validation split."""
        if self.task == "next symbol":
            return evaluate(model, self.target, "validation", context=self.context)
        windows, _ = self.target.labelled("validation", self.context)
        rng = torch.Generator().manual_seed(0)
        V = self.target.vocabulary.size
        if self.task == "cloze":
            return block_mean(cloze_losses(model, hide(windows, V, rng)).double().numpy())
        return block_mean(next_passage_losses(model, pair(windows, V + 1, rng)).double().numpy())

    def probe(self, model: Transformer, split: str) -> tuple[Estimate, Estimate]:
        """Nats and share right of the best linear readout of the source, on a split."""
        windows, sources = self.target.labelled("train", self.context)
        some = torch.linspace(0, len(windows) - 1, min(PROBED, len(windows))).long()
        held, truth = self.target.labelled(split, self.context)
        return linear_probe(
            pooled(model, windows[some]), sources[some], pooled(model, held), truth
        )


@torch.no_grad()
def pooled(model: Transformer, windows: Int[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """The mean over a window of what the last block leaves, normed as the readout has it."""
    assert model.final_norm is not None
    parts = [model.final_norm(model.states(part)[-1]).mean(1) for part in windows.split(128)]
    return torch.cat(parts)


def body(
    task: str,
    vocabulary: int,
    width: int,
    depth: int,
    heads: int,
    context: int,
    rng: torch.Generator | None = None,
) -> Transformer:
    """The model of a task: it sees only what is before for the next symbol, else everything."""
    return Transformer(
        vocabulary=vocabulary + MARKS,
        width=width,
        depth=depth,
        heads=heads,
        context=context + 2,
        kind="decoder" if task == "next symbol" else "encoder",
        positions="rotary",
        readout_scale=BASE_WIDTH / width,
        rng=rng,
    )


@functools.cache
def _cost(
    task: str, vocabulary: int, width: int, depth: int, heads: int, context: int
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per symbol."""
    make = functools.partial(body, task, vocabulary, width, depth, heads, context)
    return count_next_token(
        make, vocabulary=vocabulary, context=context, about=12 * depth * width**2
    )


def upstream(
    target: Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    task: str = "next symbol",
    context: int = 64,
    batch: int = 16,
    lr: float = 0.008,
) -> list[Spec]:
    """Requests for transformers trained on a task, then asked by a linear readout.

    Args:
        target: Several sources, without codes.
        ladder: Wanted sizes N, without embeddings.
        tokens: Symbols seen in training.
        seeds: Repetitions.
        task: Of `TASKS`.
        context: Symbols of a window.
        batch: Windows in a batch.
        lr: Peak rate at `BASE_WIDTH` and depth 1.

    References: `devlin2019` Table 5 for tasks compared by what follows them.
    """
    require(task in TASKS, "upstream.task", f"be one of {', '.join(TASKS)}", task)
    require(context >= 2 and context % 2 == 0, "upstream.context", "be even", context)
    require(not target.codes, "Sources.codes", "be off, for they tell the answer", True)
    return [
        Spec(
            UpstreamRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            task=task,
            width=width,
            depth=depth,
            heads=heads,
            context=context,
            batch=batch,
            steps=max(1, round(D / (batch * context))),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, (width, depth, heads) in enumerate(dict.fromkeys(map(grow, ladder)))
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
