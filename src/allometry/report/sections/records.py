"""Records of every study: runs, samples, failures, law parameters, versions, citation."""

import platform
from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from allometry._core.cite import cite
from allometry.report import formatting as fmt
from allometry.report import tables
from allometry.report.analysis import Analysis, analyse
from allometry.report.content import Code, Definitions, Part, Prose, Samples, Section
from allometry.report.questions import answer
from allometry.report.run_groups import RunsLike, about


def _runs(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = tables.runs(runs, analysis)
    if not table.rows:
        return
    failed = len(analysis.unfinished)
    lead = fmt.several(analysis.total, "run") + (f", {failed} unfinished" if failed else "")
    note = "N excludes embedding parameters, which have their own column."
    sort = "Select a column's name to sort by it."
    yield Part("runs", "Runs", (Prose(f"{lead}. {note} {sort}"), table))


def _samples(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    samples = tables.samples(runs, analysis)
    if samples:
        lead = "One generated sample for each size, smallest first."
        yield Part("samples", "Text samples", (Prose(lead), Samples(samples)))


def _failed(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = tables.failed(analysis)
    if table.rows:
        blocks = (Prose("These runs enter no fit."), table)
    elif analysis.total:
        blocks = (Prose("None: every run finished with a finite loss."),)
    else:
        blocks = (Prose("There are no runs yet."),)
    yield Part("failed", "Failed runs", blocks)


def _parameters(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    yield Part("parameters", "Scaling laws", tables.laws(analysis))


def _provenance(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    info = about(runs)
    target = info.get("target")
    rows: list[tuple[str, str]] = []
    if isinstance(target, dict):
        rows += [
            (k.replace("_", " "), _property(k, v)) for k, v in target.items() if v is not None
        ]
    if info.get("folder"):
        rows.append(("folder", str(info["folder"])))
    versions = info.get("versions") or {"python": platform.python_version()}
    rows += [(str(k), str(v)) for k, v in dict(versions).items()]
    rows = list(dict.fromkeys(rows))
    rows.append(("report written with", f"allometry {installed('allometry')}"))
    yield Part("made", "Data and versions", (Definitions(tuple(rows)),))


def _property(name: str, value: Any) -> str:
    """A property of the target. Paths are private and hashes long, so both are shortened.

    A target made of several names each part with the first digits of its fingerprint.
    """
    if name == "paths" and isinstance(value, list):
        return ", ".join(Path(str(p)).name for p in value)
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return ", ".join(
            f"{part.get('name', part.get('target', 'unnamed'))} "
            f"({str(part.get('fingerprint', 'no fingerprint'))[:8]})"
            for part in value
        )
    return str(value)[:16] if name == "fingerprint" else _text(value)


def _text(value: Any) -> str:
    """A JSON value as text."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _citation(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    entries = f"{cite()}\n\n{cite(answer if analysis.findings else analyse)}"
    lead = Prose("The package, and the publications that this report uses.")
    yield Part("cite", "How to cite", (lead, Code(entries)))


def _always(runs: RunsLike, analysis: Analysis) -> bool:
    return True


# The tables of a question's findings already list every run.
RUNS = Section(lambda runs, analysis: not analysis.findings, _runs)
SAMPLES = Section(_always, _samples)
FAILED = Section(_always, _failed)
PARAMETERS = Section(_always, _parameters)
PROVENANCE = Section(_always, _provenance)
CITATION = Section(_always, _citation)
