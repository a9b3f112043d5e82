"""Pictures of codes: reconstructions, interpolations, traversals, and cells of a quantiser.

Letters: K codes, n points.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.spatial import Voronoi

from allometry.models.quantisation import shannon_bound
from allometry.report import formatting as fmt
from allometry.report import png_images, theme
from allometry.report.png_images import Picture
from allometry.report.theme import LIGHT, layer

CAPTIONS = {
    "reconstruction": "Held-out examples (above) and their reconstructions by the {name} (below).",
    "interpolation": "Interpolation between pairs of held-out examples in the code of the {name}, "
    "one pair per row.",
    "traversal": "One unit of the code of the {name} varied from -2.5 to 2.5 in each row, with "
    "the others fixed. The most informative units come first.",
}


def latent(arrays: Mapping[str, ndarray], levels: int, name: str) -> list[Picture]:
    """A sheet of images for each array (rows, columns, c, h, w) named in `CAPTIONS`."""
    drawn = []
    for kind, caption in CAPTIONS.items():
        if kind not in arrays:
            continue
        rows = arrays[kind] / (levels - 1)
        panels = [png_images.pixels(image) for row in rows for image in row]
        sheet = png_images.side_by_side(panels, 1, rows.shape[1])
        sheet = png_images.enlarged(sheet, max(1, 560 // sheet.shape[1]))
        address = png_images.address(png_images.png(sheet), "image/png")
        drawn.append(Picture(f"{kind}-{name}", address, caption.format(name=name)))
    return drawn


def cells(
    codes: Float[ndarray, "K 2"], low: Float[ndarray, " 2"], high: Float[ndarray, " 2"]
) -> list[Float[ndarray, "corners 2"]]:
    """The Voronoi cell of each code as a polygon, clipped to a box around the codes.

    Codes are mirrored at the box's four sides, so that the original cells end exactly there.
    """
    mirrored = [codes]
    for axis in (0, 1):
        for wall in (low, high):
            copy = codes.copy()
            copy[:, axis] = 2 * wall[axis] - copy[:, axis]
            mirrored.append(copy)
    diagram = Voronoi(np.concatenate(mirrored))
    return [
        diagram.vertices[diagram.regions[diagram.point_region[i]]].clip(low, high)
        for i in range(len(codes))
    ]


def voronoi(
    codes: Float[ndarray, "K 2"],
    sample: Float[ndarray, "n 2"],
    name: str = "quantiser",
    size: int = 420,
) -> Picture:
    """The cells of a vector quantiser in the plane, over points of its distribution.

    Args:
        codes: The codebook.
        sample: Points to show.
        name: The quantiser's name, for the caption.
        size: Longer side of the picture in pixels.
    """
    both = np.concatenate([codes, sample])
    low, high = both.min(0), both.max(0)
    margin = 0.04 * (high - low).max()
    low, high = low - margin, high + margin
    unit = size / (high - low).max()
    width, height = (high - low) * unit

    def place(points: ndarray) -> ndarray:
        return np.stack([(points[:, 0] - low[0]) * unit, (high[1] - points[:, 1]) * unit], 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<g fill="{LIGHT["muted"]}" opacity=".45">'
    ]
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r=".9"/>' for x, y in place(sample)]
    parts.append(f'</g><g fill="none" stroke="{LIGHT["c1"]}" stroke-width="1">')
    for cell in cells(codes, low, high):
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in place(cell))
        parts.append(f'<polygon points="{corners}"/>')
    parts.append(f'</g><g fill="{LIGHT["c1"]}">')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in place(codes)]
    return Picture(
        f"cells-{name}",
        png_images.address("".join([*parts, "</g></svg>"]).encode(), "image/svg+xml"),
        f"The {len(codes)} codes of the {name} and their Voronoi cells: a point is encoded as "
        "the code whose cell contains it.",
    )


def rate_distortion(
    codes: Float[ndarray, " m"], distortion: Float[ndarray, " m"], dim: int, entropy: float
) -> Picture:
    r"""Distortion of quantisers against their rate, over Shannon's lower bound.

    Args:
        codes: Number of codes K of each; its rate is $\log_2 K / d$ bits per dimension.
        distortion: Squared error per dimension of each on held-out points.
        dim: d.
        entropy: Entropy of the distribution, in nats.

    References: `shannon1959`; `cover2006` section 10.3.
    """
    rate = np.log2(codes) / dim
    bound = np.array([shannon_bound(entropy, r, dim) for r in rate])
    data = pd.DataFrame({"rate": rate, "y": distortion, "K": codes})
    data["tooltip"] = [f"{k:.0f} codes: {d:.3g}" for k, d in zip(codes, distortion, strict=True)]
    line = pd.DataFrame({"rate": rate, "y": bound}).sort_values("rate")
    x = {"field": "rate", "type": "quantitative", "axis": {"title": "Rate, bits per dimension"}}
    y = theme.log_axis("y", *theme.extent([*distortion, *bound]), fmt.significant, None)
    colour = {"value": LIGHT["c1"]}
    marks = [
        layer(line, "line", {"strokeDash": [5, 3], "color": LIGHT["muted"]}, x=x, y=y),
        layer(
            data, "point", {"filled": True, "size": 50}, x=x, y=y, color=colour, tooltip="tooltip"
        ),
    ]
    chart = theme.styled(marks, "Squared error per dimension", 560, 300)
    best = float((distortion / bound).min())
    return Picture(
        "distortion-against-rate",
        png_images.address(theme.on_paper(theme.svg(chart)).encode(), "image/svg+xml"),
        "Quantisers (dots) over Shannon's lower bound (dashed). The nearest has "
        f"{best:.2f} times the distortion of the bound.",
    )
