"""Charts of adversarial training: samples, modes, costs, the discriminator, phase portraits.

All are Vega-Lite specifications as plain mappings; `theme.svg` renders them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from allometry.report import artifacts, theme
from allometry.report.run_groups import RunsLike
from allometry.report.theme import LIGHT, Spec, layer
from allometry.train import checkpoint
from allometry.train.game import (
    Game,
    alternating,
    dirac,
    extragradient,
    simultaneous,
    unrolled,
)
from allometry.train.game.differentiable import play
from allometry.train.gan_costs import MINIMAX, NON_SATURATING, WASSERSTEIN
from allometry.train.restore import restore

TALL = 0.6
"""Ratio of height to width of a chart of the plane."""


def samples_along(
    steps: Sequence[int] | np.ndarray,
    samples: np.ndarray,
    real: np.ndarray,
    width: int = 960,
    most: int = 4,
) -> Spec:
    """Samples of a generator at several steps over the data, one panel per step.

    Args:
        steps: Steps of the generator.
        samples: Samples (steps, n, 2).
        real: Data (n, 2).
        width: Width of the whole row in pixels.
        most: Number of panels, at most.
    """
    chosen = np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))
    chosen = chosen[-2:] if width < 500 else chosen
    size = max(120, width // len(chosen) - 40)
    low, high = real.min(0), real.max(0)
    margin = 0.25 * (high - low)
    x = _axis("x", (low - margin)[0], (high + margin)[0])
    y = _axis("y", (low - margin)[1], (high + margin)[1])
    panels = []
    for i in chosen:
        layers = [
            layer(_points(real), "point", _dot("c2", 10, 0.35), x=x, y=y),
            layer(_points(samples[i]), "point", _dot("c1", 8, 0.6), x=x, y=y),
        ]
        title = f"step {int(steps[i]):,}"
        panels.append({"layer": layers, "title": title, "width": size, "height": size})
    whole = theme.styled([], "", width, size)
    kept = {k: v for k, v in whole.items() if k not in ("layer", "width", "height", "title")}
    return kept | {"hconcat": panels}


def costs(curve: pd.DataFrame, width: int = 720) -> Spec:
    """The cost of each player during training."""
    names = {"cost_generator": "generator", "cost_discriminator": "discriminator"}
    data = curve[["step", *names]].rename(columns=names).melt(
        "step", var_name="player", value_name="cost"
    )  # fmt: skip
    x = _log("step", curve["step"], "Steps of the generator")
    lines = layer(
        *(data, "line", {"strokeWidth": 2, "point": True}),
        x=x,
        y={"field": "cost", "type": "quantitative", "axis": {"title": None}},
        color=_colour("player", list(names.values())),
    )
    return theme.styled([lines], "Cost of each player", width, round(width * 0.4))


def modes_along(curve: pd.DataFrame, most: int, width: int = 720, noun: str = "mode") -> Spec:
    """Number of modes (or classes, by `noun`) with samples during training."""
    y = {"field": "modes", "type": "quantitative", "scale": {"domain": [0, most]},
         "axis": {"title": None}}  # fmt: skip
    look = {"strokeWidth": 2, "point": True, "color": LIGHT["c1"], "interpolate": "step-after"}
    x = _log("step", curve["step"], "Steps of the generator")
    lines = layer(curve[["step", "modes"]], "line", look, x=x, y=y)
    title = f"{'Modes' if noun == 'mode' else 'Classes'} found, of {most}"
    return theme.styled([lines], title, width, round(width * 0.4))


def modes_over_time(
    looks: np.ndarray, shares: np.ndarray, width: int = 720, noun: str = "mode"
) -> Spec:
    """Share of samples at each mode during training: one row per mode, one column per step.

    A generator that has found all modes fills all rows evenly. One that cycles shows patches that
    move between rows.

    Args:
        looks: Steps of the generator.
        shares: Share (steps, k) of samples whose nearest mode is k.
        width: Width in pixels.
        noun: The name of a row, `mode` or `class`.
    """
    k = shares.shape[1]
    edges = np.concatenate([[2 * looks[0] - looks[1]] if len(looks) > 1 else [0], looks])
    when, which = np.meshgrid(np.arange(len(looks)), np.arange(k), indexing="ij")
    # Classes keep the numbers of their labels; modes are numbered from 1.
    first = 1 if noun == "mode" else 0
    data = pd.DataFrame({"x": edges[when.ravel()], "x2": edges[when.ravel() + 1],
                         "y": which.ravel() + first - 0.5, "y2": which.ravel() + first + 0.5,
                         "share": np.minimum(shares.ravel() * k, 2.0)})  # fmt: skip
    x = _axis("x", float(max(0, edges[0])), float(edges[-1]), "Steps of the generator")
    every = max(1, -(-k // 10))
    y = _axis("y", first - 0.5, first + k - 0.5) | {
        "axis": {"title": None, "grid": False, "values": list(range(first, first + k, every))}
    }
    colour = {
        "field": "share",
        "type": "quantitative",
        "scale": {
            "range": [LIGHT["paper"], LIGHT["c1"]],
            "domain": [0, 2],
            "interpolate": "rgb",
        },
        "legend": {"title": "share over an even one", "values": [0, 1, 2]},
    }
    tiles = layer(data, "rect", {"aria": False, "clip": True}, x=x, y=y, color=colour)
    tiles["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return theme.styled([tiles], f"Number of the {noun}", width, round(width * 0.4))


def smallest_game(wasserstein: bool, width: int = 720, *, minimax: bool = False) -> Spec:
    """The phase portrait of a study's costs in the Dirac-GAN, with paths of four optimisers."""
    game = dirac(WASSERSTEIN if wasserstein else MINIMAX if minimax else NON_SATURATING)
    start = (torch.tensor([1.2]), torch.tensor([0.0]))
    rate = 0.2 if wasserstein else 0.5
    paths = {
        name: play(game, start, update, 60)[1]
        for name, update in (
            ("simultaneous", simultaneous(rate)),
            ("alternating", alternating(rate)),
            ("extragradient", extragradient(rate)),
            ("unrolled 1", unrolled(rate, 1)),
        )
    }
    wide = 2.4 / TALL
    return portrait(game, (-wide, wide, -2.4, 2.4), paths, width, height=round(TALL * width))


