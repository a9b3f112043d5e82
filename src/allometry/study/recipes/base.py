"""What the requests of all recipes share: columns, counted budgets, grids, the content check."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from allometry._core.errors import InputError
from allometry._core.spec import Spec
from allometry.study.request import Request, TrainingRequest
from allometry.train.budget import Budget


def identity(family: str, target: str, shape: str, rung: int = 0, seed: int = 0) -> dict[str, Any]:
    """The journal columns that identify a run; jobs without randomness keep seed 0."""
    return {"family": family, "target": target, "shape": shape, "rung": rung, "seed": seed}


def layers(depth: int, width: int) -> str:
    """A shape in words: `2 layers, width 32`."""
    return f"{depth} layer{'s' if depth > 1 else ''}, width {width}"


@dataclass(frozen=True, kw_only=True)
class CountedRun(Request, ABC):
    """A run on batches whose compute is counted on the shape of its model.

    Args:
        target: What the model learns.
        batch: Rows in a batch.
        steps: Updates.
        lr: Peak learning rate.
        seed: Of weights, data order and noise.
        rung: Index of the size in the ladder, from 0.
    """

    target: Any
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    @abstractmethod
    def family_name(self) -> str:
        """The family as the journal names it."""

    @property
    @abstractmethod
    def shape_name(self) -> str:
        """The model's shape in words."""

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return identity(self.family_name, self.target.name, self.shape_name, self.rung, self.seed)

    @abstractmethod
    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token or example."""

    @property
    def per_row(self) -> int:
        """Tokens or examples in one row of a batch."""
        return 1

    def budget(self) -> Budget:
        """Counted on the model's shapes; no weights are made."""
        N, N_embedding, flops = self.cost()
        D = self.steps * self.batch * self.per_row
        return Budget(N, N_embedding, D, flops * D)


class WrappedRun(Request, ABC):
    """A run that trains another request, `run`, in a different way."""

    run: TrainingRequest

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the inner run."""
        return self.run.columns

    @property
    def dtype(self) -> torch.dtype:
        """That of the inner run."""
        return self.run.dtype

    def budget(self) -> Budget:
        """That of one training of the inner run."""
        return self.run.budget()

    def work(self) -> float:
        """That of one training of the inner run."""
        return self.run.work()


def require_unchanged(target: Any, fingerprint: str) -> None:
    """Refuse to train if the target's content has changed since the run was requested."""
    if target.fingerprint != fingerprint:
        raise InputError(
            f"{target.name} must not change during its study; got other content than when the "
            "study started. Start a new study folder."
        )


def grid(
    run: Callable[..., Request],
    target: Any,
    shapes: Iterable[Mapping[Any, Any]],
    tokens: Sequence[float],
    seeds: int,
    per_step: int,
    **common: Any,
) -> list[Spec]:
    """One request for each distinct shape, number of tokens and seed.

    Args:
        run: The class of the requests, a dataclass.
        target: Passed as its spec, and its fingerprint if the class has that field.
        shapes: Arguments that differ between sizes. Two sizes may lead to one shape, which is one
            rung: a repeated run adds no information.
        tokens: Training tokens or examples D.
        seeds: Repetitions.
        per_step: Tokens or examples in one step.
        **common: Further arguments.
    """
    if "fingerprint" in inspect.signature(run).parameters:
        common["fingerprint"] = target.fingerprint
    distinct = list({tuple(shape.items()): shape for shape in shapes}.values())
    return [
        Spec(run, target=target.spec, **common, **shape, steps=steps, seed=seed, rung=rung)
        for rung, shape in enumerate(distinct)
        for steps in (max(1, round(D / per_step)) for D in sorted(set(tokens)))
        for seed in range(seeds)
    ]


def example_recipe(
    build: Callable[..., list[Spec]],
    family: str,
    default_batch: int,
    default_lr: float,
    summary: str,
    references: str,
) -> Callable[..., list[Spec]]:
    """The recipe of one family on points, tables or images.

    Args:
        build: `build(family, target, ladder, tokens=, seeds=, batch=, lr=)` makes the requests.
        family: The name of the recipe.
        default_batch: Examples in a batch.
        default_lr: Peak learning rate.
        summary: What the models are, for the recipe's docstring.
        references: Bibliography keys.
    """

    def recipe(
        target: Any,
        ladder: Iterable[float],
        *,
        tokens: Sequence[float],
        seeds: int,
        batch: int = default_batch,
        lr: float = default_lr,
    ) -> list[Spec]:
        return build(family, target, ladder, tokens=tokens, seeds=seeds, batch=batch, lr=lr)

    return named(recipe, family, summary, references)


def named(
    recipe: Callable[..., list[Spec]], family: str, summary: str, references: str
) -> Callable[..., list[Spec]]:
    """`recipe` with the name and the docstring of a family."""
    recipe.__name__ = recipe.__qualname__ = family
    recipe.__doc__ = f"Requests for {summary}\n\nReferences: {references}.\n"
    return recipe


WIDEST = 4096
"""Largest width of a model."""


def nearest_width(size: Callable[[int], int], N: float, most: int = WIDEST) -> int:
    """The width, from 1 to `most`, whose size is nearest to `N` in ratio; sizes must increase."""
    if most < 2 or size(1) >= N:
        return 1
    # Sizes are nearly quadratic in the width. Starting there keeps the number of models small.
    low = min(max(1, round(_quadratic_guess(size, N, most))), most)
    step = 1
    while low > 1 and size(low) >= N:
        low, step = max(1, low - step), 2 * step
    high, step = low, 1
    while high < most and size(high) < N:
        low, high, step = high, min(high + step, most), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) < N else (low, middle)
    return min((low, high), key=lambda w: abs(math.log(size(w) / N)))


def _quadratic_guess(size: Callable[[int], int], N: float, most: int) -> float:
    """The width at which the parabola through three sizes reaches `N`."""
    if most < 4:
        return 1.0
    one, two, four = (size(w) for w in (1, 2, 4))
    a = ((four - two) / 2 - (two - one)) / 3
    b = two - one - 3 * a
    c = one - a - b
    if a <= 0:
        return (N - c) / b if b > 0 else 1.0
    return (-b + math.sqrt(max(0.0, b * b - 4 * a * (c - N)))) / (2 * a)
