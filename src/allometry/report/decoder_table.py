"""Decoders side by side: what one model writes under each, and how surprised it is by it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, final

import jinja2
import numpy as np
import pandas as pd
import torch

from allometry import decode
from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder
from allometry.decode.sampling import Strategies
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.page import bound, page_policy, page_style, template
from allometry.report.theme import LIGHT, Spec, layer
from allometry.study import Generation, SavedModel

STRATEGIES: dict[str, Strategies] = {
    "plain sampling": decode.plain,
    "greedy": decode.greedy,
    "temperature 0.7": decode.temperature(0.7),
    "top-k 5": decode.top_k(5),
    "top-p 0.9": decode.top_p(0.9),
    "min-p 0.1": decode.min_p(0.1),
    "typical 0.9": decode.typical(0.9),
    "eta 0.01": decode.eta(0.01),
    "mirostat 2 bits": decode.mirostat(2.0),
}
"""What is compared unless told; a beam is added."""

EDGES = (0.5, 1.0, 2.0, 3.0, 4.5, 6.0)
"""Nats at which a token's colour changes."""


@final
@dataclass(frozen=True)
class Decoded:
    """What one decoder wrote.

    Attributes:
        name: Of the decoder.
        pieces: Text with the surprise of each bit, in nats.
        texture: Surprise, perplexity, repetition, distinct n-grams.
        along: Surprise of each token.
    """

    name: str
    pieces: list[tuple[str, float]]
    texture: decode.TextStatistics
    along: list[float]


def compare(
    saved: SavedModel,
    prompt: str,
    *,
    n: int = 400,
    seed: int = 0,
    strategies: Mapping[str, Strategies] = STRATEGIES,
    beam: int | None = 4,
) -> list[Decoded]:
    """The same model and prompt under each decoder.

    Args:
        saved: The model, by `study.load`.
        prompt: What to go on from.
        n: Tokens each writes.
        seed: Of the sampling, the same for all.
        strategies: By name.
        beam: Width of a beam search that is added; `None` for none.
    """
    require(n >= 8, "compare.n", "be at least 8, so that texture means something", n)
    out = []
    for name, strategy in strategies.items():
        going = Generation(saved, prompt, strategy, n=n, seed=seed)
        pieces = [(p.text, p.surprise) for p in going]
        found = decode.texture(going.ids, going.surprises)
        out.append(Decoded(name, pieces, found, list(going.surprises)))
    return [*out, _beamed(saved, prompt, n, beam)] if beam else out


@torch.no_grad()
def _beamed(saved: SavedModel, prompt: str, n: int, width: int) -> Decoded:
    ids = torch.as_tensor(saved.vocabulary.encode(prompt).tolist(), dtype=torch.int64)
    best: Any = decode.beam(saved.model, ids, n=n, width=width)[0]
    reader = decode.Reader(saved.model, [ids])
    logits, along, pieces, shown = reader.start(), [], [], ""
    drawn: list[int] = []
    for token in best.tokens:
        along.append(-float(logits.log_softmax(-1)[0, token]))
        logits = reader.step(token[None])
        drawn.append(int(token))
        text = saved.vocabulary.decode(drawn)
        pieces.append((text[len(shown) :], along[-1]))
        shown = text
    return Decoded(f"beam of {width}", pieces, decode.texture(best.tokens, along), along)


def chart(found: list[Decoded], width: int = 720) -> Spec:
    """Mean surprise of the last 40 tokens along the text, a line for each decoder."""
    rows = []
    for one in found:
        smooth = _running(np.array(one.along), 40)
        rows += [
            {
                "at": i + 1,
                "nats": v,
                "name": one.name,
                "told": f"{one.name}, token {i + 1}: {v:.2f}",
            }
            for i, v in enumerate(smooth)
            if i % max(1, len(smooth) // 160) == 0
        ]
    names = [one.name for one in found]
    hues = [LIGHT[c] for c in (*theme.FAMILY_COLOURS, theme.COUNT_COLOUR)]
    colour = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": [hues[i % len(hues)] for i in range(len(names))]},
        "legend": {"title": None},
    }
    dash = {
        "field": "name",
        "type": "nominal",
        "scale": {
            "domain": names,
            "range": [theme.DASHES[i // len(hues)] for i in range(len(names))],
        },
        "legend": None,
    }
    x = {"field": "at", "type": "quantitative", "axis": {"title": "Tokens written", "grid": False}}
    y = {"field": "nats", "type": "quantitative", "axis": {"title": None, "tickCount": 5}}
    line = layer(
        pd.DataFrame(rows), "line", {"strokeWidth": 2}, x=x, y=y, color=colour, strokeDash=dash
    )
    title = "Surprise, nats per token (mean of the last 40)"
    return theme.styled([line], title, width, round(width * 0.5))


def _running(x: np.ndarray, span: int) -> np.ndarray:
    total = np.cumsum(np.concatenate([[0.0], x]))
    ends = np.arange(1, len(x) + 1)
    starts = np.maximum(0, ends - span)
    return (total[ends] - total[starts]) / (ends - starts)


def decoders(
    path: Path | str,
    saved: SavedModel,
    prompt: str = "\n",
    *,
    n: int = 400,
    seed: int = 0,
    strategies: Mapping[str, Strategies] = STRATEGIES,
    beam: int | None = 4,
) -> list[Decoded]:
    """Write a page that puts decoders side by side; gives back what it shows.

    Args:
        path: The HTML file.
        saved: The model; likewise the others as for `compare`.
        prompt: What to go on from.
        n: Tokens each writes.
        seed: Of the sampling.
        strategies: By name.
        beam: Width of a beam search, or `None`.

    References: `holtzman2020`.
    """
    path = Path(path)
    require(path.suffix.lower() in (".html", ".htm"), "decoders.path", "end in .html", str(path))
    found = compare(saved, prompt, n=n, seed=seed, strategies=strategies, beam=beam)
    css, js = page_style("decoders.css"), template("page.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"bound": bound}
    label = "Surprise along the text under each decoder"
    page = environment.from_string(template("decoders.html")).render(
        css=css,
        js=js,
        policy=page_policy(css, js),
        headline=_headline(found, saved),
        prompt=prompt,
        unit=saved.unit,
        picture=theme.inline(theme.svg(chart(found)), "along", label),
        rows=[_row(one) for one in found],
        shades=[[(t, sum(s >= e for e in EDGES)) for t, s in one.pieces] for one in found],
        edges=EDGES,
        version=installed("allometry"),
    )
    make_folder(path.parent)
    with atomic_write(path) as file:
        file.write(page)
    return found


def _row(one: Decoded) -> dict[str, str]:
    t = one.texture
    return {
        "name": one.name,
        "surprise": fmt.significant(t.surprise, 3),
        "perplexity": fmt.significant(t.perplexity, 3),
        "repetition": f"{100 * t.repetition:.0f} %",
        "distinct": " ".join(f"{100 * d:.0f}" for d in t.distinct) + " %",
    }


def _headline(found: list[Decoded], saved: SavedModel) -> str:
    least = min(found, key=lambda one: one.texture.surprise)
    most = max(found, key=lambda one: one.texture.surprise)
    stuck = max(found, key=lambda one: one.texture.repetition)
    said = (
        f"Under the model itself, {least.name} is the least surprising at "
        f"{fmt.significant(least.texture.surprise, 3)} {saved.unit}, {most.name} the most at "
        f"{fmt.significant(most.texture.surprise, 3)}"
    )
    share = round(100 * stuck.texture.repetition)
    return f"{said}; {stuck.name} repeats itself most: {share} % of its 4-grams stood before."
