"""Sequence models other than transformers: finite memory, recurrent, convolutional."""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.models import CausalConvolution, FiniteMemory, Recurrent
from allometry.study.recipes.text_run import TextRun, text_recipe
from allometry.targets import Sources, Text
from allometry.train.budget import count_next_token, count_parameters

MEMORY = 8
"""Tokens that a finite-memory network sees."""

FAMILIES = ("mlp", "rnn", "lstm", "gru", "convolution")


@final
@dataclass(frozen=True, kw_only=True)
class SequenceRun(TextRun):
    """One model of one of `FAMILIES` on one text, for one budget and seed.

    Recurrent networks are trained and evaluated on windows of `context` tokens with an empty
    initial state, so that all families have the same task.

    Further arguments: see `TokenRun`.

    Args:
        family: Of `FAMILIES`.
    """

    target: Text | Sources
    family: str

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return self.family

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
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
        classes: dict[str, Callable[..., nn.Module]] = {
            "mlp": FiniteMemory,
            "convolution": CausalConvolution,
        }
        return classes.get(self.family, Recurrent)(**self.shape.arguments | {"rng": rng})

    @property
    def peak_lr(self) -> float:
        """The requested rate, whatever the depth."""
        return self.lr

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token."""
        return _cost(self.shape, self.target.vocabulary.size, self.width, self.context)

    def work(self) -> float:
        """A fixed overhead per step and layer (and token, for recurrent networks), and FLOPs."""
        loop = 1e-4 * self.context if self.family in ("rnn", "lstm", "gru") else 0.0
        return self.steps * (0.002 + (0.001 + loop) * self.depth) + self.budget().C / 5e10


@functools.cache
def _cost(shape: Spec, V: int, width: int, context: int) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""
    with torch.device("meta"):
        model: nn.Module = shape()
    N, N_embedding = count_parameters(model)
    if isinstance(model, Recurrent):
        # torch's counter does not see inside the fused recurrent kernels. Each weight of a layer
        # multiplies and adds once per token, and twice as much in the backward pass.
        return N, N_embedding, 6.0 * (N + V * width)
    return count_next_token(shape, vocabulary=V, context=context)


def grow(family: str, N: float) -> tuple[int, int]:
    r"""Width and depth of a model of `family` with about `N` parameters, without embeddings.

    A recurrent layer has $2 g w (w + 1)$ parameters with g = 1, 4, 3 gates for RNN, LSTM, GRU. A
    convolution has $5 w^2 + 3 w$, six of them, so that the receptive field covers 64 tokens. A
    finite memory of 8 tokens with embeddings of size $w/4$ has $2 w^2 + w$, then $w^2 + w$.
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


def _recipe(family: str, lr: float, model: str, references: str) -> Callable[..., list[Spec]]:
    def shapes(ladder: Iterable[float]) -> list[dict[str, int]]:
        return [dict(zip(("width", "depth"), grow(family, N), strict=True)) for N in ladder]

    summary = f"{model} of each size, number of tokens and seed."
    return text_recipe(SequenceRun, shapes, family, lr, summary, references, {"family": family})


mlp = _recipe("mlp", 0.03, "a finite-memory network", "`bengio2003`")
rnn = _recipe("rnn", 0.03, "an Elman network", "`elman1990`")
lstm = _recipe("lstm", 0.04, "an LSTM", "`hochreiter1997`")
gru = _recipe("gru", 0.03, "a GRU", "`cho2014`")
convolution = _recipe("convolution", 0.012, "a dilated causal convolution", "`oord2016`")
