"""Draw the pictures of docs/diffusion.md: `python docs/make_diffusion.py [WEIGHTS]`.

`diffusion_paths.svg` shows how noise becomes two moons. WEIGHTS is the file of a masked diffusion
model of text that `allometry run TEXT --family masked_diffusion` has saved; `diffusion_text.svg`
shows how it fills a window.
"""

import html
import itertools
import sys
from pathlib import Path

import numpy as np
import torch

from allometry.models.diffusion import DiscreteDiffusion
from allometry.report import theme
from allometry.report.png_images import address, enlarged, heat, png
from allometry.study import recipes
from allometry.study.saved_models import load
from allometry.targets import Points, points

FIGURES = Path(__file__).parent / "figures"
FAMILIES = {"diffusion": "diffusion (EDM)", "flow_matching": "flow matching (straight)"}
SHARES = (0, 0.25, 0.5, 0.75, 1)
"""Of the way from noise to data, at which points are shown."""

POINTS, STEPS, REACH, CELLS = 20_000, 40, 2.6, 60
SIDE, GAP, TOP = 130, 8, 26


def states(family: str) -> list[np.ndarray]:
    """Standardised points of a trained model on their way from noise to data."""
    moons = Points(points.TwoMoons())
    (spec,) = getattr(recipes, family)(moons, [2e4], tokens=[153_600.0], seeds=1)
    training = spec().training()
    object.__setattr__(training, "curve_points", 1)
    training.alone()
    body = training.model.transforms[-1]
    angles = np.linspace(body.high, body.low, STEPS + 1)
    y = torch.randn(POINTS, 2, generator=torch.Generator().manual_seed(0))
    seen = [y.numpy()]
    with torch.no_grad():
        for start, end in itertools.pairwise(angles):
            first = body.turn(y, torch.full((POINTS,), start))
            second = body.turn(y + (end - start) * first, torch.full((POINTS,), end))
            y = y + (end - start) / 2 * (first + second)  # Heun's method
            seen.append(y.numpy())
    return [seen[round(share * STEPS)] for share in SHARES]


def density(rows: np.ndarray) -> str:
    """Counts of points in cells as a data address."""
    ends = [(-REACH, REACH)] * 2
    counts, *_ = np.histogram2d(rows[:, 0], rows[:, 1], bins=CELLS, range=ends)
    top = float(np.quantile(counts[counts > 0], 0.97))
    return address(png(enlarged(heat(np.sqrt(counts.T[::-1] / top)), 4)), "image/png")


def framed(width: float, height: float, parts: list[str]) -> str:
    """A picture with the light scheme's paper."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" '
        f'fill="{theme.LIGHT["ink"]}">'
    )
    paper = f'<rect width="{width}" height="{height}" fill="{theme.LIGHT["paper"]}"/>'
    return "\n".join([head, paper, *parts, "</svg>"])


def paths() -> str:
    """Two families by share of the way."""
    parts = []
    for j, (family, name) in enumerate(FAMILIES.items()):
        y = TOP + j * (SIDE + GAP + TOP)
        parts.append(f'<text x="4" y="{y - 8}">{name}: from noise to data</text>')
        for i, rows in enumerate(states(family)):
            place = f'x="{GAP + i * (SIDE + GAP)}" y="{y}" width="{SIDE}" height="{SIDE}"'
            parts.append(f'<image {place} href="{density(rows)}"/>')
    return framed(GAP + len(SHARES) * (SIDE + GAP), len(FAMILIES) * (SIDE + GAP + TOP), parts)


def decoding(weights: str) -> str:
    """A window at five moments of its decoding in random order."""
    saved = load(weights)
    model = saved.model
    if not isinstance(model, DiscreteDiffusion) or model.noise != "masked":
        raise SystemExit(f"{weights} must hold a masked diffusion model of text.")
    seen: list[torch.Tensor] = []
    model.transformer.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    last = model.sample(1, rng=torch.Generator().manual_seed(1))[0]
    seen.append(last)
    parts, muted = [], theme.LIGHT["muted"]
    for j, share in enumerate(SHARES):
        tokens = seen[round(share * (len(seen) - 1))].tolist()
        shown = [saved.vocabulary.decode([t]) if t != model.mask else "·" for t in tokens]
        text = html.escape("".join(shown).replace("\n", "↵"))
        y = 24 + 22 * j
        filled = sum(t != model.mask for t in tokens)
        parts.append(f'<text x="8" y="{y}" fill="{muted}">{filled} of {len(tokens)}</text>')
        parts.append(
            f'<text x="78" y="{y}" font-family="monospace" font-size="13" xml:space="preserve">'
            f"{text}</text>"
        )
    return framed(96 + 8 * model.window, 24 + 22 * len(SHARES), parts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:]:
        drawn = decoding(sys.argv[1])
        (FIGURES / "diffusion_text.svg").write_text(drawn, encoding="utf-8")
    else:
        (FIGURES / "diffusion_paths.svg").write_text(paths(), encoding="utf-8")
