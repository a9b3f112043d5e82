"""The interactive planner of a study's scaling laws."""

from collections.abc import Iterator
from pathlib import Path

from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.content import Part, Section
from allometry.report.planner_data import NamedLaw, Question, planner
from allometry.report.run_groups import RunsLike

MOST_LAWS = 3
"""Laws of one page; each takes some 150 kB."""


def _planner(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    several = len(analysis.families) > 1
    laws = [
        NamedLaw(
            family.law,
            fmt.family(family.name),
            analysis.unit,
            analysis.token,
            family.name if several else "",
        )
        for family in analysis.families
        if family.law is not None
    ]
    claims = analysis.families[0].claims
    refused = [c.text for c in claims if c.kind == "forecast" and not c.supported]
    question = Question(unique=analysis.D_unique)
    folder = getattr(runs, "folder", None)
    source = "RUNS" if folder is None else Path(folder).name
    made = planner(laws[:MOST_LAWS], question, source=source, cautions=refused[:1])
    if made is not None:
        yield Part("planner", "Planner", (made,))


SECTION = Section(
    lambda runs, analysis: any(family.law is not None for family in analysis.families), _planner
)
