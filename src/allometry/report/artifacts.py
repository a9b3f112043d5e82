"""What runs left to be looked at: weights, samples and pictures, checked before they are used."""

from pathlib import Path

import numpy as np
from numpy import ndarray

from allometry._core.arrays import read_arrays
from allometry._core.files import path_exists, path_inside


def weights(folder: Path, key: str) -> Path | None:
    """The file of a run's weights; `None` where it kept none."""
    path = path_inside(folder, "weights", f"{key}.safetensors")
    return path if path_exists(path) else None


def samples(folder: Path, key: str, kind: str = "samples") -> dict[str, ndarray] | None:
    """Samples along a training with their steps and what was kept beside them; `None` without.

    Args:
        folder: The study's.
        key: The run's.
        kind: The folder they are in, `samples` or `pictures`.

    Raises:
        StorageError: The file is damaged.
    """
    path = path_inside(folder, kind, f"{key}.npz")
    return read_arrays(path, _sound) if path_exists(path) else None


def _sound(arrays: dict[str, ndarray]) -> bool:
    """Whether these are numbers in shapes that can be drawn."""
    if not {"samples", "step"} <= set(arrays):
        return False
    drawn, step = arrays["samples"], arrays["step"]
    if step.ndim != 1 or not len(step) or len(drawn) != len(step) or not _some(drawn):
        return False
    if "real" in arrays and arrays["real"].shape[1:] != drawn.shape[2:]:
        return False
    if "shares" in arrays:
        shares, look = arrays["shares"], arrays.get("look", np.zeros(0))
        if shares.ndim != 2 or look.shape != shares.shape[:1] or not shares.size:
            return False
    # Samples may well leave the finite numbers; the steps they were drawn at may not.
    sheets = all(_some(array) for array in arrays.values() if array.ndim == 5)
    return sheets and bool(np.isfinite(step).all())


def _some(images: ndarray) -> bool:
    """Points of the plane or of space, or images of 1 or 3 channels, and not none of them."""
    points = images.ndim == 3 and images.shape[2] >= 1
    pictures = images.ndim == 5 and images.shape[2] in (1, 3)
    return bool(images.size) and (points or pictures)
