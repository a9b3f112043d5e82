"""PixelCNNs on images: each pixel is a category, the likelihood is exact.

Letters: b images, c colours, h and w image height and width.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import PixelCNN
from allometry.study.recipes.base import CountedRun, grid, nearest_width, require_unchanged
from allometry.study.recipes.density_runs import BASE_WIDTH, Vectors, metadata
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.sample_scores import SHOWN, independent, save_figures, two_sample
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Images
from allometry.train import checkpoint
from allometry.train.budget import count_cost
from allometry.train.device import device_of
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

DEPTH = 4
"""Layers after the first, at every size: the width grows."""


@final
@dataclass(frozen=True, kw_only=True)
class PixelRun(CountedRun, TrainingRequest):
    """One PixelCNN on one set of images, for one budget and seed.

    Further arguments: see `CountedRun`.

    Args:
        target: The images.
        fingerprint: Of their content.
        width: Channels.
        depth: Layers after the first.
        batch: Images in a batch.
        lr: Peak learning rate at `BASE_WIDTH`.
        weight_decay: Decoupled, on kernels.
    """

    target: Images
    fingerprint: str
    width: int
    depth: int
    weight_decay: float = 0.1

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return "pixelcnn"

    @property
    def shape_name(self) -> str:
        """Layers and width."""
        return f"{self.depth + 1} layers, width {self.width}"

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
        return _shape(self.target, self.width, self.depth)

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per image."""
        return _cost(self.shape, self.target.shape)

    def work(self) -> float:
        """A fixed overhead per step and layer, the FLOPs, and samples along the way."""
        sampling = 12 * self.target.dim * 1.5e-4 * (self.depth + 2)
        return sampling + self.steps * (1e-3 + 1e-3 * self.depth) + self.budget().C / 2e10

    def training(self) -> Training:
        """By the likelihood of every pixel, with samples kept along the way."""
        target = self.target
        require_unchanged(target, self.fingerprint)
        rng = torch.Generator().manual_seed(self.seed)
        sizes = {"width": self.width, "depth": self.depth, "colours": target.shape[0]}
        model = PixelCNN(target.levels, rng=rng, **sizes)
        optimiser = adamw(
            model,
            lr=self.lr,
            width=self.width,
            base_width=BASE_WIDTH,
            weight_decay=self.weight_decay,
        )

        def snapshot(model: nn.Module) -> ndarray:
            assert isinstance(model, PixelCNN)
            images = images_of(model, target.shape, SHOWN // 10, self.seed)
            return images.cpu().numpy().astype(np.float32)

        return Training(
            model=model,
            optimiser=optimiser,
            objective=nats,
            batch=lambda step: (in_line(target.batch(step, size=self.batch, seed=self.seed)),),
            measure=lambda model: loss_on(model, target, "validation"),  # pyright: ignore
            steps=self.steps,
            seen=self.batch,
            snapshot=snapshot,
        )

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate on test data, save the weights and the samples along the way."""
        assert isinstance(model, PixelCNN)
        target = self.target
        about = metadata("pixelcnn", self.shape, target)
        checkpoint.save_weights(context.weights, model, about)
        save_figures(context, trained.snapshots, trained.curve.step)
        test = loss_on(model, target, "test")
        scores = two_sample(
            target.split("validation"),
            lambda n: images_of(model, target.shape, n, self.seed + 1),
        )
        D_unique = min(target.D_unique, self.budget().D)
        return outcome(self, trained, test, D_unique=D_unique, measures=scores)


def in_line(images: Int[Tensor, "b c h w"]) -> Int[Tensor, "b h wc"]:
    """Images with the colours of a pixel next to each other, the input of a `PixelCNN`."""
    return images.permute(0, 2, 3, 1).flatten(2)


def images_of(
    model: PixelCNN, shape: Sequence[int], n: int, seed: int
) -> Int[Tensor, "{n} c h w"]:
    """Images sampled from the model."""
    c, h, w = shape
    drawn = model.sample(n, h, w * c, torch.Generator().manual_seed(seed))
    return drawn.unflatten(2, (w, c)).permute(0, 3, 1, 2)


def nats(model: nn.Module, lines: Int[Tensor, "b h w"]) -> Tensor:
    """Mean nats per pixel value: the training loss."""
    logits = model(lines)
    return nn.functional.cross_entropy(logits.flatten(0, 2), lines.flatten())


@torch.no_grad()
def loss_on(model: PixelCNN, target: Images, split: str, batch: int = 500) -> Estimate:
    """Mean bits per dimension on a split."""
    rows, device = in_line(target.split(split)).split(batch), device_of(model)
    bits = torch.cat([-model.log_prob(part.to(device)) for part in rows]).cpu().double()
    return independent(bits / (target.dim * math.log(2)))


def _shape(target: Images, width: int, depth: int) -> Spec:
    sizes = {"levels": target.levels, "width": width, "depth": depth}
    return Spec(PixelCNN, **sizes, colours=target.shape[0])


@functools.cache
def _cost(shape: Spec, image: tuple[int, ...]) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per image: the same for every seed and budget."""
    c, h, w = image

    def loss(model: nn.Module) -> Tensor:
        return nats(model, torch.zeros(1, h, w * c, dtype=torch.int64))

    return count_cost(shape, loss)


def pixelcnn(
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 64,
    lr: float = 0.006,
) -> list[Spec]:
    """Requests for a PixelCNN of each size, number of images and seed.

    Every pixel is a category given the previous ones, so the likelihoods are exact.

    References: `vandenoord2016`.
    """
    require(isinstance(target, Images), "pixelcnn.target", "be images", target)
    assert isinstance(target, Images)
    require(batch >= 1, "pixelcnn.batch", "be at least 1", batch)

    @functools.cache
    def size(width: int) -> int:
        return _cost(_shape(target, width, DEPTH), target.shape)[0]

    shapes = [{"width": nearest_width(size, N, 512)} for N in ladder]
    common = {"depth": DEPTH, "batch": batch, "lr": lr}
    return grid(PixelRun, target, shapes, tokens, seeds, batch, **common)
