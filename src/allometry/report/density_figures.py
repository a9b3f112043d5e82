"""Pictures of densities: heat maps along the layers of a flow, deformed grids, samples."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import nn

from allometry._core.errors import AllometryError, InputError
from allometry._core.registry import name_of
from allometry._core.spec import Spec
from allometry.models import PixelCNN, flows
from allometry.models.autoencoders import VAE
from allometry.report import artifacts, code_figures, flow_evolution, png_images
from allometry.report import formatting as fmt
from allometry.report.png_images import Picture
from allometry.report.run_groups import RunsLike, about, finished, table
from allometry.study.recipes.density_runs import build_density
from allometry.targets.points import Density
from allometry.train import checkpoint
from allometry.train.restore import named, restore

CELLS = 90
"""Cells along a side of a heat map."""

MOST_STAGES = 5
MOST_CELLS = 130


def pictures(runs: RunsLike) -> list[Picture]:
    """All pictures of a study of points, images or a table: the best run of each family."""
    info = about(runs)
    target, folder = info["target"], Path(str(info["folder"]))
    frame = finished(table(runs))
    drawn = _quantisers(folder, frame, target)
    for family, group in frame.groupby("family", sort=False):
        for key in group.sort_values("loss")["key"]:
            weights = artifacts.weights(folder, str(key))
            model = _loaded(weights) if weights is not None else None
            name = fmt.family(str(family))
            if model is not None:
                drawn += _of_run(folder, str(key), model, target, name)
                break
            images_only = target["kind"] == "images"
            saved = artifacts.samples(folder, str(key)) if images_only else None
            if saved is not None and saved["samples"].ndim == 5:
                levels = int(target["levels"])
                drawn.append(_image_samples(saved["samples"], saved["step"], levels, name))
                break
    return drawn


def _quantisers(folder: Path, frame: pd.DataFrame, target: dict[str, Any]) -> list[Picture]:
    """Distortion against rate; in the plane also the Voronoi cells of a small codebook."""
    own = frame[frame["family"] == "quantiser"].sort_values(["N", "loss"])
    if target["kind"] != "points" or not len(own):
        return []
    density = _density(target)
    best = own.groupby("N")["loss"].min()
    found = (best.index.to_numpy(float) / density.dim, best.to_numpy(float))
    drawn = [code_figures.rate_distortion(*found, density.dim, density.entropy.value)]
    few = own[own["N"] <= 2 * MOST_CELLS]
    if density.dim == 2 and len(few):
        key = few[few["N"] == few["N"].max()]["key"].iloc[0]
        weights = artifacts.weights(folder, str(key))
        if weights is not None:
            book = checkpoint.read_weights(weights)[0]["codes"].double().numpy()
            sample = density.draw(1500, np.random.default_rng(0))
            drawn.append(code_figures.voronoi(book, sample))
    return drawn


def _density(target: dict[str, Any]) -> Density:
    """The density named in a study's file; it must be registered."""
    try:
        return Spec.from_dict(target.get("density"), "density")()
    except AllometryError:
        raise
    except Exception as error:  # a constructor may fail in any way on invalid arguments
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise InputError(
            f"study.json must describe the density of its points; got nonsense ({reason})."
        ) from error


def _loaded(path: Path) -> nn.Module | None:
    """The flow or PixelCNN in a file of weights; `None` if it is another kind of model."""
    tensors, info = checkpoint.read_weights(path)
    if "model" not in info or named(info["model"], path) not in map(
        name_of, (build_density, PixelCNN)
    ):
        return None
    return restore(info["model"], tensors, path)


def _of_run(
    folder: Path, key: str, model: nn.Module, target: dict[str, Any], name: str
) -> list[Picture]:
    drawn: list[Picture] = []
    if target["kind"] == "points" and isinstance(model, flows.Flow) and model.dim == 2:
        density = _density(target)
        drawn.append(_heat_maps(model, density, name))
        drawn.append(_stages(model, density, name))
        drawn.append(_grid(model, density, name))
        field = flow_evolution.field_of(model)
        drawn += [] if field is None else [flow_evolution.evolution(field, name)]
    saved = artifacts.samples(folder, key, "pictures")
    if saved is not None:
        samples, steps = saved["samples"], saved["step"]
        latent = {k: saved[k] for k in code_figures.CAPTIONS if k in saved and saved[k].ndim == 5}
        if samples.ndim == 5:
            drawn.append(_image_samples(samples, steps, int(target["levels"]), name))
            drawn += code_figures.latent(latent, int(target["levels"]), name)
        elif samples.shape[-1] == 2 and target["kind"] == "points":
            drawn.append(_point_samples(samples, steps, _density(target), name))
    if isinstance(model, VAE):
        drawn.append(
            Picture(
                f"plates-{name}",
                png_images.address(model.directed().diagram().encode(), "image/svg+xml"),
                f"The {name} as a directed graphical model: a code z for each of the N examples "
                "x, which are observed (shaded).",
            )
        )
    return drawn


def _cells(low: ndarray, high: ndarray) -> torch.Tensor:
    """Midpoints of the cells of a box, top row first."""
    u = (np.arange(CELLS) + 0.5) / CELLS
    x, y = low[0] + u * (high[0] - low[0]), high[1] - u * (high[1] - low[1])
    return torch.from_numpy(np.stack(np.meshgrid(x, y), 2).reshape(-1, 2))


