"""Flows and autoencoders of any size on points, tables and images, by likelihood."""

import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry._core.spec import Spec
from allometry.models import autoencoders, flows
from allometry.study.recipes.density_losses import objective, step_batch
from allometry.study.recipes.judged import drawn, worth
from allometry.study.recipes.latent import latent_pictures
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Images, NumericTable, Points
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost, count_parameters
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

Vectors = Points | NumericTable | Images

BASE_WIDTH = 64
"""The width at which the learning rate is the number that was asked for."""

LAYERS: dict[str, int] = {
    "affine_coupling": 8,
    "spline_coupling": 6,
    "masked_autoregressive": 5,
    "nice": 8,
    "inverse_autoregressive": 3,
    "planar": 1,
    "radial": 1,
    "continuous": 2,
    "glow": 4,
    "variational_splines": 6,
    "discrete": 2,
    "vae": 2,
    "beta_vae": 2,
    "info_vae": 2,
    "vqvae": 2,
}
"""Layers of each family at every size (steps of each level for GLOW, blocks of the prior for
VQ-VAE): it is width that grows. Planar and radial flows grow by layers instead."""

FAMILIES = tuple(LAYERS)
VARIATIONAL = ("vae", "beta_vae", "info_vae")
OF_IMAGES = ("glow", "variational_splines", "discrete", *VARIATIONAL, "vqvae")

SOLVER_STEPS = 8
"""Of a continuous flow's equation, fifth order."""

CODE = 16
"""Numbers in the code of a variational autoencoder."""

CODES, CODE_SIZE = 128, 8
"""Vectors in the codebook of a VQ-VAE, and numbers in each."""


@final
@dataclass(frozen=True)
class FlowRun(TrainingRequest):
    """One flow on one target under one budget and seed.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
        family: Of `FAMILIES`.
        layers: Of the flow.
        width: Of its networks.
        batch: Examples in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH`.
        seed: Of weights, data order and noise.
        rung: Which size of the ladder this is, from 0.
    """

    target: Vectors
    fingerprint: str
    family: str
    layers: int
    width: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return {
            "family": self.family.replace("_", " "),
            "target": self.target.name,
            "shape": f"{self.layers} layers, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def shape(self) -> Spec:
        """The model without its numbers."""
        target = self.target
        sizes = {"layers": self.layers, "width": self.width}
        return Spec(
            made, family=self.family, shape=list(target.shape), levels=target.levels, **sizes
        )

    def model(self) -> nn.Module:
        """The untrained model."""
        rng = torch.Generator().manual_seed(self.seed)
        target, sizes = self.target, (self.layers, self.width)
        return made(self.family, target.shape, target.levels, *sizes, rng=rng)

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, each = _cost(self.shape)
        D = self.steps * self.batch
        return Budget(N, 0, D, each * D)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic at a modest rate."""
        price = {"affine_coupling": 6e-4, "spline_coupling": 1.6e-3, "glow": 3e-3}
        price |= {"vqvae": 1e-2, "continuous": 1e-2}
        return self.steps * (1e-3 + price.get(self.family, 1e-3) * self.layers) + (
            self.budget().C / 2e10
        )

    @property
    def packs(self) -> bool:
        """All but those whose codebook follows running means, which no optimiser steps."""
        return self.family != "vqvae"

    def training(self) -> Training:
        """By likelihood, with samples kept along the way."""
        if self.target.fingerprint != self.fingerprint:
            raise InputError(
                f"{self.target.name} must not change while its study goes on. "
                "Start a new study folder."
            )
        torch.set_default_dtype(torch.float32)
        target, model = self.target, self.model()
        first = target.batch(0, size=max(self.batch, 512), seed=self.seed)
        model.initialise(first if isinstance(target, Points) else target.split("train"))  # pyright: ignore
        decay = 0.1 if self.family == "vqvae" else 0.0
        optimiser = adamw(
            model, lr=self.lr, width=self.width, base_width=BASE_WIDTH, weight_decay=decay
        )
        seen: list[np.ndarray] = []

        def measure(model: nn.Module) -> Estimate:
            seen.append(drawn(model, self.seed))
            return loss_on(model, target, "validation")

        return Training(
            model=model,
            optimiser=optimiser,
            objective=functools.partial(objective, self.family),
            batch=step_batch(self.family, model, target, self.batch, self.seed),
            measure=measure,
            steps=self.steps,
            seen=self.batch,
            clip=10.0 * math.sqrt(target.dim),
            kept=seen,
        )

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure on validation and test, keep the weights and samples along the way."""
        target, seen = self.target, training.kept
        test = loss_on(model, target, "test")
        about = {"family": self.family, "model": json.dumps(self.shape.to_dict())}
        about |= {"target": target.name, "unit": target.unit}
        checkpoint.save_weights(place.weights, model, about)
        pictures = make_folder(path_inside(place.folder, "pictures"))
        with atomic_write(pictures / f"{place.key}.npz", "wb") as file:
            # Weights may have been resumed: the samples are those of the steps at the end.
            steps = np.asarray(trained.curve.step[-len(seen) :])
            more = latent_pictures(model, target) if isinstance(target, Images) else {}
            np.savez(file, allow_pickle=False, samples=np.stack(seen), step=steps, **more)
        budget = self.budget()
        each = budget.C / budget.D
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": 0,
                "D": budget.D,
                "D_unique": min(target.D_unique, budget.D),
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": trained.loss.value,
                "loss_se": trained.loss.se,
                "test_loss": test.value,
                "test_loss_se": test.se,
                "seconds": trained.seconds,
                "dtype": trained.precision,
            },
            curve={
                "step": [float(s) for s in trained.curve.step],
                "tokens": [float(t) for t in trained.curve.tokens],
                "flops": [t * each for t in trained.curve.tokens],
                "loss": trained.curve.loss,
            },
            measures=worth(model, target, self.seed),
        )


