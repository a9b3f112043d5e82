"""Files that runs have saved: weights, samples and pictures, validated before use."""

from pathlib import Path

import numpy as np
from numpy import ndarray

from allometry._core.arrays import read_arrays
from allometry._core.files import path_exists, path_inside


def weights(folder: Path, key: str) -> Path | None:
    """The file of a run's weights; `None` if it saved none."""
    path = path_inside(folder, "weights", f"{key}.safetensors")
    return path if path_exists(path) else None


def samples(folder: Path, key: str, kind: str = "samples") -> dict[str, ndarray] | None:
    """Samples during training with their steps and the other saved arrays; `None` without.

    Args:
        folder: The study's folder.
        key: The run's key.
        kind: The subfolder, `samples` or `pictures`.

    Raises:
        StorageError: The file is damaged.
    """
    path = path_inside(folder, kind, f"{key}.npz")
    return read_arrays(path, _valid) if path_exists(path) else None


def _valid(arrays: dict[str, ndarray]) -> bool:
    """Whether the arrays have shapes that can be drawn."""
    if not {"samples", "step"} <= set(arrays):
        return False
    samples, step = arrays["samples"], arrays["step"]
    if step.ndim != 1 or not len(step) or len(samples) != len(step) or not _drawable(samples):
        return False
    if "real" in arrays and arrays["real"].shape[1:] != samples.shape[2:]:
        return False
    if "shares" in arrays:
        shares, look = arrays["shares"], arrays.get("look", np.zeros(0))
        if shares.ndim != 2 or look.shape != shares.shape[:1] or not shares.size:
            return False
    # Samples may be infinite or NaN; their steps may not.
    sheets = all(_drawable(array) for array in arrays.values() if array.ndim == 5)
    return sheets and bool(np.isfinite(step).all())


def _drawable(images: ndarray) -> bool:
    """Whether these are points, or images of 1 or 3 channels, and at least one of them."""
    points = images.ndim == 3 and images.shape[2] >= 1
    pictures = images.ndim == 5 and images.shape[2] in (1, 3)
    return bool(images.size) and (points or pictures)