def _shown(p: Float[ndarray, " n"], top: float) -> UInt8[ndarray, "h w 3"]:
    # The square root makes thin tails visible beside sharp peaks.
    return png_images.heat(np.sqrt(np.clip(p / top, 0, 1)).reshape(CELLS, CELLS))


@torch.no_grad()
def _heat_maps(model: flows.Flow, density: Density, name: str) -> Picture:
    """The true density and the flow's."""
    low, high = density.box
    cells = _cells(low, high)
    true = density.log_prob(cells).exp().numpy()
    dtype = next(model.parameters()).dtype
    learnt = model.log_prob(cells.to(dtype)).double().exp().numpy()
    top = float(np.quantile(true[true > 0], 0.98)) if (true > 0).any() else 1.0
    sheet = png_images.side_by_side(
        [png_images.enlarged(_shown(p, top), 3) for p in (true, learnt)]
    )
    return Picture(
        f"density-{name}",
        png_images.address(png_images.png(sheet), "image/png"),
        f"The true density (left) and that of the best {name} (right), on the same scale.",
    )


def _picked(stages: list[Any]) -> list[int]:
    many = min(MOST_STAGES, len(stages))
    return sorted({round(i * (len(stages) - 1) / (many - 1)) for i in range(many)})


@torch.no_grad()
def _stages(model: flows.Flow, density: Density, name: str) -> Picture:
    """The distribution of noise after none, some and all of the layers."""
    rng = torch.Generator().manual_seed(0)
    dtype = next(model.parameters()).dtype
    noise = torch.randn(40_000, 2, generator=rng, dtype=dtype)
    stages = [x.double().numpy() for x in model.backward_stages(noise)]
    panels = []
    for i in _picked(stages):
        low, high = _span(stages[i])
        counts, _, _ = np.histogram2d(
            *stages[i].T, bins=CELLS, range=[(low[0], high[0]), (low[1], high[1])]
        )
        field = counts.T[::-1]
        top = max(1.0, float(np.quantile(field[field > 0], 0.98)))
        panels.append(png_images.enlarged(_shown(field.flatten(), top), 2))
    return Picture(
        f"stages-{name}",
        png_images.address(png_images.png(png_images.side_by_side(panels)), "image/png"),
        f"From noise to data: the density before, between and after the layers of the {name}. "
        "Each panel has its own scale.",
    )


def _span(x: ndarray) -> tuple[ndarray, ndarray]:
    low, high = np.quantile(x, 0.001, axis=0), np.quantile(x, 0.999, axis=0)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


@torch.no_grad()
def _grid(model: flows.Flow, density: Density, name: str) -> Picture:
    """A square grid in noise space, deformed by the layers."""
    dtype = next(model.parameters()).dtype
    ends, fine = np.linspace(-2.5, 2.5, 17), np.linspace(-2.5, 2.5, 121)
    lines = [np.stack([np.full_like(fine, a), fine], 1) for a in ends]
    lines += [line[:, ::-1] for line in lines]
    points = torch.from_numpy(np.concatenate(lines)).to(dtype)
    stages = [x.double().numpy() for x in model.backward_stages(points)]
    panels, boxes = [], []
    for i in _picked(stages):
        panels.append(np.split(stages[i], len(lines)))
        low, high = stages[i].min(0), stages[i].max(0)
        margin = 0.04 * (high - low)
        boxes.append((low - margin, high + margin))
    return Picture(
        f"grid-{name}",
        png_images.address(png_images.lines_svg(panels, boxes), "image/svg+xml"),
        f"A square grid in noise space, deformed by the layers of the {name}.",
    )


def _point_samples(samples: ndarray, steps: ndarray, density: Density, name: str) -> Picture:
    low, high = density.box
    panels = []
    for i in _picked(list(steps)):
        place = ((samples[i] - low) / (high - low) * 180).astype(int)
        inside = ((place >= 1) & (place < 179)).all(1)
        field = np.zeros((180, 180))
        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
            field[179 - place[inside, 1] + dy, place[inside, 0] + dx] = 0.55
        panels.append(png_images.heat(field))
    when = fmt.listed([f"{int(steps[i]):,}" for i in _picked(list(steps))])
    return Picture(
        f"samples-{name}",
        png_images.address(png_images.png(png_images.side_by_side(panels)), "image/png"),
        f"Samples of the {name} during training, after {when} steps, from the same noise.",
    )


def _image_samples(samples: ndarray, steps: ndarray, levels: int, name: str) -> Picture:
    panels = []
    for i in _picked(list(steps)):
        few = samples[i][:16] / (levels - 1)
        side = math.isqrt(len(few))
        shown = [png_images.pixels(image) for image in few]
        panels.append(png_images.side_by_side(shown, 1, side))
    times = max(1, 190 // panels[0].shape[1])
    panels = [png_images.enlarged(p, times) for p in panels]
    when = fmt.listed([f"{int(steps[i]):,}" for i in _picked(list(steps))])
    return Picture(
        f"samples-{name}",
        png_images.address(png_images.png(png_images.side_by_side(panels, 24)), "image/png"),
        f"Samples of the {name} during training, after {when} steps, from the same noise.",
    )
