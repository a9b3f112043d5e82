"""Pictures of arrays whose darkness is opacity, so that they suit light and dark pages."""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import Float
from numpy import ndarray

POSITIVE, NEGATIVE = (38, 119, 187), (222, 120, 32)
"""Blue and orange of middling brightness, visible on white and on black."""


def alpha_png(values: Float[ndarray, "h w"], *, signed: bool = False) -> str:
    """A PNG as a data URL: opacity is the value relative to the largest.

    Args:
        values: Row 0 is the top. Without `signed` negative values are transparent.
        signed: Negative values in a second colour.

    Example:
        >>> import numpy as np
        >>> from allometry.course.raster import alpha_png
        >>> alpha_png(np.eye(2))[:22]
        'data:image/png;base64,'
    """
    values = np.nan_to_num(np.asarray(values, float), posinf=0.0, neginf=0.0)
    size = np.abs(values) if signed else values.clip(0)
    shade = size / (size.max() or 1.0)
    colours = np.where(values[..., None] < 0, NEGATIVE, POSITIVE) if signed else POSITIVE
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = colours
    pixels[..., 3] = np.round(255 * shade)
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode()


def _png(pixels: ndarray) -> bytes:
    h, w, _ = pixels.shape
    rows = np.concatenate([np.zeros((h, 1), np.uint8), pixels.reshape(h, -1)], 1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", w, h, 8, 6, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
