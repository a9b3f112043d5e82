"""All families in one chart: loss against size at one amount of data, and their crossovers.

Letters: N parameters (of an n-gram, counts), D data.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.analysis import Analysis
from allometry.report.content import Chart, Part, Section
from allometry.report.extrapolation import attempt
from allometry.report.figures import AXES
from allometry.report.run_groups import (
    Configuration,
    RunsLike,
    configurations_of,
    counted,
    finished,
    table,
)
from allometry.report.theme import COUNT_COLOUR, FAMILY_COLOURS, LIGHT, Spec, layer

DRAWS = 2000
"""Draws behind the interval of a crossover."""

LEAST_FAMILIES = 3
"""Trained families from which on the page has this section."""

OFTEN = 0.5
"""Share of the draws in which two families must cross for a crossover to be reported."""


@final
@dataclass(frozen=True)
class Crossover:
    """Where two families have the same loss.

    Args:
        small: The family that is better below that size.
        large: The family that is better above it.
        N: The size, with the interval from the spread between seeds.
        share: Share of the draws in which they cross in this order within the sizes of both.
    """

    small: str
    large: str
    N: Estimate
    share: float


def at_one_budget(runs: RunsLike) -> dict[str, list[Configuration]]:
    """Each family's sizes at the most data that all trained families share, smallest first.

    Baselines without gradient training keep all their sizes: they read the data once.
    """
    frame = table(runs)
    done = finished(frame)
    counts = {n for n in done["family"].unique() if counted(done[done["family"] == n])}
    trained = [c for c in configurations_of(runs) if c.family not in counts]
    by_family: dict[str, list[Configuration]] = {}
    for c in trained:
        by_family.setdefault(c.family, []).append(c)
    # Batches round D a little differently in each family.
    budgets = [{round(math.log10(c.D), 2) for c in members} for members in by_family.values()]
    common = set.intersection(*budgets) if budgets else set()
    most = max(common, default=None)
    chosen = {
        name: sorted((c for c in members if round(math.log10(c.D), 2) == most), key=lambda c: c.N)
        for name, members in by_family.items()
    }
    for name in sorted(counts):
        chosen[name] = sorted(
            (c for c in configurations_of(runs) if c.family == name), key=lambda c: c.N
        )
    return {name: members for name, members in chosen.items() if members}


def meetings(runs: RunsLike, seed: int = 0) -> list[Crossover]:
    r"""Crossovers between families, smallest first.

    Between sizes the loss is interpolated linearly in $\log N$. In each of 2,000 draws, Student-t
    noise moves every mean by its standard error between seeds, which is pooled over the sizes of
    a family because two seeds say little about one size. The interval is that of the crossovers
    in the draws. All families are scored on the same data, so the evaluation error is left out.

    Args:
        runs: A study's runs, with at least 2 seeds.
        seed: Seed of the draws.
    """
    chosen = at_one_budget(runs)
    rng = np.random.default_rng(seed)
    curves = {name: _draws(members, rng) for name, members in chosen.items() if len(members) >= 2}
    made = []
    for a, b in itertools.combinations(curves, 2):
        made += _met(a, chosen[a], curves[a], b, chosen[b], curves[b])
    return sorted(made, key=lambda m: m.N.value)


def _draws(members: list[Configuration], rng: np.random.Generator) -> Float[ndarray, "draws n"]:
    """The means in the first row, then draws of the means under other seeds."""
    losses = np.array([c.loss.value for c in members])
    spreads = [c.spread for c in members]
    require(
        all(s is not None for s in spreads), "meetings.runs", "have 2 seeds or more", "one seed"
    )
    freedom = sum(max(c.seeds - 1, 0) for c in members)
    if freedom == 0:  # n-grams have no seeds
        return np.tile(losses, (DRAWS + 1, 1))
    parts = [
        (c.seeds - 1) * c.seeds * (s or 0.0) ** 2 for c, s in zip(members, spreads, strict=True)
    ]
    sd = math.sqrt(sum(parts) / freedom)
    se = sd / np.sqrt([c.seeds for c in members])
    moved = losses + se * rng.standard_t(freedom, (DRAWS, len(members)))
    return np.vstack([losses, moved])


def _met(
    a: str,
    of_a: list[Configuration],
    from_a: Float[ndarray, "draws n"],
    b: str,
    of_b: list[Configuration],
    from_b: Float[ndarray, "draws m"],
) -> list[Crossover]:
    lo = math.log(max(of_a[0].N, of_b[0].N))
    hi = math.log(min(of_a[-1].N, of_b[-1].N))
    if not lo < hi:
        return []
    x = np.linspace(lo, hi, 400)
    log_a, log_b = (np.log([c.N for c in members]) for members in (of_a, of_b))
    gap = from_a @ _between(log_a, x) - from_b @ _between(log_b, x)
    crossovers = []
    for small, large, sign in ((a, b, 1.0), (b, a, -1.0)):
        # The last size at which `small` leads, where `large` leads at the end.
        leads = sign * gap < 0
        crossed = leads.any(1) & ~leads[:, -1]
        share = float(crossed[1:].mean())
        if share >= OFTEN:
            last = x.size - 1 - leads[:, ::-1].argmax(1)
            N = np.exp(x[np.minimum(last, x.size - 1)])
            ends = np.quantile(N[1:][crossed[1:]], [0.025, 0.975])
            value = float(N[0] if crossed[0] else np.median(N[1:][crossed[1:]]))
            lower, upper = min(float(ends[0]), value), max(float(ends[1]), value)
            spread = f"spread between seeds; crosses in {share:.0%} of the draws"
            crossovers.append(
                Crossover(small, large, Estimate(value, lo=lower, hi=upper, method=spread), share)
            )
    return crossovers


def _between(nodes: Float[ndarray, " n"], x: Float[ndarray, " k"]) -> Float[ndarray, "n k"]:
    """Linear interpolation weights: values at the nodes times these are the values at x."""
    return np.stack([np.interp(x, nodes, unit) for unit in np.eye(len(nodes))])


def chart(runs: RunsLike, unit: str, width: int = 720) -> Spec | None:
    """Loss against size of every family, with 95 % intervals between seeds.

    `None` if fewer than two families have two sizes.

    Args:
        runs: A study's runs.
        unit: Of the loss.
        width: In pixels.
    """
    chosen = at_one_budget(runs)
    if sum(len(members) >= 2 for members in chosen.values()) < 2:
        return None
    names = sorted(chosen, key=lambda n: min(c.loss.value for c in chosen[n]))
    labels = {n: fmt.family(n) for n in names}
    rows = [_row(labels[n], c, unit) for n in names for c in chosen[n]]
    data = pd.DataFrame(rows)
    order = [labels[n] for n in names]
    hues, taken = [], 0
    for n in names:
        hues.append(LIGHT[COUNT_COLOUR if n == "ngram" else FAMILY_COLOURS[taken % 6]])
        taken += n != "ngram"
    field = {"field": "name", "type": "nominal", "sort": order, "legend": {"title": None}}
    colour = field | {"scale": {"domain": order, "range": hues}}
    signs = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(order))]
    shape = field | {"scale": {"domain": order, "range": signs}}
    x = theme.log_axis("x", *theme.extent(data["x"], 0.05), fmt.count, AXES["N"])
    span = theme.extent(data["loss"], 0.06)
    y = theme.log_axis("loss", *span, fmt.significant, None)
    bars = y | {"field": "lo"}
    marks = [
        layer(data, "line", {"strokeWidth": 1.8, "aria": False}, x=x, y=y, color=colour),
        layer(data, "rule", {"strokeWidth": 1.2}, x=x, y=bars, y2="hi", color=colour),
        layer(
            data,
            "point",
            {"filled": True, "size": 62, "opacity": 0.95},
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip="tooltip",
        ),
    ]
    height = round(width * (0.52 if width > 500 else 1.0))
    return theme.styled(marks, f"Loss, {unit}", width, height)


def _row(label: str, c: Configuration, unit: str) -> dict[str, float | str]:
    half = 1.96 * (c.spread or 0.0)
    tooltip = f"{label}, {c.shape}: {fmt.estimated(c.loss, fmt.loss, unit)}"
    return {
        "name": label,
        "x": c.N,
        "loss": c.loss.value,
        "lo": c.loss.value - half,
        "hi": c.loss.value + half,
        "tooltip": tooltip,
    }


def sentence(met: list[Crossover]) -> str:
    """The crossovers in one sentence; empty if there are none."""
    parts = [
        f"the {fmt.family(m.large)} overtakes the {fmt.family(m.small)} at "
        f"{fmt.count(m.N.value)} (95 % interval {fmt.span(m.N, fmt.count)})"
        for m in met
    ]
    return f"As N grows, {fmt.listed(parts)}." if parts else ""


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    # Losses on different domains do not compare, so their crossovers mean nothing.
    domains = analysis.target == "domains"
    met = [] if domains else attempt(lambda: meetings(runs))[0] or []
    caption = (
        "Loss against size at the most data that all trained families have seen, with 95 % "
        "intervals between seeds. N-gram baselines have read all training data; their size "
        f"is the number of counts they store. {sentence(met)}"
    )
    chart_ = Chart(
        "families-against-size",
        lambda width: chart(runs, analysis.unit, width),
        caption.rstrip(),
    )
    yield Part("by-size", f"{'Domains' if domains else 'Families'} by size", (chart_,))


SECTION = Section(lambda runs, analysis: len(analysis.families) >= LEAST_FAMILIES, _parts)