def discriminator_field(
    judge: Callable[[Tensor], Tensor],
    real: np.ndarray,
    samples: np.ndarray,
    width: int = 720,
    cells: int = 60,
) -> Spec:
    """The log density ratio log p/q of a discriminator over the plane, with data and samples.

    Args:
        judge: The discriminator: points (n, 2) to logits (n,).
        real: Data (n, 2).
        samples: Samples of the generator (n, 2).
        width: Width in pixels.
        cells: Number of cells from bottom to top.
    """
    low, high = real.min(0), real.max(0)
    margin = 0.25 * (high - low)
    low, high = low - margin, high + margin
    # The frame is wider than the data; more of the plane is shown instead of stretching it.
    across = max(0.0, (high - low)[1] / TALL - (high - low)[0]) / 2
    more = np.array([across, 0.0])
    low, high = low - more, high + more
    many = (round(cells / TALL), cells)
    step = (high - low) / many
    axes = [low[i] + step[i] * (np.arange(many[i]) + 0.5) for i in (0, 1)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), 2).reshape(-1, 2)
    with torch.no_grad():
        logits = judge(torch.from_numpy(at).float()).numpy().astype(float)
    data = pd.DataFrame({"x": at[:, 0] - step[0] / 2, "x2": at[:, 0] + step[0] / 2,
                         "y": at[:, 1] - step[1] / 2, "y2": at[:, 1] + step[1] / 2,
                         "ratio": logits.clip(-4, 4)})  # fmt: skip
    x, y = _axis("x", low[0], high[0]), _axis("y", low[1], high[1])
    colour = {
        "field": "ratio",
        "type": "quantitative",
        "scale": {"scheme": "blueorange", "domain": [-4, 4]},
        "legend": {"title": "log p/q"},
    }
    tiles = layer(data, "rect", {"opacity": 0.8, "aria": False}, x=x, y=y, color=colour)
    tiles["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    marks = [
        tiles,
        layer(_points(real), "point", _dot("ink", 6, 0.5), x=x, y=y),
        layer(_points(samples), "point", _dot("c1", 8, 0.8), x=x, y=y),
    ]
    return theme.styled(
        marks, "Log density ratio of the discriminator", width, round(TALL * width)
    )


