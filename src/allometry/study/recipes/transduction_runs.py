"""Sequence-to-sequence models with cross attention, and decoders that read both sequences.

Letters: b pairs, k symbols of a source, n of an answer.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import Transformer
from allometry.study.job_table import TRANSDUCERS
from allometry.study.recipes.base import CountedRun, grid
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import BASE_WIDTH
from allometry.study.recipes.transformer_runs import HEAD
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Transduction
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost
from allometry.train.device import device_of
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

KINDS = TRANSDUCERS

MEASURED = 512
"""Pairs in an evaluation."""


@final
@dataclass(frozen=True, kw_only=True)
class TransductionRun(CountedRun, TrainingRequest):
    """One model that reads a source and writes its answer.

    An "encoder-decoder" has cross attention to the source; a "decoder" reads source and answer as
    one sequence. Both are trained on the answer's symbols alone. `exact` is the share of answers
    that greedy decoding gets entirely right. That is the case if and only if each symbol is the
    most probable one given the true symbols before it.

    Further arguments: see `CountedRun`.

    Args:
        target: The task.
        kind: Of `KINDS`.
        width: Of the residual stream.
        depth: Blocks (of each stack, for an encoder-decoder).
        batch: Pairs in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.
    """

    target: Transduction
    kind: str
    width: int
    depth: int

    @property
    def family_name(self) -> str:
        """The kind of model."""
        return self.kind

    @property
    def shape_name(self) -> str:
        """Layers of each stack, and width."""
        both = f"{self.depth} + {self.depth}" if self.kind == "encoder-decoder" else self.depth
        return f"{both} layers, width {self.width}"

    @property
    def _shape(self) -> tuple[str, int, int, int, int]:
        return self.kind, self.target.size, self.width, self.depth, self.target.length

    def model(self) -> Transformer:
        """The untrained model."""
        return writer(*self._shape, rng=torch.Generator().manual_seed(self.seed))

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per pair."""
        return _cost(*self._shape)

    def budget(self) -> Budget:
        """Data are symbols of the answers, padding included."""
        N, N_embedding, per_pair = self.cost()
        pairs = self.steps * self.batch
        return Budget(N, N_embedding, pairs * (self.target.length + 1), per_pair * pairs)

    def work(self) -> float:
        """A fixed overhead per step and layer, the pairs, and the FLOPs."""
        stacks = 2 if self.kind == "encoder-decoder" else 1
        fixed = 0.003 + 0.0015 * self.depth * stacks + 5e-5 * self.batch
        return self.steps * fixed + self.budget().C / 5e10

    def training(self) -> Training:
        """By the likelihood of the answers; evaluated on held-out pairs."""
        model, target = self.model(), self.target
        lr = self.lr / math.sqrt(self.depth)
        return Training(
            model=model,
            optimiser=adamw(model, lr=lr, width=self.width, base_width=BASE_WIDTH),
            objective=functools.partial(answer_loss, target.end),
            batch=lambda step: target.batch(step, size=self.batch, seed=self.seed),
            measure=lambda model: score(model, target, -1)[0],
            steps=self.steps,
            seen=self.batch * (target.length + 1),
        )

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate on test pairs, save the weights."""
        test, exact = score(model, self.target, -2)
        metadata = {"family": self.kind, "target": self.target.name}
        checkpoint.save_weights(context.weights, model, metadata)
        return outcome(self, trained, test, D_unique=None, measures={"exact": exact})


def answer_loss(
    end: int, model: nn.Module, source: Int[Tensor, "b k"], answer: Int[Tensor, "b n"]
) -> Float[Tensor, ""]:
    """Nats per symbol of the answers: the training loss."""
    losses, counts, _ = answered(model, source, answer, end)
    return losses.sum() / counts.sum()


def answered(
    model: nn.Module, source: Int[Tensor, "b k"], answer: Int[Tensor, "b n"], end: int
) -> tuple[Float[Tensor, "b m"], Bool[Tensor, "b m"], Float[Tensor, "b m v"]]:
    """Losses of the answer's symbols (0 at padding), a mask of the symbols, and the logits."""
    if model.kind == "encoder-decoder":
        logits = model(answer[:, :-1], source, source_padding=source == end)
    else:
        logits = model(torch.cat([source, answer[:, :-1]], 1))[:, source.shape[1] :]
    truth, counts = answer[:, 1:], answer[:, :-1] != end
    losses = functional.cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none")
    return losses.view(truth.shape) * counts, counts, logits


