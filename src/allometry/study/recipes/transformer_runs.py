"""Decoder transformers of any size, parametrised so that one learning rate fits all sizes."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.models import Transformer
from allometry.study.recipes.base import grid
from allometry.study.recipes.text_run import BASE_WIDTH, TextRun
from allometry.study.recipes.transformer_variants import (
    ACTIVE_EXPERTS,
    EXPERTS,
    OPTIMIZERS,
    VariantRun,
    changed,
    grouped,
)
from allometry.targets import Sources, Text
from allometry.train.budget import count_next_token

HEAD = 16
"""Size of a head. It is constant in width, as the transfer of the learning rate requires."""


@dataclass(frozen=True, kw_only=True)
class DecoderRun(TextRun, ABC):
    """A decoder transformer on sequences of tokens.

    Further arguments: see `TokenRun`.

    Args:
        heads: Attention heads of a block.
    """

    heads: int

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Number of tokens."""

    @property
    def _sizes(self) -> dict[str, int]:
        sizes = {"width": self.width, "depth": self.depth, "heads": self.heads}
        return {"vocabulary": self.vocabulary_size, **sizes, "context": self.context}

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
        return Spec(decoder, **self._sizes, rng=None)

    def model(self) -> Transformer:
        """The untrained model."""
        return decoder(**self._sizes, rng=torch.Generator().manual_seed(self.seed))

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token."""
        return _cost(**self._sizes)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10


@final
@dataclass(frozen=True, kw_only=True)
class TransformerRun(DecoderRun):
    """One decoder transformer on one text, for one budget and seed.

    Arguments: see `DecoderRun`.
    """

    target: Text | Sources

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return "transformer"

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return self.target.vocabulary.size


def decoder(
    vocabulary: int, width: int, depth: int, heads: int, context: int, rng: torch.Generator | None
) -> Transformer:
    """The model of every rung; the readout is scaled so that the learning rate transfers."""
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
def _cost(
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
    lr: float | None = None,
    **variant: Any,
) -> list[Spec]:
    """Requests for a transformer of each size, number of tokens and seed.

    Args:
        target: The text.
        ladder: Sizes N, without embeddings.
        tokens: Training tokens D; every size is trained on each.
        seeds: Repetitions.
        context: Tokens in a window.
        batch: Sequences in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1. Default: 0.008; 0.016 for Muon.
        **variant: Options of `VariantRun`, such as `activation="swiglu"` or `optimizer="muon"`.

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
    variant = changed(variant)
    lr = OPTIMIZERS[variant.get("optimizer", "adamw")] if lr is None else lr
    common = {"context": context, "batch": batch, "lr": lr}
    shapes = decoder_shapes(ladder)
    if variant:
        shapes = [shape | grouped(variant, shape["heads"]) for shape in shapes]
        chosen = {k: v for k, v in variant.items() if k != "key_value_heads"}
        return grid(VariantRun, target, shapes, tokens, seeds, batch * context, **common, **chosen)
    return grid(TransformerRun, target, shapes, tokens, seeds, batch * context, **common)


def moe(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    experts: int = EXPERTS,
    active_experts: int = ACTIVE_EXPERTS,
    **options: Any,
) -> list[Spec]:
    """Requests for a transformer with a mixture of experts in every block.

    Args:
        target: The text.
        ladder: Sizes N: parameters that a token uses, without embeddings. The journal has the
            number of all of them as `N_total`.
        tokens: Training tokens D; every size is trained on each.
        seeds: Repetitions.
        experts: Of each block.
        active_experts: Of each token.
        **options: As for `transformer`.

    References: `fedus2022`; `jiang2024`.
    """
    options |= {"experts": experts, "active_experts": active_experts}
    return transformer(target, ladder, tokens=tokens, seeds=seeds, **options)


def decoder_shapes(ladder: Iterable[float]) -> list[dict[str, int]]:
    """Width, depth and heads of each size, as arguments of a request."""
    return [dict(zip(("width", "depth", "heads"), grow(N), strict=True)) for N in ladder]


def grow(N: float) -> tuple[int, int, int]:
    r"""Width, depth and heads of a transformer with about `N` parameters, without embeddings.

    A block has about $12 w^2 + 13 w$ parameters (`kaplan2020` section 2.1, with biases and norms).
    There are at least two blocks: copying earlier tokens takes two attention heads in sequence,
    and a ladder that learns to copy halfway up follows no single power law. From width 64 on,
    depth is width / 32.
    """
    require(N >= 200, "transformer size", "be at least 200 parameters", N)
    # Heads have a fixed size, so widths from two heads up are multiples of it.
    widths = [*range(2, HEAD, 2), *range(HEAD, 2 * HEAD, 4), *range(2 * HEAD, 257 * HEAD, HEAD)]
    shapes = [(width, max(2, round(width / 32))) for width in widths]

    def misfit(shape: tuple[int, int]) -> float:
        width, depth = shape
        return abs(math.log(depth * (12 * width**2 + 13 * width) / N))

    width, depth = min(shapes, key=misfit)
    return width, depth, max(1, width // HEAD)