def made(
    family: str,
    shape: Sequence[int],
    levels: int | None,
    layers: int,
    width: int,
    rng: torch.Generator | None = None,
) -> nn.Module:
    """The flow of a family for points of one shape; for whole values 0 ... levels - 1 if given.

    Args:
        family: Of `FAMILIES`.
        shape: `(d,)` or `(channels, height, width)`.
        levels: Values of a pixel.
        layers: Of the flow; of GLOW, steps of each level.
        width: Of its networks.
        rng: Source of the initial weights; `None` means seed 0.
    """
    require(family in FAMILIES, "family", f"be one of {FAMILIES}", family)
    if levels is not None:
        return _of_images(family, shape, levels, layers, width, rng)
    require(family not in OF_IMAGES, family, "be given images", tuple(shape))
    (dim,) = shape
    if family in ("planar", "radial"):
        # Their layers have no width: it is their number that grows.
        return (flows.planar if family == "planar" else flows.radial)(dim, width, rng)
    if family == "continuous":
        return flows.continuous(dim, width, layers, steps=SOLVER_STEPS, rng=rng)
    makers: dict[str, Callable[..., flows.Flow]] = {
        "affine_coupling": flows.affine_coupling,
        "nice": functools.partial(flows.affine_coupling, scale=False),
        "spline_coupling": flows.spline_coupling,
        "masked_autoregressive": flows.masked_autoregressive,
        "inverse_autoregressive": flows.inverse_autoregressive,
    }
    return makers[family](dim, layers, width, rng=rng)