def portrait(
    game: Game,
    box: tuple[float, float, float, float],
    paths: dict[str, list[tuple[Tensor, ...]]] | None = None,
    width: int = 480,
    arrows: int = 15,
    height: int | None = None,
) -> Spec:
    """The phase portrait of a game of two players with one parameter each, and paths in it.

    Args:
        game: A game of two players.
        box: Lower and upper limit of the first, then of the second parameter.
        paths: Paths by name, as `train.game.differentiable.play` returns them.
        width: Width in pixels.
        arrows: Number of arrows along each axis.
        height: Height in pixels. Default: the width.
    """
    u, v = np.linspace(*box[:2], arrows), np.linspace(*box[2:], arrows)
    at = torch.tensor(np.stack(np.meshgrid(u, v, indexing="ij"), 2).reshape(-1, 2))
    a, b = game.field((at[:, :1], at[:, 1:]))
    slope = -torch.cat([a, b], 1).numpy()
    longest = float(np.linalg.norm(slope, axis=1).max()) or 1.0
    step = min(box[1] - box[0], box[3] - box[2]) / arrows
    ends = at.numpy() + 0.9 * step * slope / longest
    data = pd.DataFrame({"x": at[:, 0], "y": at[:, 1], "x2": ends[:, 0], "y2": ends[:, 1]})
    x, y = _axis("x", *box[:2], "First player's parameter"), _axis("y", *box[2:])
    field = layer(data, "rule", {"color": LIGHT["muted"], "aria": False}, x=x, y=y)
    field["encoding"] |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    heads = layer(data.drop(columns=["x", "y"]).rename(columns={"x2": "x", "y2": "y"}), "point",
                  _dot("muted", 8, 1.0), x=x, y=y)  # fmt: skip
    marks = [field, heads]
    names = list(paths or {})
    rows = [
        {"x": float(p[0]), "y": float(p[1]), "order": i, "path": name}
        for name, path in (paths or {}).items()
        for i, p in enumerate(path)
    ]
    if rows:
        line = layer(pd.DataFrame(rows), "line", {"strokeWidth": 1.8, "clip": True}, x=x, y=y,
                     color=_colour("path", names))  # fmt: skip
        line["encoding"] |= {"order": {"field": "order"}}
        marks.append(line)
    return theme.styled(marks, "Second player's parameter", width, height or width)


@final
@dataclass(frozen=True)
class BestRun:
    """The adversarial run of lowest loss of a family: curve, saved arrays, number of modes."""

    family: str
    curve: pd.DataFrame
    left: dict[str, Any]
    modes: int

    @property
    def plane(self) -> bool:
        """Whether its samples are points of the plane."""
        return bool(self.left["samples"].ndim == 3 and self.left["samples"].shape[2] == 2)


def best(runs: RunsLike, folder: Path) -> list[BestRun]:
    """The run of lowest loss of each family among those with saved samples, best first."""
    frame = runs.frame().sort_values("loss")
    runs_by_family: dict[str, BestRun] = {}
    for row in frame[frame["status"] == "done"].to_dict("records"):
        family = str(row["family"])
        left = kept(folder, str(row["key"])) if family not in runs_by_family else None
        if left is not None:
            curves = runs.curves()
            own = curves[curves["key"] == row["key"]]
            modes = left["shares"].shape[1] if "shares" in left else 0
            runs_by_family[family] = BestRun(family, own, left, modes)
    return list(runs_by_family.values())


def kept(folder: Path, key: str) -> dict[str, Any] | None:
    """Samples and discriminator that an adversarial run saved; `None` if it saved none."""
    path = artifacts.weights(folder, key)
    arrays = artifacts.samples(folder, key) if path is not None else None
    if path is None or arrays is None:
        return None
    tensors, about = checkpoint.read_weights(path)
    if "discriminator" not in about:
        return None
    own = {k.removeprefix("discriminator."): v for k, v in tensors.items()
           if k.startswith("discriminator.")}  # fmt: skip
    judge = restore(about["discriminator"], own, path).float()
    if "real" not in arrays:
        return None
    pack = int(getattr(judge, "pack", 1))

    def logits(x: Tensor) -> Tensor:
        # PacGAN's discriminator takes packs of samples: here one point, repeated.
        return judge(x.repeat_interleave(pack, 0)) / pack

    return arrays | {"judge": logits}


def _points(rows: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"x": rows[:, 0].astype(float), "y": rows[:, 1].astype(float)})


def _dot(colour: str, size: int, opacity: float) -> Spec:
    look = {"filled": True, "size": size, "opacity": opacity, "clip": True, "aria": False}
    return look | {"color": LIGHT[colour]}


def _axis(
    field: str, low: float | np.floating, high: float | np.floating, title: str | None = None
) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": [float(low), float(high)], "nice": False},
        "axis": {"title": title, "tickCount": 4},
    }


def _log(field: str, values: Any, title: str) -> Spec:
    low, high = theme.extent(values)
    return theme.log_axis(field, low, high, lambda v: f"{v:,.0f}", title)


def _colour(field: str, names: list[str]) -> Spec:
    hues = [LIGHT[theme.FAMILY_COLOURS[i % len(theme.FAMILY_COLOURS)]] for i in range(len(names))]
    scale = {"domain": names, "range": hues}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": None}}
