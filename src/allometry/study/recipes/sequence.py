"""The other families of sequence models: finite memory, recurrent, convolutional."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.models import CausalConvolution, FiniteMemory, Recurrent
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import about, generate, same_text, text_training, worth
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Sources, Text
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_next_token, count_parameters
from allometry.train.evaluate import evaluate
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

BASE_WIDTH = 64
"""The width at which the learning rate is the number that was asked for."""

MEMORY = 8
"""Tokens that a finite-memory network sees."""

FAMILIES = ("mlp", "rnn", "lstm", "gru", "convolution")


@final
@dataclass(frozen=True)
class SequenceRun(TrainingRequest):
    """One model of one of `FAMILIES` on one text under one budget and seed.

    Recurrent networks are trained and measured on windows of `context` tokens, beginning each with
    an empty memory, as the other families are: one job for all.

    Args:
        target: The text.
        fingerprint: Of the text's content.
        family: Of `FAMILIES`.
        width: Of the hidden layers.
        depth: How many there are.
        context: Tokens in a window.
        batch: Sequences in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH`.
        seed: Of weights and data order.
        rung: Which size of the ladder this is, from 0.
        weight_decay: Decoupled, on hidden matrices.
    """

    target: Text | Sources
    fingerprint: str
    family: str
    width: int
    depth: int
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
            "family": self.family,
            "target": self.target.name,
            "shape": f"{self.depth} layer{plural}, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def shape(self) -> Spec:
        """The model without its numbers."""
        V = self.target.vocabulary.size
        if self.family == "mlp":
            return Spec(
                FiniteMemory,
                vocabulary=V,
                width=max(4, self.width // 4),
                hidden=self.width,
                memory=MEMORY,
                depth=self.depth,
            )
        if self.family == "convolution":
            return Spec(CausalConvolution, vocabulary=V, width=self.width, depth=self.depth)
        return Spec(Recurrent, vocabulary=V, width=self.width, depth=self.depth, cell=self.family)

    def model(self) -> nn.Module:
        """The untrained model."""
        rng = torch.Generator().manual_seed(self.seed)
        kinds: dict[str, Callable[..., nn.Module]] = {
            "mlp": FiniteMemory,
            "convolution": CausalConvolution,
        }
        return kinds.get(self.family, Recurrent)(**self.shape.arguments | {"rng": rng})

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        V = self.target.vocabulary.size
        N, N_embedding, per_token = _cost(self.shape, V, self.width, self.context)
        D = self.steps * self.batch * self.context
        return Budget(N, N_embedding, D, per_token * D)

    def work(self) -> float:
        """A fixed price per step and layer (and token, where time is a loop), and arithmetic."""
        loop = 1e-4 * self.context if self.family in ("rnn", "lstm", "gru") else 0.0
        return self.steps * (0.002 + (0.001 + loop) * self.depth) + self.budget().C / 5e10

    @property
    def splits(self) -> bool:
        """Its loss is a mean over windows."""
        return True

    def training(self) -> Training:
        """By next tokens, with the rate scaled to the width."""
        same_text(self.target, self.fingerprint)
        torch.set_default_dtype(torch.float32)
        model = self.model()
        optimiser = adamw(
            model,
            lr=self.lr,
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
        weights = about(self.family, self.shape, self.target)
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


@functools.cache
def _cost(shape: Spec, V: int, width: int, context: int) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""
    with torch.device("meta"):
        model: nn.Module = shape()
    N, N_embedding = count_parameters(model)
    if isinstance(model, Recurrent):
        # torch's counter sees nothing inside the fused recurrent kernels: each weight of a layer
        # multiplies and adds once a token, and twice as much on the way back.
        return N, N_embedding, 6.0 * (N + V * width)
    return count_next_token(shape, vocabulary=V, context=context)


def _requests(
    family: str,
    target: Text | Sources,
    ladder: Iterable[float],
    tokens: Sequence[float],
    seeds: int,
    context: int,
    batch: int,
    lr: float,
) -> list[Spec]:
    require(context >= 2, f"{family}.context", "be at least 2", context)
    return [
        Spec(
            SequenceRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            family=family,
            width=width,
            depth=depth,
            context=context,
            batch=batch,
            steps=max(1, round(D / (batch * context))),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, (width, depth) in enumerate(dict.fromkeys(grow(family, N) for N in ladder))
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]


def grow(family: str, N: float) -> tuple[int, int]:
    r"""Width and depth of a model of `family` with about `N` parameters, embeddings apart.

    A layer of a recurrent network has $2 g w (w + 1)$ with g = 1, 4, 3 gates for RNN, LSTM, GRU;
    one of a convolution $5 w^2 + 3 w$, of which there are six so that 64 tokens are in reach; a
    finite memory of 8 tokens with tables of $w/4$ has $2 w^2 + w$ and then $w^2 + w$.
    """
    require(N >= 50, f"{family} size", "be at least 50 parameters", N)
    gates = {"rnn": 1, "lstm": 4, "gru": 3}.get(family)
    depth = {"convolution": 6, "mlp": 2}.get(family, 1 if N < 5e5 else 2)

    def size(w: int) -> float:
        if gates is not None:
            return depth * 2 * gates * w * (w + 1)
        if family == "convolution":
            return depth * (5 * w**2 + 3 * w) + 2 * w
        return MEMORY * max(4, w // 4) * w + w + (depth - 1) * (w**2 + w)

    return min(range(1, 4097), key=lambda w: abs(math.log(size(w) / N))), depth


def mlp(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.03,
) -> list[Spec]:
    """Requests for a finite-memory network of each size, number of tokens and seed.

    References: `bengio2003`.
    """
    return _requests("mlp", target, ladder, tokens, seeds, context, batch, lr)


def rnn(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.03,
) -> list[Spec]:
    """Requests for an Elman network of each size, number of tokens and seed.

    References: `elman1990`.
    """
    return _requests("rnn", target, ladder, tokens, seeds, context, batch, lr)


def lstm(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.04,
) -> list[Spec]:
    """Requests for an LSTM of each size, number of tokens and seed.

    References: `hochreiter1997`.
    """
    return _requests("lstm", target, ladder, tokens, seeds, context, batch, lr)


def gru(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.03,
) -> list[Spec]:
    """Requests for a GRU of each size, number of tokens and seed.

    References: `cho2014`.
    """
    return _requests("gru", target, ladder, tokens, seeds, context, batch, lr)


def convolution(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    context: int = 64,
    batch: int = 8,
    lr: float = 0.012,
) -> list[Spec]:
    """Requests for a dilated causal convolution of each size, number of tokens and seed.

    References: `oord2016`.
    """
    return _requests("convolution", target, ladder, tokens, seeds, context, batch, lr)
