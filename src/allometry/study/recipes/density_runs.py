"""Flows and autoencoders with a likelihood, on points, tables and images."""

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import autoencoders, diffusion, flows
from allometry.study.recipes.base import CountedRun, nearest_width, require_unchanged
from allometry.study.recipes.density_losses import DIFFUSION, objective, step_batch
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.sample_scores import (
    density_metrics,
    figure_samples,
    independent,
    latent_figures,
    save_figures,
)
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Images, NumericTable, Points
from allometry.train import checkpoint
from allometry.train.budget import count_cost, count_parameters
from allometry.train.device import device_of
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

Vectors = Points | NumericTable | Images

BASE_WIDTH = 64
"""The width at which the peak learning rate equals the requested one."""

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
    "diffusion": 4,
    "flow_matching": 4,
}
"""Layers of each family at every size (steps of each level for GLOW, blocks of the prior for
VQ-VAE). The width grows; planar and radial flows grow by layers instead."""

FAMILIES = tuple(LAYERS)
VARIATIONAL = ("vae", "beta_vae", "info_vae")
OF_IMAGES = ("glow", "variational_splines", "discrete", *VARIATIONAL, "vqvae")

CURVE_ROWS, SCORED_ROWS = 500, 2000
"""Rows whose likelihood under a diffusion model is measured along a training, and at its end.

The likelihood of a row costs some hundred passes through the network.
"""

CURVE_IMAGES, CURVE_POINTS = 40, 6
"""Images whose likelihood is measured along a training, and how often. A U-Net costs more."""

PROBES = 1
"""Random directions that estimate the trace of an image's likelihood: their noise in the mean
over images is small next to the differences between images."""

SOLVER_STEPS = 8
"""Steps of a continuous flow's solver, fifth order."""

CODE = 16
"""Latent dimensions of a variational autoencoder."""

CODES, CODE_SIZE = 128, 8
"""Vectors in the codebook of a VQ-VAE, and their size."""


