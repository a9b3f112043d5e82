"""Autoencoders without a likelihood: reconstruction error against parameters.

Letters: d numbers in an example, k in its code.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import autoencoders as ae
from allometry.study.recipes.base import (
    CountedRun,
    example_recipe,
    grid,
    nearest_width,
    require_unchanged,
)
from allometry.study.recipes.density_runs import BASE_WIDTH, Vectors
from allometry.study.recipes.quantiser_runs import UNIT, rows
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.sample_scores import independent
from allometry.study.request import Outcome, RunContext
from allometry.targets import Images
from allometry.train import checkpoint, objectives
from allometry.train.budget import count_cost, count_parameters
from allometry.train.device import device_of
from allometry.train.optimiser import adamw
from allometry.train.training import Training

CODE, NOISE, SPARSITY, CONTRACTION = 8, 0.1, 0.01, 0.01
"""Size of the code (at most half of an example's), standard deviation of the denoising family's
noise, and weights of the penalties on the code and on the Jacobian."""

FAMILIES = (
    "autoencoder",
    "linear_autoencoder",
    "convolutional_autoencoder",
    "sparse_autoencoder",
    "denoising_autoencoder",
    "contractive_autoencoder",
)


@final
@dataclass(frozen=True, kw_only=True)
class AutoencoderRun(CountedRun):
    """One autoencoder on one target, for one budget and seed.

    Further arguments: see `CountedRun`.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
        family: Of `FAMILIES`.
        width: Of its networks (of the code, for the linear one).
        batch: Examples in a batch.
        lr: Peak learning rate at `BASE_WIDTH`.
    """

    target: Vectors
    fingerprint: str
    family: str
    width: int

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return self.family.replace("_", " ")

    @property
    def shape_name(self) -> str:
        """The width."""
        return f"width {self.width}"

    def cost(self) -> tuple[int, int, float]:
        """N, no embeddings, and training FLOPs per example."""
        shape = {"family": self.family, "shape": list(self.target.shape), "width": self.width}
        return _cost(Spec(build_autoencoder, **shape))

    def work(self) -> float:
        """A fixed overhead per step, and the FLOPs at a modest rate."""
        overhead = 8e-3 if self.family == "contractive_autoencoder" else 2e-3
        return self.steps * overhead + self.budget().C / 2e10

    def __call__(self, context: RunContext) -> Outcome:
        """Train, evaluate on validation and test, save the weights."""
        require_unchanged(self.target, self.fingerprint)
        rng = torch.Generator().manual_seed(self.seed)
        model = build_autoencoder(self.family, self.target.shape, self.width, rng)
        training = Training(
            model=model,
            optimiser=adamw(model, lr=self.lr, width=self.width, base_width=BASE_WIDTH),
            objective=self._objective,
            batch=self._batch,
            measure=lambda model: self._error(model, "validation"),
            steps=self.steps,
            seen=self.batch,
            clip=10.0 * math.sqrt(self.target.dim),
        )
        trained = context.train(training)
        test = self._error(model, "test")
        metadata = {"family": self.family, "target": self.target.name, "unit": UNIT}
        checkpoint.save_weights(context.weights, model, metadata)
        D_unique = min(self.target.D_unique, self.budget().D)
        return outcome(self, trained, test, D_unique=D_unique)

    def _shaped(self, x: Tensor) -> Tensor:
        return rows(self.target, x).unflatten(1, self.target.shape)

    def _batch(self, step: int) -> tuple[Tensor, ...]:
        """Examples, and the noise of the denoising family."""
        x = self._shaped(self.target.batch(step, size=self.batch, seed=self.seed))
        if self.family != "denoising_autoencoder":
            return (x,)
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        return x, NOISE * torch.randn(x.shape, generator=rng)

    def _objective(self, model: nn.Module, x: Tensor, *noise: Tensor) -> Tensor:
        """The family's training loss."""
        assert isinstance(model, ae.Autoencoder)
        if self.family == "sparse_autoencoder":
            return objectives.sparse(model, x, SPARSITY)
        if self.family == "contractive_autoencoder":
            return objectives.contractive(model, x, CONTRACTION)
        if self.family == "denoising_autoencoder":
            return objectives.denoising(model, x, *noise)
        return objectives.reconstruction(model, x)

    @torch.no_grad()
    def _error(self, model: nn.Module, split: str) -> Estimate:
        """Reconstruction error of clean held-out examples, whatever the training added."""
        x = self._shaped(self.target.split(split)).to(device_of(model))
        squares = (model(x) - x).square().flatten(1).mean(1).cpu().double()
        return independent(squares)


def build_autoencoder(
    family: str, shape: Sequence[int], width: int, rng: torch.Generator | None = None
) -> ae.Autoencoder:
    """The autoencoder of a family for examples of one shape.

    Args:
        family: Of `FAMILIES`.
        shape: Of an example; the convolutional one needs images.
        width: Of two hidden layers or of the convolutions; of the linear one's code.
        rng: Source of the initial weights; `None` means seed 0.
    """
    require(family in FAMILIES, "family", f"be one of {FAMILIES}", family)
    d = math.prod(shape)
    code = min(CODE, max(1, d // 2))
    if family == "linear_autoencoder":
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        code = min(width, d)
        return ae.Autoencoder(ae.Dense(shape, (code,), rng=rng), ae.Dense((code,), shape, rng=rng))
    if family == "convolutional_autoencoder":
        require(len(shape) == 3, family, "be given images", tuple(shape))
        halvings = 2 if shape[1] % 4 == 0 and shape[2] % 4 == 0 else 1
        grid = math.prod(shape[1:]) // 4**halvings
        return ae.convolutional(shape, max(1, code // grid), width, halvings, rng)
    return ae.deep(shape, code, (width, width), rng)


@functools.cache
def _cost(shape: Spec) -> tuple[int, int, float]:
    """N, no embeddings, and training FLOPs per example of the plain objective."""

    def loss(model: Any) -> Tensor:
        return objectives.reconstruction(model, torch.zeros(2, *shape.arguments["shape"]))

    N, _, flops = count_cost(shape, loss)
    return N, 0, flops / 2


def grow(family: str, shape: Sequence[int], N: float) -> int:
    """The width of an autoencoder with about `N` parameters."""

    @functools.cache
    def size(width: int) -> int:
        with torch.device("meta"):
            return count_parameters(build_autoencoder(family, shape, width))[0]

    most = math.prod(shape) if family == "linear_autoencoder" else 4096
    return nearest_width(size, N, most)


def _requests(
    family: str,
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int,
    lr: float,
) -> list[Spec]:
    """A request for each size, number of examples and seed."""
    require(batch >= 1, f"{family}.batch", "be at least 1", batch)
    if family == "convolutional_autoencoder":
        require(isinstance(target, Images), f"{family}.target", "be images", target)
    shapes = [{"width": grow(family, target.shape, N)} for N in ladder]
    common = {"family": family, "batch": batch, "lr": lr}
    return grid(AutoencoderRun, target, shapes, tokens, seeds, batch, **common)


_ABOUT = {
    "autoencoder": (
        "undercomplete autoencoders with two hidden layers on each side.",
        "`goodfellow2016` section 14.1",
    ),
    "linear_autoencoder": (
        "linear autoencoders of growing code: the best is the principal subspace.",
        "`baldi1989`",
    ),
    "convolutional_autoencoder": (
        "convolutional autoencoders of images.",
        "`goodfellow2016` section 14.3",
    ),
    "sparse_autoencoder": ("autoencoders with a penalty on their code.", "`ng2011`"),
    "denoising_autoencoder": (
        "autoencoders trained on noisy examples and evaluated on clean ones.",
        "`vincent2008`",
    ),
    "contractive_autoencoder": (
        "autoencoders with a penalty on their encoder's Jacobian.",
        "`rifai2011`",
    ),
}

PLAIN = {name: example_recipe(_requests, name, 128, 0.003, *_ABOUT[name]) for name in FAMILIES}
"""Recipes by family."""

autoencoder = PLAIN["autoencoder"]
linear_autoencoder = PLAIN["linear_autoencoder"]
convolutional_autoencoder = PLAIN["convolutional_autoencoder"]
sparse_autoencoder = PLAIN["sparse_autoencoder"]
denoising_autoencoder = PLAIN["denoising_autoencoder"]
contractive_autoencoder = PLAIN["contractive_autoencoder"]
