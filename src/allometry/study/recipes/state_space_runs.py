"""Language models with a state of fixed size: Mamba, gated linear attention, RetNet."""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.models import LinearAttention, Mamba
from allometry.study.recipes.text_run import BASE_WIDTH, TextRun, text_recipe
from allometry.targets import Sources, Text
from allometry.train.budget import count_next_token

FAMILIES = ("mamba", "gla", "retnet")

STATES = 16
"""States of each channel of Mamba."""


@final
@dataclass(frozen=True, kw_only=True)
class StateSpaceRun(TextRun):
    """One model of one of `FAMILIES` on one text, for one budget and seed.

    It is trained and evaluated on windows of `context` tokens with an empty initial state, as all
    families are. Further arguments: see `TokenRun`.

    Args:
        family: Of `FAMILIES`.
        heads: Of linear attention; 1 for Mamba.
    """

    target: Text | Sources
    family: str
    heads: int

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return self.family

    @property
    def shape(self) -> Spec:
        """The model without its weights; the readout is scaled so that the rate transfers."""
        V, scale = self.target.vocabulary.size, BASE_WIDTH / self.width
        sizes = {"vocabulary": V, "width": self.width, "depth": self.depth}
        if self.family == "mamba":
            return Spec(Mamba, **sizes, states=STATES, readout_scale=scale)
        return Spec(
            LinearAttention, **sizes, heads=self.heads, kind=self.family, readout_scale=scale
        )

    def model(self) -> nn.Module:
        """The untrained model."""
        rng = torch.Generator().manual_seed(self.seed)
        classes: dict[str, Callable[..., nn.Module]] = {"mamba": Mamba}
        return classes.get(self.family, LinearAttention)(**self.shape.arguments | {"rng": rng})

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token."""
        return _cost(self.shape, self.target.vocabulary.size, self.context)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.003 + 0.003 * self.depth) + self.budget().C / 3e10


@functools.cache
def _cost(shape: Spec, V: int, context: int) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""
    return count_next_token(shape, vocabulary=V, context=context)


def parameters(family: str, width: int, depth: int, heads: int) -> int:
    r"""Number of parameters without embeddings.

    A block of Mamba has $6 w^2 + 4 w \lceil w/16 \rceil + 111 w$ with 16 states and twice as many
    channels as the width; one of linear attention about $12 w^2$, like a transformer's.
    """
    if family == "mamba":
        return depth * (6 * width**2 + 4 * width * math.ceil(width / 16) + 111 * width) + width
    size = width // heads
    keys, rank = heads * max(2, size // 4 * 2), min(16, width)
    decay = rank * (width + keys) + keys if family == "gla" else 0
    attention = 2 * width * keys + 3 * width**2 + decay
    return depth * (attention + 3 * width * round(8 * width / 3) + 2 * width + size) + width


def grow(family: str, N: float) -> tuple[int, int, int]:
    """Width, depth and heads of a model of `family` with about `N` parameters.

    Depth is that of a transformer of the same width; two blocks of Mamba count as one. Heads of
    linear attention have 32 values and 16 keys.
    """
    require(N >= 200, f"{family} size", "be at least 200 parameters", N)
    widths = [*range(2, 32, 2), *range(32, 64, 16), *range(64, 4096, 32)]
    blocks = 16 if family == "mamba" else 32
    shapes = [
        (width, max(2, round(width / blocks)), 1 if family == "mamba" else max(1, width // 32))
        for width in widths
        if family == "mamba" or width % max(1, width // 32) == 0
    ]
    return min(shapes, key=lambda shape: abs(math.log(parameters(family, *shape) / N)))


def _recipe(family: str, lr: float, model: str, references: str) -> Callable[..., list[Spec]]:
    def shapes(ladder: Iterable[float]) -> list[dict[str, int]]:
        return [
            dict(zip(("width", "depth", "heads"), grow(family, N), strict=True)) for N in ladder
        ]

    summary = f"{model} of each size, number of tokens and seed."
    return text_recipe(StateSpaceRun, shapes, family, lr, summary, references, {"family": family})


mamba = _recipe("mamba", 0.016, "a selective state-space model", "`gu2023`")
gla = _recipe("gla", 0.016, "gated linear attention", "`yang2024gla`")
retnet = _recipe("retnet", 0.012, "linear attention with constant decays", "`sun2023retnet`")
