"""Decoder transformers of any size, trained so that one learning rate serves them all."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.models import Transformer
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import about, generate, same_text, text_training, worth
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Sources, Text
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_next_token
from allometry.train.evaluate import evaluate
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

HEAD = 16
"""Size of a head. It stays the same as width grows, as the transfer of the rate asks."""

BASE_WIDTH = 64
"""The width at which the learning rate is the number that was asked for."""


@final
@dataclass(frozen=True)
class TransformerRun(TrainingRequest):
    """One decoder transformer on one text under one budget and seed.

    Args:
        target: The text.
        fingerprint: Of the text's content: another text under the same name is another run.
        width: Of the residual stream.
        depth: Blocks.
        heads: Attention heads of a block.
        context: Tokens the model sees.
        batch: Sequences in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1; it falls as the root of the depth.
        seed: Of weights and data order.
        rung: Which size of the ladder this is, from 0.
        weight_decay: Decoupled, on hidden matrices.
    """

    target: Text | Sources
    fingerprint: str
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
        """Family, target, shape, rung and seed."""
        plural = "s" if self.depth > 1 else ""
        return {
            "family": "transformer",
            "target": self.target.name,
            "shape": f"{self.depth} layer{plural}, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    def model(self) -> Transformer:
        """The untrained model."""
        rng = torch.Generator().manual_seed(self.seed)
        return decoder(self.target.vocabulary.size, *self._shape, rng=rng)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.width, self.depth, self.heads, self.context

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, N_embedding, per_token = cost(self.target.vocabulary.size, *self._shape)
        D = self.steps * self.batch * self.context
        return Budget(N, N_embedding, D, per_token * D)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic at a modest rate."""
        return self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10

    @property
    def splits(self) -> bool:
        """Its loss is a mean over windows."""
        return True

    def training(self) -> Training:
        """By next tokens, with the rate scaled to width and depth."""
        same_text(self.target, self.fingerprint)
        torch.set_default_dtype(torch.float32)
        model = self.model()
        optimiser = adamw(
            model,
            lr=self.lr / math.sqrt(self.depth),
            width=self.width,
            base_width=BASE_WIDTH,
            weight_decay=self.weight_decay,
        )
        return text_training(self, model, optimiser)

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure on validation and test, keep the weights, write a few lines."""
        test = evaluate(model, self.target, "test", context=self.context)
        names = ("width", "depth", "heads", "context")
        sizes = dict(zip(names, self._shape, strict=True))
        shape = Spec(decoder, vocabulary=self.target.vocabulary.size, rng=None, **sizes)
        weights = about("transformer", shape, self.target)
        checkpoint.save_weights(place.weights, model, weights)
        return outcome(
            self.columns,
            self.budget(),
            trained,
            loss=trained.loss,
            test=test,
            D_unique=self.target.D_unique,
            sample=generate(model, self.target, self.seed),
            measures=worth(model, self.target, self.seed),
        )


def decoder(
    vocabulary: int, width: int, depth: int, heads: int, context: int, rng: torch.Generator | None
) -> Transformer:
    """The model every rung of the ladder has, with the readout scaled so that the rate carries."""
    return Transformer(
        vocabulary=vocabulary,
        width=width,
        depth=depth,
        heads=heads,
        context=context,
        positions="rotary",
        readout_scale=BASE_WIDTH / width,
        rng=rng,
    )


@functools.cache
def cost(
    vocabulary: int, width: int, depth: int, heads: int, context: int
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""
    make = functools.partial(decoder, vocabulary, width, depth, heads, context, None)
    return count_next_token(
        make, vocabulary=vocabulary, context=context, about=12 * depth * width**2
    )


def transformer(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.008,
) -> list[Spec]:
    """Requests for a transformer of each size, each number of tokens and each seed.

    Args:
        target: The text.
        ladder: Wanted sizes N, without embeddings.
        tokens: Training tokens D; every size is trained on each.
        seeds: Repetitions.
        context: Tokens the model sees.
        batch: Sequences in a batch.
        lr: Peak rate at `BASE_WIDTH` and depth 1.

    References: `vaswani2017`; `yang2022` for the rate; `kaplan2020` for the shape.
    """
    require(context >= 2, "transformer.context", "be at least 2", context)
    shortest = min(len(target.train), len(target.validation), len(target.test))
    require(
        shortest > context,
        f"every split of {target.name}",
        f"be longer than the context of {context} tokens",
        shortest,
        "Give a longer text or a smaller context.",
    )
    # Two sizes may lead to one shape, which is one rung: twice the same run tells nothing more.
    shapes = dict.fromkeys(grow(N) for N in ladder)
    return [
        Spec(
            TransformerRun,
            target=target.spec,
            fingerprint=target.fingerprint,
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
        for rung, (width, depth, heads) in enumerate(shapes)
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]


def grow(N: float) -> tuple[int, int, int]:
    r"""Width, depth and heads of a transformer with about `N` parameters, embeddings apart.

    A block has about $12 w^2 + 13 w$ parameters (`kaplan2020` section 2.1, with biases and norms).
    There are always two blocks at least, for one can't copy what it has seen before (that takes a
    head that looks back and another that looks where the first one pointed), and a ladder that
    learns to copy halfway up follows no one law. From width 64 on, depth is width / 32.
    """
    require(N >= 200, "transformer size", "be at least 200 parameters", N)
    # Heads keep their size, so widths from two heads up come in multiples of it.
    widths = [*range(2, HEAD, 2), *range(HEAD, 2 * HEAD, 4), *range(2 * HEAD, 257 * HEAD, HEAD)]
    shapes = [(width, max(2, round(width / 32))) for width in widths]

    def misfit(shape: tuple[int, int]) -> float:
        width, depth = shape
        return abs(math.log(depth * (12 * width**2 + 13 * width) / N))

    width, depth = min(shapes, key=misfit)
    return width, depth, max(1, width // HEAD)
