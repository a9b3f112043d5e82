"""The findings of a study that asks a question, one part each."""

from collections.abc import Iterator

from allometry.report.analysis import Analysis
from allometry.report.content import Block, ChartRow, Part, Prose, Section
from allometry.report.run_groups import RunsLike


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    for finding in analysis.findings:
        blocks: list[Block] = [Prose(sentence) for sentence in finding.words]
        if len(finding.charts) == 1:
            blocks.append(finding.charts[0])
        elif finding.charts:
            blocks.append(ChartRow(finding.charts))
        yield Part(finding.name, finding.title, (*blocks, *finding.tables))


SECTION = Section(lambda runs, analysis: bool(analysis.findings), _parts)
