"""Models that turn one sequence into another: with cross attention, and without.

Letters: b pairs, k symbols of a source, n of an answer.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import Transformer
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.transformer import BASE_WIDTH, HEAD
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Transduction
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

KINDS = ("encoder-decoder", "decoder")

MEASURED = 512
"""Pairs of a measurement."""


@final
@dataclass(frozen=True)
class TransductionRun(TrainingRequest):
    """One model that reads a source and writes its answer.

    An "encoder-decoder" attends to the source across; a "decoder" reads source and answer as one
    sequence. Both are trained on the answer's symbols alone. "exact" is the share of answers that
    greedy decoding gets right altogether: it does where, and only where, each symbol is the
    likeliest after the true ones before it.

    Args:
        target: The job.
        kind: Of `KINDS`.
        width: Of the residual stream.
        depth: Blocks (of each stack, where there are two).
        batch: Pairs in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.
        seed: Of weights and data.
        rung: Which size of the ladder this is, from 0.
    """

    target: Transduction
    kind: str
    width: int
    depth: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return {
            "family": self.kind,
            "target": self.target.name,
            "shape": f"{self.depth} + {self.depth} layers, width {self.width}"
            if self.kind == "encoder-decoder"
            else f"{self.depth} layers, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def _shape(self) -> tuple[str, int, int, int, int]:
        return self.kind, self.target.size, self.width, self.depth, self.target.length

    def model(self) -> Transformer:
        """The untrained model."""
        return writer(*self._shape, rng=torch.Generator().manual_seed(self.seed))

    def budget(self) -> Budget:
        """Data are counted in symbols of the answers, padding included."""
        N, N_embedding, per_pair = _cost(*self._shape)
        pairs = self.steps * self.batch
        return Budget(N, N_embedding, pairs * (self.target.length + 1), per_pair * pairs)

    def work(self) -> float:
        """A fixed price per step and layer, the pairs, and the arithmetic."""
        stacks = 2 if self.kind == "encoder-decoder" else 1
        fixed = 0.003 + 0.0015 * self.depth * stacks + 5e-5 * self.batch
        return self.steps * fixed + self.budget().C / 5e10

    def training(self) -> Training:
        """By the likelihood of the answers; measured on pairs that no training sees."""
        torch.set_default_dtype(torch.float32)
        model, target = self.model(), self.target
        optimiser = adamw(
            model, lr=self.lr / math.sqrt(self.depth), width=self.width, base_width=BASE_WIDTH
        )
        return Training(
            model=model,
            optimiser=optimiser,
            objective=functools.partial(answer_loss, target.end),
            batch=lambda step: target.batch(step, size=self.batch, seed=self.seed),
            measure=lambda model: score(model, target, -1)[0],
            steps=self.steps,
            seen=self.batch * (target.length + 1),
        )

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure on pairs of a third kind, keep the weights."""
        target = self.target
        test, exact = score(model, target, -2)
        weights = {"family": self.kind, "target": target.name}
        checkpoint.save_weights(place.weights, model, weights)
        return outcome(
            self.columns,
            self.budget(),
            trained,
            loss=trained.loss,
            test=test,
            D_unique=None,
            measures={"exact": exact},
        )


def answer_loss(
    end: int, model: nn.Module, source: Int[Tensor, "b k"], answer: Int[Tensor, "b n"]
) -> Float[Tensor, ""]:
    """Nats per symbol of the answers: what a training minimises."""
    losses, counts, _ = answered(model, source, answer, end)
    return losses.sum() / counts.sum()


def answered(
    model: nn.Module, source: Int[Tensor, "b k"], answer: Int[Tensor, "b n"], end: int
) -> tuple[Float[Tensor, "b m"], Bool[Tensor, "b m"], Float[Tensor, "b m v"]]:
    """Losses of the answer's symbols (0 at padding), which of them count, and the logits."""
    if model.kind == "encoder-decoder":
        logits = model(answer[:, :-1], source, source_padding=source == end)
    else:
        logits = model(torch.cat([source, answer[:, :-1]], 1))[:, source.shape[1] :]
    truth, counts = answer[:, 1:], answer[:, :-1] != end
    losses = functional.cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none")
    return losses.view(truth.shape) * counts, counts, logits


@torch.no_grad()
def score(model: nn.Module, target: Transduction, step: int) -> tuple[Estimate, Estimate]:
    """Nats per symbol of fresh answers, and the share of answers right altogether."""
    source, answer = target.batch(step, size=MEASURED, seed=0)
    losses, counts, logits = answered(model, source, answer, target.end)
    sums, lengths = losses.sum(1).double(), counts.sum(1).double()
    value = float(sums.sum() / lengths.sum())
    # A ratio of means: its error is that of the sums about what their lengths promise.
    se = float((sums - value * lengths).std() / lengths.mean() / math.sqrt(len(sums)))
    right = ((logits.argmax(-1) == answer[:, 1:]) | ~counts).all(1).double()
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
    """The model of a kind; positions are learnt, for what is asked is about places."""
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
    """Requests for models of a kind, of each size, number of symbols and seed.

    Args:
        target: The job.
        ladder: Wanted sizes N, without embeddings.
        tokens: Symbols of answers seen in training.
        seeds: Repetitions.
        kind: Of `KINDS`.
        batch: Pairs in a batch.
        lr: Peak rate at `BASE_WIDTH` and depth 1.

    References: `vaswani2017` section 3.2.3 for the attention across.
    """
    require(kind in KINDS, "transduction.kind", f"be one of {', '.join(KINDS)}", kind)
    return [
        Spec(
            TransductionRun,
            target=target.spec,
            kind=kind,
            width=width,
            depth=depth,
            batch=batch,
            steps=max(1, round(D / (batch * (target.length + 1)))),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, (width, depth) in enumerate(dict.fromkeys(grow(kind, N) for N in ladder))
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]


def grow(kind: str, N: float) -> tuple[int, int]:
    r"""Width and depth (two) of a model of `kind` with about N parameters, embeddings apart.

    A block has about $12 w^2$, one that attends across too $16 w^2$.
    """
    require(N >= 200, f"{kind} size", "be at least 200 parameters", N)
    block = 28 if kind == "encoder-decoder" else 12
    widths = [*range(4, HEAD, 2), *range(HEAD, 129 * HEAD, HEAD)]
    return min(widths, key=lambda w: abs(math.log(2 * block * w**2 / N))), 2
