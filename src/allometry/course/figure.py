"""What a lesson shows: a chart, or an animation with a slider. Notebooks display both."""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.errors import require
from allometry.report import theme
from allometry.report.theme import LIGHT, Spec


@final
@dataclass(frozen=True)
class Figure:
    """A chart with its caption.

    Args:
        spec: A Vega-Lite specification.
        caption: What the picture shows, also its accessible label.
    """

    spec: Spec
    caption: str = ""

    def svg(self) -> str:
        """The chart as SVG with a transparent background."""
        return theme.svg(self.spec)

    def png(self) -> bytes:
        """The chart as PNG on light paper."""
        return theme.png(self.spec | {"background": LIGHT["paper"]})

    def _repr_svg_(self) -> str:
        return theme.on_paper(self.svg())


WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 44
_HUES = ("c1", "c2", "c3", "c4", "c6")
_SCRIPT = """(function(){const r=document.currentScript.parentElement,F=JSON.parse(
r.querySelector('script[type="application/json"]').textContent),n=F.labels.length,
p=r.querySelectorAll('path[data-moves]'),s=r.querySelector('input'),b=r.querySelector('button'),
o=r.querySelector('output');let t=null;
function show(i){p.forEach((e,k)=>e.setAttribute('d',F.paths[k][i]));o.textContent=F.labels[i];
s.value=i;s.setAttribute('aria-valuetext',F.labels[i]);}
function stop(){clearInterval(t);t=null;b.textContent='Play';}
s.addEventListener('input',()=>{stop();show(+s.value);});
b.addEventListener('click',()=>{if(t){stop();return;}
if(+s.value>=n-1)show(0);b.textContent='Pause';
t=setInterval(()=>{const i=+s.value+1;if(i>=n){stop();return;}show(i);},F.pause);});
show(n-1);})();"""


