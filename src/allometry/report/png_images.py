"""Small pictures as PNG and SVG, embedded in a page as data URLs."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from allometry.report.theme import LIGHT


@final
@dataclass(frozen=True)
class Picture:
    """An image on the page: its name, its data URL and its caption."""

    name: str
    address: str
    caption: str


def png(pixels: UInt8[ndarray, "h w 3"]) -> bytes:
    """The pixels as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def address(data: bytes, kind: str) -> str:
    """The file as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _hex(colour: str) -> ndarray:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)


def heat(values: Float[ndarray, "h w"]) -> UInt8[ndarray, "h w 3"]:
    """Values from 0 (background) to 1 (dark colour) as pixels."""
    v = np.clip(values, 0, 1)[..., None]
    paper, full = _hex(LIGHT["paper"]), _hex(LIGHT["c1"])
    # Through the full colour at one half to a darkened one, for more visible steps.
    low, high = paper + (full - paper) * np.minimum(1, 2 * v), full * 0.35
    mixed = np.where(v < 0.5, low, full + (high - full) * (2 * v - 1))
    return mixed.round().astype(np.uint8)


def signed(values: Float[ndarray, "h w"]) -> UInt8[ndarray, "h w 3"]:
    """Values from -1 (one colour) through 0 (background) to 1 (another colour) as pixels."""
    v = np.clip(values, -1, 1)[..., None]
    paper, up, down = (_hex(LIGHT[name]) for name in ("paper", "c1", "c2"))
    full = np.where(v > 0, up, down)
    return (paper + (full - paper) * np.sqrt(np.abs(v))).round().astype(np.uint8)


def pixels(image: Float[ndarray, "c h w"]) -> UInt8[ndarray, "h w 3"]:
    """An image of values 0 to 1: RGB if it has three channels, else a heat map."""
    if image.shape[0] == 3:
        return (image.transpose(1, 2, 0) * 255).clip(0, 255).round().astype(np.uint8)
    return heat(image[0])


def side_by_side(
    panels: Sequence[UInt8[ndarray, "h w 3"]], gap: int = 4, columns: int | None = None
) -> UInt8[ndarray, "H W 3"]:
    """Panels of equal size in rows of `columns`, with gaps."""
    columns = len(panels) if columns is None else min(columns, len(panels))
    rows = -(-len(panels) // columns)
    h, w, _ = panels[0].shape
    shape = (rows * (h + gap) - gap, columns * (w + gap) - gap, 3)
    sheet = np.broadcast_to(_hex(LIGHT["paper"]).astype(np.uint8), shape).copy()
    for i, panel in enumerate(panels):
        y, x = (i // columns) * (h + gap), (i % columns) * (w + gap)
        sheet[y : y + h, x : x + w] = panel
    return sheet


def enlarged(pixels: UInt8[ndarray, "h w 3"], times: int) -> UInt8[ndarray, "H W 3"]:
    """Every pixel repeated to a square of `times` pixels."""
    return pixels.repeat(times, 0).repeat(times, 1)


def lines_svg(
    panels: Sequence[Sequence[Float[ndarray, "m 2"]]],
    boxes: Sequence[tuple[ndarray, ndarray]],
    size: int = 180,
    gap: int = 8,
) -> bytes:
    """Polylines in panels side by side, each panel in its own box of coordinates."""
    width = len(panels) * (size + gap) - gap
    colour = LIGHT["c1"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size}" '
        f'fill="none" stroke="{colour}" stroke-width="0.7">'
    ]
    for i, (lines, (low, high)) in enumerate(zip(panels, boxes, strict=True)):
        left = i * (size + gap)
        parts.append(
            f'<svg x="{left}" y="0" width="{size}" height="{size}" viewBox="0 0 {size} {size}">'
            f'<rect width="{size}" height="{size}" stroke="{LIGHT["muted"]}" opacity=".4"/>'
        )
        for line in lines:
            place = (line - low) / (high - low) * size
            x, y = place[:, 0], size - place[:, 1]
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
            parts.append(f'<polyline points="{path}"/>')
        parts.append("</svg>")
    return "".join([*parts, "</svg>"]).encode()
