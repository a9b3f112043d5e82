"""Decoders compared: the text of one model under each, and its surprisal under the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch

from allometry import decode
from allometry._core.errors import require
from allometry.decode.sampling import Strategies
from allometry.report import formatting as fmt
from allometry.report import page_template, theme
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
"""The decoders compared by default; a beam search is added."""

EDGES = (0.5, 1.0, 2.0, 3.0, 4.5, 6.0)
"""Surprisals in nats at which the shade of a token changes."""


@final
@dataclass(frozen=True)
class Decoded:
    """The text of one decoder.

    Attributes:
        name: The decoder's name.
        pieces: Pieces of text with the surprisal of each, in nats.
        texture: Surprisal, perplexity, repetition, distinct n-grams.
        along: Surprisal of each token.
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
        prompt: The text to continue.
        n: Number of tokens that each decoder generates.
        seed: Seed of the sampling, the same for all.
        strategies: Decoders by name.
        beam: Width of the added beam search; `None` for none.
    """
    require(n >= 8, "compare.n", "be at least 8, so that the statistics mean something", n)
    out = []
    for name, strategy in strategies.items():
        generation = Generation(saved, prompt, strategy, n=n, seed=seed)
        pieces = [(p.text, p.surprise) for p in generation]
        statistics = decode.texture(generation.ids, generation.surprises)
        out.append(Decoded(name, pieces, statistics, list(generation.surprises)))
    return [*out, _beam_search(saved, prompt, n, beam)] if beam else out


@torch.no_grad()
def _beam_search(saved: SavedModel, prompt: str, n: int, width: int) -> Decoded:
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


def chart(decoded: list[Decoded], width: int = 720) -> Spec:
    """Mean surprisal of the last 40 tokens along the text, one line per decoder."""
    rows = []
    for one in decoded:
        smooth = _running(np.array(one.along), 40)
        rows += [
            {
                "at": i + 1,
                "nats": v,
                "name": one.name,
                "tooltip": f"{one.name}, token {i + 1}: {v:.2f}",
            }
            for i, v in enumerate(smooth)
            if i % max(1, len(smooth) // 160) == 0
        ]
    names = [one.name for one in decoded]
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
    x = {
        "field": "at",
        "type": "quantitative",
        "axis": {"title": "Tokens generated", "grid": False},
    }
    y = {"field": "nats", "type": "quantitative", "axis": {"title": None, "tickCount": 5}}
    line = layer(
        pd.DataFrame(rows), "line", {"strokeWidth": 2}, x=x, y=y, color=colour, strokeDash=dash
    )
    title = "Surprisal, nats per token (mean of the last 40)"
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
    """Write a page that compares decoders; returns what it shows.

    Args:
        path: The HTML file.
        saved: The model; this and the other arguments as for `compare`.
        prompt: The text to continue.
        n: Number of tokens that each decoder generates.
        seed: Seed of the sampling.
        strategies: Decoders by name.
        beam: Width of the added beam search; `None` for none.

    References: `holtzman2020`.
    """
    path = page_template.html_path(path, "decoders")
    found = compare(saved, prompt, n=n, seed=seed, strategies=strategies, beam=beam)
    label = "Surprisal along the text under each decoder"
    page = page_template.fill(
        "decoders.html",
        "decoders.css",
        headline=_headline(found, saved),
        prompt=prompt,
        unit=saved.unit,
        picture=theme.inline(theme.svg(chart(found)), "along", label),
        rows=[_row(one) for one in found],
        shades=[[(t, sum(s >= e for e in EDGES)) for t, s in one.pieces] for one in found],
        edges=EDGES,
    )
    page_template.save(path, page)
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
    share = round(100 * stuck.texture.repetition)
    return (
        f"{least.name[:1].upper()}{least.name[1:]} has the lowest surprisal under the model, "
        f"{fmt.significant(least.texture.surprise, 3)} {saved.unit}, and {most.name} the highest, "
        f"{fmt.significant(most.texture.surprise, 3)}. {stuck.name[:1].upper()}{stuck.name[1:]} "
        f"repeats itself most: {share} % of its 4-grams occurred before."
    )
