"""Answers to questions of expressive power: a verdict in words and the findings it rests on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import pandas as pd

from allometry.report.tables import Table
from allometry.report.theme import Spec


@final
@dataclass(frozen=True)
class Chart:
    """A chart that can be drawn in any width, its name as a file, and what to read under it."""

    name: str
    draw: Callable[[int], Spec | None]
    caption: str


@final
@dataclass(frozen=True)
class Finding:
    """A part of the answer: what it says, its charts and its tables."""

    name: str
    title: str
    words: tuple[str, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@final
@dataclass(frozen=True)
class Answer:
    """The verdict in a sentence or two, what to doubt about it, and what it rests on."""

    verdict: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]


def answer(name: str, done: pd.DataFrame) -> Answer:
    """What the finished runs say about a question.

    Args:
        name: `"degree"`, `"rank"` or `"mixer"`.
        done: The rows of a study's frame that are done.

    References:
        `levine2020` (separation rank of attention), `tolstikhin2021` (the Mixer).
    """
    from allometry.report.sections import degrees, ranks

    if done.empty or "part" not in done:
        return Answer("No run has finished yet, so there is no answer.", (), ())
    return {"degree": degrees.degree, "rank": ranks.rank, "mixer": ranks.mixer}[name](done)