def _of_images(
    family: str,
    shape: Sequence[int],
    levels: int,
    layers: int,
    width: int,
    rng: torch.Generator | None,
) -> nn.Module:
    if family in VARIATIONAL:
        likelihood, hidden = autoencoders.DiscretisedLogistic(levels), [width] * layers
        return autoencoders.dense_vae(shape, CODE, likelihood, hidden, rng, float(levels))
    if family in ("spline_coupling", "variational_splines"):
        learnt = family == "variational_splines"
        return flows.image_splines(shape, levels, layers, width, variational=learnt, rng=rng)
    if family == "discrete":
        return flows.discrete(shape, levels, layers, width, rng=rng)
    require(family in OF_IMAGES, "family", f"be spline_coupling or of {OF_IMAGES}", family)
    halvings = min(2, *(_halvings(side) for side in shape[1:]))
    if family == "vqvae":
        codes = (CODES, CODE_SIZE, width, halvings)
        return autoencoders.generative_vqvae(shape, levels, *codes, width, layers, rng)
    body = flows.glow(shape, halvings, layers, width, marginal=levels, rng=rng)
    return flows.Dequantised(body, levels)


def _halvings(side: int) -> int:
    require(side % 2 == 0, "images", "have sides of even length", side)
    return 1 + (_halvings(side // 2) if side % 4 == 0 else 0)


@torch.no_grad()
def loss_on(model: nn.Module, target: Vectors, split: str, batch: int = 1000) -> Estimate:
    """Mean loss on a whole split: nats of points, nats of a table's rows, bits per dimension.

    Images are filled with noise of a fixed seed, so that the same model has the same figure.
    """
    rows = target.split(split)
    losses = torch.cat([-model.log_prob(part) for part in rows.split(batch)]).double()  # pyright: ignore
    if isinstance(target, NumericTable):
        losses = losses + target.log_scale
    if isinstance(target, Images):
        losses = losses / (target.dim * math.log(2))
    se = losses.std().item() / len(losses) ** 0.5
    return Estimate(losses.mean().item(), se, n=len(losses), method="independent rows")


@functools.cache
def _cost(shape: Spec) -> tuple[int, float]:
    """N and training FLOPs per example: the same for every seed and budget."""

    def loss(model: Any) -> Tensor:
        x = torch.zeros(2, *model.shape)
        flow = model.flow if isinstance(model, flows.Dequantised) else model
        given = [torch.zeros(2, CODE)] if isinstance(model, autoencoders.VAE) else []
        whole = isinstance(model, flows.DiscreteFlow)
        return flow.log_prob(x.long() if whole else x, *given).sum()

    N, _, flops = count_cost(shape, loss)
    # Layers without matrices have nothing that is counted: each number multiplies and adds once.
    return N, flops / 2 or 6.0 * N


def grow(family: str, shape: Sequence[int], levels: int | None, N: float) -> tuple[int, int]:
    """Layers and width of a flow with about `N` parameters: the number of layers stays."""
    layers = LAYERS[family]

    def size(width: int) -> int:
        return _size(family, tuple(shape), levels, layers, width)

    return layers, nearest_width(size, N, 128 if family in ("planar", "radial") else 4096)


@functools.cache
def _size(family: str, shape: tuple[int, ...], levels: int | None, layers: int, width: int) -> int:
    with torch.device("meta"):
        model = made(family, shape, levels, layers=layers, width=width, rng=None)
    return count_parameters(model)[0]


def nearest_width(size: Callable[[int], int], N: float, most: int = 4096) -> int:
    """The width, from 1 to `most`, whose size is nearest to `N` in ratio; sizes must grow."""
    if most < 2 or size(1) >= N:
        return 1
    # Sizes are nearly a parabola in the width: begin where it says, for every size is a model.
    low = min(max(1, round(_parabola(size, N, most))), most)
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


def _parabola(size: Callable[[int], int], N: float, most: int) -> float:
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


def requests(
    family: str,
    target: Vectors,
    ladder: Iterable[float],
    tokens: Sequence[float],
    seeds: int,
    batch: int,
    lr: float,
) -> list[Spec]:
    """A request for each size, number of examples and seed."""
    require(batch >= 1, f"{family}.batch", "be at least 1", batch)
    shapes = [grow(family, target.shape, target.levels, N) for N in ladder]
    shapes = list(dict.fromkeys(shapes))
    return [
        Spec(
            FlowRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            family=family,
            layers=layers,
            width=width,
            batch=batch,
            steps=max(1, round(D / batch)),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, (layers, width) in enumerate(shapes)
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
