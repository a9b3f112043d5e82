"""PixelCNNs of any size on images, each pixel a category, by likelihood.

Letters: b images, c colours, h and w image height and width.
"""

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry._core.spec import Spec
from allometry.measure import energy_distance, prdc
from allometry.models import PixelCNN
from allometry.study.recipes.density import BASE_WIDTH, Vectors, nearest_width
from allometry.study.recipes.judged import DRAWN, JUDGED, LEAST
from allometry.study.recipes.run_outcome import outcome
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Images
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_cost
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training

DEPTH = 4
"""Layers after the first at every size: it is width that grows."""


@final
@dataclass(frozen=True)
class PixelRun(TrainingRequest):
    """One PixelCNN on one set of images under one budget and seed.

    Args:
        target: The images.
        fingerprint: Of their content.
        width: Channels.
        depth: Layers after the first.
        batch: Images in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH`.
        seed: Of weights and data order.
        rung: Which size of the ladder this is, from 0.
        weight_decay: Decoupled, on kernels.
    """

    target: Images
    fingerprint: str
    width: int
    depth: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int
    weight_decay: float = 0.1

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return {
            "family": "pixelcnn",
            "target": self.target.name,
            "shape": f"{self.depth + 1} layers, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def shape(self) -> Spec:
        """The model without its numbers."""
        return _shape(self.target, self.width, self.depth)

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, N_embedding, each = _cost(self.shape, self.target.shape)
        D = self.steps * self.batch
        return Budget(N, N_embedding, D, each * D)

    def work(self) -> float:
        """A fixed price per step and layer, the arithmetic, and samples along the way."""
        drawn = 12 * self.target.dim * 1.5e-4 * (self.depth + 2)
        return drawn + self.steps * (1e-3 + 1e-3 * self.depth) + self.budget().C / 2e10

    def training(self) -> Training:
        """By the likelihood of every pixel, with samples kept along the way."""
        target = self.target
        if target.fingerprint != self.fingerprint:
            raise InputError(f"{target.name} must not change while its study goes on; it has.")
        torch.set_default_dtype(torch.float32)
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
        seen: list[ndarray] = []

        def measure(model: nn.Module) -> Estimate:
            assert isinstance(model, PixelCNN)
            drawn = images_of(model, target.shape, DRAWN // 10, self.seed)
            seen.append(drawn.numpy().astype(np.float32))
            return loss_on(model, target, "validation")

        return Training(
            model=model,
            optimiser=optimiser,
            objective=nats,
            batch=lambda step: (in_line(target.batch(step, size=self.batch, seed=self.seed)),),
            measure=measure,
            steps=self.steps,
            seen=self.batch,
            kept=seen,
        )

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure on validation and test, keep the weights and samples along the way."""
        assert isinstance(model, PixelCNN)
        target, seen = self.target, training.kept
        about = {"family": "pixelcnn", "model": json.dumps(self.shape.to_dict())}
        about |= {"target": target.name, "unit": target.unit}
        checkpoint.save_weights(place.weights, model, about)
        pictures = make_folder(path_inside(place.folder, "pictures"))
        with atomic_write(pictures / f"{place.key}.npz", "wb") as file:
            # Weights may have been resumed: the samples are those of the steps at the end.
            steps = np.asarray(trained.curve.step[-len(seen) :])
            np.savez(file, allow_pickle=False, samples=np.stack(seen), step=steps)
        return outcome(
            self.columns,
            self.budget(),
            trained,
            loss=trained.loss,
            test=loss_on(model, target, "test"),
            D_unique=min(target.D_unique, self.budget().D),
            measures=_worth(model, target, self.seed),
        )


def in_line(images: Int[Tensor, "b c h w"]) -> Int[Tensor, "b h wc"]:
    """Images with the colours of a pixel beside one another, as a `PixelCNN` reads them."""
    return images.permute(0, 2, 3, 1).flatten(2)


def images_of(
    model: PixelCNN, shape: Sequence[int], n: int, seed: int
) -> Int[Tensor, "{n} c h w"]:
    """Images that the model draws."""
    c, h, w = shape
    drawn = model.sample(n, h, w * c, torch.Generator().manual_seed(seed))
    return drawn.unflatten(2, (w, c)).permute(0, 3, 1, 2)


def nats(model: nn.Module, lines: Int[Tensor, "b h w"]) -> Tensor:
    """Mean nats of a pixel's value: what a training minimises."""
    logits = model(lines)
    return nn.functional.cross_entropy(logits.flatten(0, 2), lines.flatten())


@torch.no_grad()
def loss_on(model: PixelCNN, target: Images, split: str, batch: int = 500) -> Estimate:
    """Mean bits per dimension on a whole split."""
    rows = in_line(target.split(split)).split(batch)
    bits = torch.cat([-model.log_prob(part) for part in rows]).double()
    bits = bits / (target.dim * math.log(2))
    se = bits.std().item() / len(bits) ** 0.5
    return Estimate(bits.mean().item(), se, n=len(bits), method="independent rows")


def _worth(model: PixelCNN, target: Images, seed: int) -> dict[str, Estimate]:
    """What samples are worth beside as many held-out images."""
    real = target.split("validation")[:JUDGED]
    if len(real) < LEAST:
        return {}
    made = images_of(model, target.shape, len(real), seed + 1)
    a, b = (x.flatten(1).double() for x in (real, made))
    return {"energy_distance": energy_distance(a, b)} | prdc(a, b)


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

    Every pixel is a category given those before it, so the figures are exact likelihoods.

    References: `vandenoord2016`.
    """
    require(isinstance(target, Images), "pixelcnn.target", "be images", target)
    assert isinstance(target, Images)
    require(batch >= 1, "pixelcnn.batch", "be at least 1", batch)

    @functools.cache
    def size(width: int) -> int:
        return _cost(_shape(target, width, DEPTH), target.shape)[0]

    widths = dict.fromkeys(nearest_width(size, N, 512) for N in ladder)
    return [
        Spec(
            PixelRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            width=width,
            depth=DEPTH,
            batch=batch,
            steps=max(1, round(D / batch)),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for rung, width in enumerate(widths)
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
