"""Pretraining tasks compared: one transformer trained on each, evaluated by one linear probe.

Letters: b windows, d width.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.measure import block_mean, linear_probe
from allometry.models import Transformer
from allometry.study.job_table import PRETRAINING_TASKS
from allometry.study.recipes.base import grid, require_unchanged
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import BASE_WIDTH, TokenRun
from allometry.study.recipes.transformer_runs import decoder_shapes
from allometry.study.request import Outcome, RunContext
from allometry.targets import Sources
from allometry.train import checkpoint
from allometry.train.budget import count_next_token
from allometry.train.device import device_of
from allometry.train.evaluate import evaluate
from allometry.train.objectives import next_token
from allometry.train.pretraining import (
    Cloze,
    Pairs,
    cloze_losses,
    hide,
    next_sentence,
    next_sentence_losses,
    pair,
)
from allometry.train.training import Training

TASKS = PRETRAINING_TASKS

MARKS = 3
"""Special symbols: mask, classification, separator."""

PROBED = 2400
"""Training windows that a probe is fitted on, at most."""


@final
@dataclass(frozen=True, kw_only=True)
class UpstreamRun(TokenRun):
    r"""One transformer pretrained on one task, frozen, then probed for the source of a window.

    The loss is that of a linear probe on the mean state over a held-out window of `context`
    symbols, in nats; chance is $\log s$ for s equal sources. No task sees the name of a source.
    `untrained` is the same before training, `upstream_loss` the loss of the task itself.

    Further arguments: see `TokenRun`.

    Args:
        task: Of `TASKS`.
        heads: Attention heads of a block.
    """

    target: Sources
    task: str
    heads: int

    @property
    def family_name(self) -> str:
        """The task: the models are the same."""
        return self.task

    @property
    def _shape(self) -> tuple[str, int, int, int, int, int]:
        V = self.target.vocabulary.size
        return self.task, V, self.width, self.depth, self.heads, self.context

    def model(self) -> Transformer:
        """The untrained model."""
        return task_model(*self._shape, rng=torch.Generator().manual_seed(self.seed))

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per symbol."""
        return _cost(*self._shape)

    def work(self) -> float:
        """A fixed overhead per step and layer, the FLOPs, and the probes."""
        return 10.0 + self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10

    def __call__(self, context: RunContext) -> Outcome:
        """Probe, train, probe again."""
        require_unchanged(self.target, self.fingerprint)
        before = self.probe(self.model(), "validation")[0]
        model = self.model()
        training = Training(
            model=model,
            optimiser=self.optimiser(model),
            objective=self.objective,
            batch=self.step_batch,
            measure=lambda model: self.probe(model, "validation")[0],
            steps=self.steps,
            seen=self.batch * self.context,
            curve_points=4,
        )
        trained = context.train(training)
        test, accuracy = self.probe(model, "test")
        task_loss = self.task_loss(model)
        metadata = {"family": self.task, "target": self.target.name}
        checkpoint.save_weights(context.weights, model, metadata)
        measures = {"right": accuracy, "untrained": before, "upstream_loss": task_loss}
        return outcome(self, trained, test, D_unique=self.target.D_unique, measures=measures)

    def step_batch(self, step: int) -> tuple[Tensor, ...]:
        """The tensors of a step: the inputs of `objective`."""
        windows = self.target.batch(step, size=self.batch, context=self.context, seed=self.seed)
        if self.task == "next symbol":
            return (windows,)
        rng = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + step)
        V = self.target.vocabulary.size
        if self.task == "cloze":
            seen, truth, chosen = hide(windows[:, 1:], V, rng)
            # Positions instead of a mask: a GPU would have to count a mask before it goes on.
            positions = chosen.flatten().nonzero()[:, 0]
            return seen, positions, truth.flatten()[positions]
        return tuple(pair(windows[:, 1:], V + 1, rng))

    def objective(self, model: nn.Module, *given: Tensor) -> Float[Tensor, ""]:
        """The task's loss on the tensors of a step."""
        if self.task == "next symbol":
            return next_token(model, *given)
        if self.task == "cloze":
            seen, positions, truth = given
            logits = model(seen).flatten(0, 1)[positions]
            return functional.cross_entropy(logits, truth, reduction="none").mean()
        return next_sentence(model, Pairs(*given))

    @torch.no_grad()
    def task_loss(self, model: Transformer) -> Estimate:
        """The task's own loss on the validation split."""
        if self.task == "next symbol":
            return evaluate(model, self.target, "validation", context=self.context)
        windows, _ = self.target.labelled("validation", self.context)
        rng, device = torch.Generator().manual_seed(0), device_of(model)
        V = self.target.vocabulary.size
        if self.task == "cloze":
            hidden = Cloze(*(part.to(device) for part in hide(windows, V, rng)))
            losses = cloze_losses(model, hidden)
        else:
            pairs = Pairs(*(part.to(device) for part in pair(windows, V + 1, rng)))
            losses = next_sentence_losses(model, pairs)
        return block_mean(losses.cpu().double().numpy())

    def probe(self, model: nn.Module, split: str) -> tuple[Estimate, Estimate]:
        """Nats and accuracy of a linear probe for the source, on a split."""
        windows, sources = self.target.labelled("train", self.context)
        some = torch.linspace(0, len(windows) - 1, min(PROBED, len(windows))).long()
        held_out, truth = self.target.labelled(split, self.context)
        return linear_probe(
            pooled(model, windows[some]), sources[some], pooled(model, held_out), truth
        )


@torch.no_grad()
def pooled(model: nn.Module, windows: Int[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """The mean over a window of the last block's states, after the final norm; on CPU."""
    assert isinstance(model, Transformer)
    assert model.final_norm is not None
    device = device_of(model)
    parts = [
        model.final_norm(model.states(part.to(device))[-1]).mean(1) for part in windows.split(128)
    ]
    return torch.cat(parts).cpu()


def task_model(
    task: str,
    vocabulary: int,
    width: int,
    depth: int,
    heads: int,
    context: int,
    rng: torch.Generator | None = None,
) -> Transformer:
    """The model of a task: a decoder for the next symbol, otherwise an encoder."""
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
    make = functools.partial(task_model, task, vocabulary, width, depth, heads, context)
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
    """Requests for transformers pretrained on a task, then evaluated by a linear probe.

    Args:
        target: Several sources, without codes.
        ladder: Sizes N, without embeddings.
        tokens: Symbols seen in training.
        seeds: Repetitions.
        task: Of `TASKS`.
        context: Symbols in a window.
        batch: Windows in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.

    References: `devlin2019` Table 5 for tasks compared by downstream performance.
    """
    require(task in TASKS, "upstream.task", f"be one of {', '.join(TASKS)}", task)
    require(context >= 2 and context % 2 == 0, "upstream.context", "be even", context)
    require(not target.codes, "Sources.codes", "be off: they contain the answer", True)
    common = {"task": task, "context": context, "batch": batch, "lr": lr}
    shapes = decoder_shapes(ladder)
    return grid(UpstreamRun, target, shapes, tokens, seeds, batch * context, **common)