@torch.no_grad()
def score(model: nn.Module, target: Transduction, step: int) -> tuple[Estimate, Estimate]:
    """Nats per symbol of new answers, and the share of answers that are entirely right."""
    device = device_of(model)
    source, answer = (part.to(device) for part in target.batch(step, size=MEASURED, seed=0))
    losses, counts, logits = answered(model, source, answer, target.end)
    sums, lengths = losses.sum(1).cpu().double(), counts.sum(1).cpu().double()
    value = float(sums.sum() / lengths.sum())
    # A ratio of means; its standard error by the delta method.
    se = float((sums - value * lengths).std() / lengths.mean() / math.sqrt(len(sums)))
    right = ((logits.argmax(-1) == answer[:, 1:]) | ~counts).all(1).cpu().double()
    share = float(right.mean())
    spread = math.sqrt(max(share * (1 - share), 1 / len(right)) / len(right))
    return Estimate(value, se=se, n=len(sums)), Estimate(share, se=spread, n=len(right))


def writer(
    kind: str,
    vocabulary: int,
    width: int,
    depth: int,
    length: int,
    rng: torch.Generator | None = None,
) -> Transformer:
    """The model of a kind. Positions are learned, since the tasks depend on them."""
    both = kind == "encoder-decoder"
    return Transformer(
        vocabulary=vocabulary,
        width=width,
        depth=depth,
        heads=max(1, width // HEAD),
        context=length + 1 if both else 2 * length + 1,
        kind=kind,
        readout_scale=BASE_WIDTH / width,
        rng=rng,
    )


@functools.cache
def _cost(
    kind: str, vocabulary: int, width: int, depth: int, length: int
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per pair, counted on one."""

    def loss(model: nn.Module) -> Tensor:
        source = torch.zeros(1, length, dtype=torch.int64)
        answer = torch.zeros(1, length + 2, dtype=torch.int64)
        return answered(model, source, answer, vocabulary - 1)[0].sum()

    make = functools.partial(writer, kind, vocabulary, width, depth, length)
    return count_cost(make, loss, 28 * depth * width**2)


def transduction(
    target: Transduction,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    kind: str = "encoder-decoder",
    batch: int = 32,
    lr: float = 0.01,
) -> list[Spec]:
    """Requests for a model of a kind of each size, number of symbols and seed.

    Args:
        target: The task.
        ladder: Sizes N, without embeddings.
        tokens: Symbols of answers seen in training.
        seeds: Repetitions.
        kind: Of `KINDS`.
        batch: Pairs in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.

    References: `vaswani2017` section 3.2.3 for cross attention.
    """
    require(kind in KINDS, "transduction.kind", f"be one of {', '.join(KINDS)}", kind)
    common = {"kind": kind, "batch": batch, "lr": lr}
    shapes = [dict(zip(("width", "depth"), grow(kind, N), strict=True)) for N in ladder]
    per_step = batch * (target.length + 1)
    return grid(TransductionRun, target, shapes, tokens, seeds, per_step, **common)


def grow(kind: str, N: float) -> tuple[int, int]:
    r"""Width and depth (two) of a model of `kind` with about N parameters, without embeddings.

    A block has about $12 w^2$ parameters, with cross attention $16 w^2$.
    """
    require(N >= 200, f"{kind} size", "be at least 200 parameters", N)
    block = 28 if kind == "encoder-decoder" else 12
    widths = [*range(4, HEAD, 2), *range(HEAD, 129 * HEAD, HEAD)]
    return min(widths, key=lambda w: abs(math.log(2 * block * w**2 / N))), 2