@final
@dataclass(frozen=True)
class Film:
    """An animation in the plane: curves or points that move, a slider and a play button.

    It is one HTML fragment without requests to other files. Without scripts it shows its last
    frame.

    Args:
        moving: The frames of each group by name, each an array (n, 2).
        labels: The text of each frame, such as "step 300".
        x: Title of the x axis.
        y: Title of the y axis.
        caption: What the animation shows.
        still: Points (n, 2) that do not move, by name.
        lines: Names of the groups that are curves.
        box: Limits of x, then of y. Default: the range of the data.
        pause: Milliseconds between frames.
        most: Points of a group, at most.
        dot: Diameter of a point in pixels.
    """

    moving: Mapping[str, Sequence[Any]]
    labels: Sequence[str]
    x: str
    y: str
    caption: str = ""
    still: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    box: tuple[float, float, float, float] | None = None
    pause: int = 140
    most: int = 400
    dot: float = 4.5

    def __post_init__(self) -> None:
        counts = {len(frames) for frames in self.moving.values()}
        require(counts == {len(self.labels)}, "Film.labels", "name every frame", sorted(counts))

    def html(self) -> str:
        """The animation as an HTML fragment."""
        box, groups = self._limits(), [*(self.still or {}), *self.moving]
        paths = [[self._path(f, box, n in self.lines) for f in frames]
                 for n, frames in self.moving.items()]  # fmt: skip
        parts = [self._frame(box)]
        for name, points in (self.still or {}).items():
            path = self._path(points, box, name in self.lines)
            parts.append(_stroke(path, groups.index(name), self._width(name), False))
        for name, each in zip(self.moving, paths, strict=True):
            parts.append(_stroke(each[-1], groups.index(name), self._width(name), True))
        data = json.dumps({"labels": list(self.labels), "paths": paths, "pause": self.pause})
        label = html.escape(self.caption, quote=True)
        legend = "".join(_key(i, name) for i, name in enumerate(groups))
        return (
            f'<div class="film" style="max-width:{WIDTH}px"><svg viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'role="img" aria-label="{label}" style="width:100%;height:auto">'
            f"{''.join(parts)}</svg>"
            f'<div style="display:flex;gap:0.8em;align-items:center;font-size:14px">'
            f'<button type="button" style="min-width:5em;padding:0.2em 0.6em;border:1px solid '
            f'currentColor;border-radius:4px;cursor:pointer">Play</button>'
            f'<input type="range" min="0" max="{len(self.labels) - 1}" '
            f'value="{len(self.labels) - 1}" aria-label="frame" style="flex:1">'
            f'<output style="min-width:8em">{html.escape(self.labels[-1])}</output></div>'
            f'<div style="font-size:13px">{legend}</div>'
            f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script>'
            f"<script>{_SCRIPT}</script></div>"
        )

    def _repr_html_(self) -> str:
        return self.html()

    def _width(self, name: str) -> float | None:
        """The diameter of a group's points; `None` for a curve."""
        return None if name in self.lines else self.dot

    def _limits(self) -> tuple[float, float, float, float]:
        if self.box is not None:
            return self.box
        rows = np.concatenate(
            [np.asarray(f, float) for frames in self.moving.values() for f in frames]
            + [np.asarray(p, float) for p in (self.still or {}).values()]
        )
        low, high = rows.min(0), rows.max(0)
        pad = 0.05 * (high - low) + 1e-9
        return (low[0] - pad[0], high[0] + pad[0], low[1] - pad[1], high[1] + pad[1])

    def _path(self, points: Any, box: tuple[float, float, float, float], line: bool) -> str:
        rows = np.asarray(points, float)
        if not line:
            rows = rows[:: max(1, math.ceil(len(rows) / self.most))]
        inside = (rows[:, 0] >= box[0]) & (rows[:, 0] <= box[1])
        inside &= (rows[:, 1] >= box[2]) & (rows[:, 1] <= box[3])
        u, v = _pixels(rows, box)
        if line:
            clipped = zip(u, np.clip(v, TOP, HEIGHT - BOTTOM), strict=True)
            return "M" + "L".join(f"{a:.0f},{b:.0f}" for a, b in clipped)
        return "".join(f"M{a:.0f},{b:.0f}h0" for a, b in zip(u[inside], v[inside], strict=True))

    def _frame(self, box: tuple[float, float, float, float]) -> str:
        """Axes with ticks and titles."""
        ink, rule = f"var(--muted,{LIGHT['muted']})", f"var(--rule,{LIGHT['rule']})"
        right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
        text = f'font-size="12" fill="{ink}" font-family="sans-serif"'
        out = [f'<path d="M{LEFT},{floor}H{right}" stroke="{ink}" fill="none"/>']
        for value in _ticks(box[0], box[1]):
            at = _pixels(np.array([[value, box[2]]]), box)[0][0]
            out.append(f'<text x="{at:.0f}" y="{floor + 16}" text-anchor="middle" {text}>'
                       f"{value:g}</text>")  # fmt: skip
        for value in _ticks(box[2], box[3]):
            at = _pixels(np.array([[box[0], value]]), box)[1][0]
            out.append(f'<path d="M{LEFT},{at:.0f}H{right}" stroke="{rule}" fill="none"/>')
            out.append(f'<text x="{LEFT - 6}" y="{at + 4:.0f}" text-anchor="end" {text}>'
                       f"{value:g}</text>")  # fmt: skip
        middle = (TOP + floor) / 2
        out.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle" '
                   f"{text}>{html.escape(self.x)}</text>")  # fmt: skip
        out.append(f'<text transform="translate(13,{middle:.0f}) rotate(-90)" '
                   f'text-anchor="middle" {text}>{html.escape(self.y)}</text>')  # fmt: skip
        return "".join(out)


def _pixels(rows: ndarray, box: tuple[float, float, float, float]) -> tuple[ndarray, ndarray]:
    u = LEFT + (rows[:, 0] - box[0]) / (box[1] - box[0]) * (WIDTH - LEFT - RIGHT)
    v = HEIGHT - BOTTOM - (rows[:, 1] - box[2]) / (box[3] - box[2]) * (HEIGHT - TOP - BOTTOM)
    return u, v


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw)
    first = math.ceil(low / step)
    return [round(i * step, 10) for i in range(first, math.floor(high / step) + 1)]


def _stroke(path: str, i: int, dot: float | None, moves: bool) -> str:
    name = _HUES[i % len(_HUES)]
    colour = f"var(--{name},{LIGHT[name]})"
    line = dot is None
    look = 'stroke-width="2"' if line else f'stroke-width="{dot:g}" stroke-linecap="round"'
    mark = ' data-moves=""' if moves else ""
    opacity = 0.9 if line else 0.6
    return (
        f'<path{mark} d="{path}" stroke="{colour}" {look} stroke-opacity="{opacity}" fill="none"/>'
    )


def _key(i: int, name: str) -> str:
    hue = _HUES[i % len(_HUES)]
    return (
        f'<span style="margin-right:1.2em"><span style="color:var(--{hue},{LIGHT[hue]})">'
        f"&#9679;</span> {html.escape(name)}</span>"
    )
