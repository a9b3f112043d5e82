"""The answer to a question of expressive power: a verdict and the findings behind it."""

from dataclasses import dataclass
from typing import final

from allometry.report.cells import Table
from allometry.report.content import Chart


@final
@dataclass(frozen=True)
class Finding:
    """One part of an answer: sentences, charts and tables."""

    name: str
    title: str
    words: tuple[str, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@final
@dataclass(frozen=True)
class Answer:
    """A verdict of one or two sentences, its caveats, and the findings it is based on."""

    verdict: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
