"""Corruptions of the samples of a perfect model, for the audit and for tests."""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from allometry.measure.sample_inputs import subset

_IMAGE_SIDE = 4


def is_images(x: Float[Tensor, "n ..."]) -> bool:
    """Whether rows are images large enough to shift."""
    return x.ndim in (3, 4) and min(x.shape[-2:]) >= _IMAGE_SIDE


def noisy(x: Float[Tensor, "n ..."], spread: float, rng: torch.Generator) -> Tensor:
    """The rows plus independent Gaussian noise."""
    return x + spread * torch.randn(x.shape, generator=rng, dtype=x.dtype)


def drop_modes(
    x: Float[Tensor, "n ..."],
    modes: Int[Tensor, " n"],
    rows: int,
    share: float,
    rng: torch.Generator,
) -> Tensor:
    """Rows of the modes that remain when the last `share` of them is dropped.

    Fewer than `rows` if there are no more: rows are not repeated, as that is another fault.
    """
    names = modes.unique()
    kept = names[: len(names) - max(1, round(share * len(names)))]
    return subset(x[torch.isin(modes, kept)], rows, rng)


def collapsed(
    x: Float[Tensor, "n ..."], distinct: int, spread: float, rng: torch.Generator
) -> Tensor:
    """A few rows repeated, with a little noise."""
    chosen = torch.randint(distinct, (len(x),), generator=rng)
    return noisy(subset(x, distinct, rng)[chosen], spread, rng)


def frozen(x: Float[Tensor, "n ..."], reference: Float[Tensor, "m ..."]) -> Tensor:
    """Every second principal component with variance fixed at its mean."""
    flat = reference.flatten(1).double()
    mean = flat.mean(0)
    a = flat - mean
    values, vectors = torch.linalg.eigh(a.T @ a)
    order = values.argsort(descending=True)
    used = order[: int((values > 1e-9 * values.max()).sum())]
    fixed = vectors[:, used[1::2]]
    b = x.flatten(1).double() - mean
    return (mean + b - b @ fixed @ fixed.T).reshape(x.shape).to(x.dtype)


def turned(x: Float[Tensor, "n ..."], *, degrees: float, pixels: int) -> Tensor:
    """Images rotated and shifted; rows of numbers rotated in the first plane, shifted along it."""
    angle = math.radians(degrees)
    c, s = math.cos(angle), math.sin(angle)
    if not is_images(x):
        out = x.flatten(1).clone()
        if out.shape[1] >= 2:
            mean = out[:, :2].mean(0)
            plane = torch.tensor([[c, -s], [s, c]], dtype=x.dtype)
            out[:, :2] = mean + (out[:, :2] - mean) @ plane.T
        out[:, 0] += 0.1 * pixels * float(out.std())
        return out.reshape(x.shape)
    images = x if x.ndim == 4 else x[:, None]
    shift = -2 * pixels / images.shape[-1]
    matrix = torch.tensor([[c, -s, shift], [s, c, 0.0]], dtype=x.dtype).expand(len(x), 2, 3)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    moved = functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return moved.reshape(x.shape)


def found_modes(x: Float[Tensor, "n ..."], modes: int = 20) -> Int[Tensor, " n"]:
    """Modes of data without labels: k-means clusters."""
    from sklearn.cluster import MiniBatchKMeans

    rows = np.ascontiguousarray(x.flatten(1).double().numpy())
    model = MiniBatchKMeans(
        min(modes, len(rows) // 5), n_init="auto", random_state=0, batch_size=1024
    )
    return torch.as_tensor(model.fit_predict(rows)).long()
