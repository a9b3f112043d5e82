"""What a generator imitates, as rows of numbers, and what its samples are worth beside it.

Letters: n rows, d numbers in each, k modes.
"""

import functools

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry._core.estimate import Estimate
from allometry.measure import energy_distance, prdc, sliced_wasserstein
from allometry.measure.modes import nearest_classes, nearest_modes, recovery
from allometry.targets import Images
from allometry.targets.points import Modal, Points

DATA = 100_000
"""Training points, as PacGAN has it, where the target does not say."""

JUDGED = 2500
"""Samples that are scored, as PacGAN has it."""

Imitated = Points | Images
"""Targets that generators are grown on."""


def noise_size(target: Imitated) -> int:
    """Numbers of noise that a generator starts from: PacGAN's 2 for points, 16 for images."""
    return 16 if isinstance(target, Images) else 2


def training_rows(target: Imitated, seed: int) -> Float[Tensor, "n d"]:
    """What the discriminator is shown as data: fixed for a seed."""
    if isinstance(target, Images):
        return rows(target, "train")
    size = target.size or DATA
    drawn = target.density.draw(size, np.random.default_rng([7, seed]))
    return torch.from_numpy(drawn).float()


@functools.lru_cache(maxsize=4)
def rows(target: Imitated, split: str) -> Float[Tensor, "n d"]:
    """A split as rows; images as numbers in [0, 1], each spread evenly over its grey value's cell.

    A discriminator would else know data by their being whole numbers.
    """
    if isinstance(target, Points):
        return target.split(split)
    whole = target.split(split).flatten(1).float()
    spread = torch.rand(whole.shape, generator=torch.Generator().manual_seed(0))
    return (whole + spread) / target.levels


def as_images(made: Float[Tensor, "n d"], target: Images) -> Float[Tensor, "n c h w"]:
    """Rows as the images' own values 0 ... levels - 1."""
    whole = (made * target.levels).floor().clamp(0, target.levels - 1)
    return whole.unflatten(1, target.shape)


@functools.lru_cache(maxsize=4)
def modes(target: Imitated) -> int:
    """How many there are to find: a mixture's, or classes of labelled images; 0 where unknown."""
    if isinstance(target, Images):
        return 0 if target.labels is None else int(target.labels["train"].max()) + 1
    return len(target.density.means) if isinstance(target.density, Modal) else 0


def near_modes(
    made: Float[Tensor, "n d"], target: Imitated
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The mode or class of each sample, and whether the sample is of high quality."""
    if isinstance(target, Images):
        assert target.labels is not None
        known = (rows(target, "validation"), target.labels["validation"])
        return nearest_classes(made, *known, rows(target, "test"))
    assert isinstance(target.density, Modal)
    sd = float(getattr(target.density, "sd")[0])  # noqa: B009 - mixtures have one
    return nearest_modes(made, target.density.means, sd)


def shares(made: Float[Tensor, "n d"], target: Imitated) -> Float[Tensor, " k"]:
    """Share of samples that lie nearest to each mode, good or not."""
    near, _ = near_modes(made, target)
    return torch.bincount(near, minlength=modes(target)) / len(made)


def recovered(made: Float[Tensor, "n d"], target: Imitated) -> dict[str, Estimate]:
    """Modes found, share of high quality, reverse KL; nothing where no modes are known."""
    k = modes(target)
    return recovery(*near_modes(made, target), k) if k else {}


def distance(made: Float[Tensor, "n d"], target: Imitated, split: str) -> Estimate:
    """A generator's loss: the sliced 2-Wasserstein distance of samples to held-out rows."""
    return sliced_wasserstein(rows(target, split)[: len(made)], made, projections=100)


def measures(made: Float[Tensor, "n d"], target: Imitated) -> dict[str, Estimate]:
    """What samples are worth beside as many held-out rows, in the rows' own coordinates."""
    real = rows(target, "validation")[: len(made)]
    few = made[: len(real)]
    found = {"energy_distance": energy_distance(real, few)} | prdc(real, few)
    return found | recovered(made, target)
