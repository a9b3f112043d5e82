"""Samples as one picture: a grid of images, or a density of points in the plane."""

import math
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.files import atomic_write
from allometry.report.png_images import enlarged, heat, pixels, png, side_by_side

MOST = 1024
"""Images in a grid, at most."""

SIDE = 400
"""Width of a picture in pixels, at least."""


def write_sheet(path: Path, values: Float[ndarray, "n ..."], levels: int | None = None) -> Path:
    """Write samples as a PNG file.

    Args:
        path: The file.
        values: Images (n, channels, height, width), or points of two numbers each.
        levels: Number of integer values of a pixel. Default: the range of the values.
    """
    picture = sheet(values, levels)
    fix = "Write samples of other kinds to a .npy file."
    require(picture is not None, "output", "be a .npy file for these samples", path.name, fix)
    assert picture is not None
    with atomic_write(path, "wb") as file:
        file.write(png(picture))
    return path


def sheet(
    values: Float[ndarray, "n ..."], levels: int | None = None
) -> UInt8[ndarray, "H W 3"] | None:
    """Samples as pixels; `None` if they are neither images nor points in the plane."""
    if values.ndim == 2 and values.shape[1] == 2:
        return _plane(values)
    images = values.ndim == 4 and values.shape[1] in (1, 3)
    return _grid(values, levels) if images else None


def _grid(values: ndarray, levels: int | None) -> UInt8[ndarray, "H W 3"]:
    low, high = (0.0, levels - 1.0) if levels else (float(values.min()), float(values.max()))
    few = (values[:MOST] - low) / max(high - low, 1e-12)
    shown = [pixels(image) for image in few]
    sheet = side_by_side(shown, 1, math.ceil(math.sqrt(len(shown))))
    return enlarged(sheet, max(1, SIDE // sheet.shape[1]))


def _plane(values: ndarray) -> UInt8[ndarray, "H W 3"]:
    """Counts of points in cells, darker for more; up to 1 % of each coordinate is cut off."""
    low, high = np.quantile(values, [0.005, 0.995], axis=0)
    margin = 0.05 * np.maximum(high - low, 1e-9)
    cells = 100
    ends = [(a, b) for a, b in zip(low - margin, high + margin, strict=True)]
    counts, *_ = np.histogram2d(values[:, 0], values[:, 1], bins=cells, range=ends)
    top = max(1.0, float(np.quantile(counts[counts > 0], 0.95)) if counts.any() else 1.0)
    return enlarged(heat(np.sqrt(counts.T[::-1] / top)), SIDE // cells)