@final
@dataclass(frozen=True, kw_only=True)
class FlowRun(CountedRun, TrainingRequest):
    """One flow or autoencoder on one target, for one budget and seed.

    Further arguments: see `CountedRun`.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
        family: Of `FAMILIES`.
        layers: Of the flow.
        width: Of its networks.
        batch: Examples in a batch.
        lr: Peak learning rate at `BASE_WIDTH`.
    """

    target: Vectors
    fingerprint: str
    family: str
    layers: int
    width: int

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return self.family.replace("_", " ")

    @property
    def shape_name(self) -> str:
        """Layers and width."""
        return f"{self.layers} layers, width {self.width}"

    @property
    def _sizes(self) -> dict[str, Any]:
        shape, levels = list(self.target.shape), self.target.levels
        sizes = {"layers": self.layers, "width": self.width}
        return {"family": self.family, "shape": shape, "levels": levels, **sizes}

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
        return Spec(build_density, **self._sizes)

    def model(self) -> nn.Module:
        """The untrained model."""
        return build_density(**self._sizes, rng=torch.Generator().manual_seed(self.seed))

    def cost(self) -> tuple[int, int, float]:
        """N, no embeddings, and training FLOPs per example."""
        return _cost(self.shape)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        overhead = {"affine_coupling": 6e-4, "spline_coupling": 1.6e-3, "glow": 3e-3}
        overhead |= {"vqvae": 1e-2, "continuous": 1e-2}
        C, D = self.budget().C, self.budget().D
        if self.family in DIFFUSION:
            # Some hundred forward passes, with tangents, for each likelihood of the evaluation.
            if isinstance(self.target, Images):
                ends = sum(len(self.target.split(name)) for name in ("validation", "test"))
                rows = CURVE_POINTS * CURVE_IMAGES + min(ends, 2 * SCORED_ROWS)
            else:
                rows = 12 * CURVE_ROWS + 3 * SCORED_ROWS
            return 1.0 + self.steps * 1e-3 + (C + 100 * rows * C / D) / 2e10
        return self.steps * (1e-3 + overhead.get(self.family, 1e-3) * self.layers) + C / 2e10

    @property
    def packs(self) -> bool:
        """All but VQ-VAEs, whose codebook follows running means instead of gradients."""
        return self.family != "vqvae"

    def training(self) -> Training:
        """By likelihood, with samples kept along the way."""
        require_unchanged(self.target, self.fingerprint)
        target, model = self.target, self.model()
        first = target.batch(0, size=max(self.batch, 512), seed=self.seed)
        model.initialise(first if isinstance(target, Points) else target.split("train"))  # pyright: ignore
        decay = 0.1 if self.family == "vqvae" else 0.0
        images = isinstance(target, Images)
        rows = self._rows(CURVE_IMAGES if images else CURVE_ROWS)
        optimiser = adamw(
            model, lr=self.lr, width=self.width, base_width=BASE_WIDTH, weight_decay=decay
        )
        return Training(
            model=model,
            optimiser=optimiser,
            objective=functools.partial(objective, self.family),
            batch=step_batch(self.family, model, target, self.batch, self.seed),
            measure=lambda model: loss_on(model, target, "validation", limit=rows),
            steps=self.steps,
            seen=self.batch,
            clip=10.0 * math.sqrt(target.dim),
            curve_points=CURVE_POINTS if images and self.family in DIFFUSION else 12,
            snapshot=lambda model: figure_samples(model, self.seed),
        )

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate on test data, save the weights and the samples along the way."""
        target = self.target
        rows = self._rows(SCORED_ROWS)
        test = loss_on(model, target, "test", limit=rows)
        loss = None if rows is None else loss_on(model, target, "validation", limit=rows)
        checkpoint.save_weights(context.weights, model, metadata(self.family, self.shape, target))
        more = latent_figures(model, target) if isinstance(target, Images) else {}
        save_figures(context, trained.snapshots, trained.curve.step, **more)
        D_unique = min(target.D_unique, self.budget().D)
        scores = density_metrics(model, target, self.seed, rows)
        return outcome(self, trained, test, D_unique=D_unique, loss=loss, measures=scores)

    def _rows(self, most: int) -> int | None:
        """Rows of a likelihood; `None` means all."""
        return most if self.family in DIFFUSION else None


def metadata(family: str, model: Spec, target: Vectors) -> dict[str, str]:
    """Metadata of a weights file, so that the model can be sampled again."""
    about = {"family": family, "model": json.dumps(model.to_dict())}
    shape = json.dumps(list(target.shape))
    return about | {"target": target.name, "unit": target.unit, "shape": shape}


def build_density(
    family: str,
    shape: Sequence[int],
    levels: int | None,
    layers: int,
    width: int,
    rng: torch.Generator | None = None,
) -> nn.Module:
    """The model of a family for examples of one shape, with whole values if `levels` is given.

    Args:
        family: Of `FAMILIES`.
        shape: `(d,)` or `(channels, height, width)`.
        levels: Pixels have the values 0 ... levels - 1.
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
        # Their layers have no width: `width` is the number of layers.
        return (flows.planar if family == "planar" else flows.radial)(dim, width, rng)
    if family in DIFFUSION:
        return diffusion.points(dim, width, layers, DIFFUSION[family], rng=rng)
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
    if family in DIFFUSION:
        return diffusion.images(
            shape, levels, width, layers, DIFFUSION[family], network="unet", probes=PROBES, rng=rng
        )
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
def loss_on(
    model: nn.Module,
    target: Vectors,
    split: str,
    batch: int = 1000,
    limit: int | None = None,
) -> Estimate:
    """Mean loss on a split: nats for points and rows of tables, bits per dimension for images.

    The dequantisation noise has a fixed seed, so that a model always has the same loss.

    Args:
        model: With a `log_prob`.
        target: The data.
        split: Its name.
        batch: Rows evaluated at once.
        limit: Only so many rows, the first.
    """
    rows, device = target.split(split)[:limit], device_of(model)
    parts = [-model.log_prob(part.to(device)) for part in rows.split(batch)]  # pyright: ignore
    losses = torch.cat(parts).cpu().double()
    if isinstance(target, NumericTable):
        losses = losses + target.log_scale
    if isinstance(target, Images):
        losses = losses / (target.dim * math.log(2))
    return independent(losses)


@functools.cache
def _cost(shape: Spec) -> tuple[int, int, float]:
    """N, no embeddings, and training FLOPs per example: the same for every seed and budget."""

    def loss(model: Any) -> Tensor:
        x = torch.zeros(2, *model.shape)
        if shape.arguments["family"] in DIFFUSION:
            return objective(shape.arguments["family"], model, x, torch.full((2,), 0.5), x).sum()
        flow = model.flow if isinstance(model, flows.Dequantised) else model
        given = [torch.zeros(2, CODE)] if isinstance(model, autoencoders.VAE) else []
        whole = isinstance(model, flows.DiscreteFlow)
        return flow.log_prob(x.long() if whole else x, *given).sum()

    N, _, flops = count_cost(shape, loss)
    # Layers without matrices have no counted operation: each parameter multiplies and adds once.
    return N, 0, flops / 2 or 6.0 * N


def grow(family: str, shape: Sequence[int], levels: int | None, N: float) -> tuple[int, int]:
    """Layers (fixed for a family) and width of a model with about `N` parameters."""
    layers = LAYERS[family]
    if family in DIFFUSION and levels is not None:
        # Resolutions of the U-Net.
        layers = 2 if all(side % 2 == 0 for side in shape[1:]) else 1

    def size(width: int) -> int:
        return _size(family, tuple(shape), levels, layers, width)

    return layers, nearest_width(size, N, 128 if family in ("planar", "radial") else 4096)


@functools.cache
def _size(family: str, shape: tuple[int, ...], levels: int | None, layers: int, width: int) -> int:
    with torch.device("meta"):
        model = build_density(family, shape, levels, layers=layers, width=width, rng=None)
    return count_parameters(model)[0]
