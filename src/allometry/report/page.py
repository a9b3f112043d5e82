"""One self-contained HTML page: the story, its charts, its tables, and nothing from elsewhere."""

import base64
import hashlib
import platform
import re
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from allometry._core.cite import cite
from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry.laws import Law, Plan
from allometry.report import (
    formatting as fmt,
)
from allometry.report import (
    likelihood_units,
    page_figures,
    tables,
    theme,
)
from allometry.report.analysis import Analysis, tell
from allometry.report.prose import doubts, facts, plural
from allometry.report.run_groups import RunsLike, about
from allometry.report.sections import (
    densities,
    nesting,
    questions,
    sample_quality,
)


def write(
    path: Path | str,
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    *,
    story: Analysis | None = None,
) -> Path:
    """Write the report of a study as one HTML file, and its charts as SVG beside it.

    The page loads nothing from anywhere. The charts lie in `<stem>_charts/` too, each as a picture
    of its own. A study that is still running can be reported: the page tells of what is there.

    Args:
        path: The HTML file.
        runs: A study's runs.
        law: The law of the trained family; fitted where not given.
        plan: A plan to show beside ten and a hundred times the compute.
        story: What `tell` made of the runs, to save its time; made here where not given.

    Returns:
        The path of the page.

    References:
        `hoffmann2022` (laws of loss against size and data), `muennighoff2023` (repeated data).
    """
    path = Path(path)
    require(path.suffix.lower() in (".html", ".htm"), "write.path", "end in .html", str(path))
    make_folder(path.parent)
    story = story if story is not None else tell(runs, law, plan)
    page, charts = render(runs, story)
    # The page may lie in a study's folder, out of which nothing may lead.
    folder = make_folder(path_inside(path.parent, f"{path.stem}_charts")) if charts else None
    for name, picture in charts.items():
        assert folder is not None
        with atomic_write(folder / f"{name}.svg") as file:
            file.write(picture)
    with atomic_write(path) as file:
        file.write(page)
    return path


def render(runs: RunsLike, story: Analysis) -> tuple[str, dict[str, str]]:
    """The page as text, and the charts that stand alone by name."""
    css, js = page_style(), template("page.js")
    drawn = page_figures.plates(runs, story)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"bound": bound, "raised": raised}
    page = environment.from_string(template("page.html")).render(
        css=css,
        js=js,
        policy=page_policy(css, js),
        story=story,
        subtitle=_subtitle(story),
        notes=doubts(story),
        facts=facts(story),
        frontier=drawn.frontier,
        sizes=drawn.sizes,
        by_size=drawn.families,
        nesting=drawn.nesting,
        twins=nesting.nesting(runs),
        reaches=tables.reaches(story),
        reach_warnings=_reach_warnings(story),
        panels=[p for p in drawn.panels if p.figures],
        panels_title="Predicting the largest from the smaller"
        if any(f.held_out for f in story.families)
        else "How loss falls",
        families=tables.families(story),
        units=likelihood_units.table(story),
        panel_notes=page_figures.panel_notes(story),
        held_out=tables.held_out(story),
        curves=drawn.curves,
        game=drawn.game,
        findings=list(zip(story.findings, drawn.findings, strict=True)),
        measures=sample_quality.measures(runs, story),
        pictures=densities.pictures(runs),
        # The tables of a question's findings hold every run already.
        runs=None if story.findings else tables.runs(runs, story),
        runs_lead=_runs_lead(story),
        samples=tables.samples(runs, story),
        samples_lead=f"One sample of each size, as generated, smallest first; {_whose(story)}",
        failed=tables.failed(story),
        nothing_failed="Nothing: every run finished with a finite loss."
        if story.total
        else "There are no runs yet.",
        parameters=tables.laws(story),
        versions=_versions(runs),
        citation=f"{cite()}\n\n{cite(questions.answer if story.findings else write)}",
        version=installed("allometry"),
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    return page, drawn.charts


_UNITS = re.compile(r"(\d) (?=(%|[kMGTPEZ]?FLOP|s|min|h|d|parameters|times)\b|%)")


def bound(text: str) -> str:
    """The text with its numbers held to their units by no-break spaces."""
    return _UNITS.sub("\\1\u00a0", text)


def raised(equation: str) -> Markup:
    """The equation as HTML with exponents raised and indices lowered: N^α, N^(α/β), N_c."""
    text = re.sub(r"\^(?:\(([^()]*)\)|(-?\w+))", r"<sup>\1\2</sup>", escape(equation))
    return Markup(re.sub(r"_([^\W_]+)", r"<sub>\1</sub>", text))


def template(name: str) -> str:
    """A file of the templates folder."""
    return files("allometry.report").joinpath("templates", name).read_text(encoding="utf-8")


def page_style(*more: str) -> str:
    """The style of every page, with files of the templates folder after it."""

    def block(colours: dict[str, str], wash: str) -> str:
        return "".join(f"--{k}:{v};" for k, v in colours.items()) + f"--wash:{wash};"

    return (
        "".join(template(name) for name in ("page.css", *more))
        .replace("/*LIGHT*/", block(theme.LIGHT, "#f4f2ec"))
        .replace("/*DARK*/", block(theme.DARK, "#1e2226"))
    )


def page_policy(css: str, js: str = "") -> str:
    """A policy under which the page runs its own style and script and can reach nothing else."""

    def sha(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    script = f"script-src 'sha256-{sha(js)}'; " if js else ""
    return (
        f"default-src 'none'; style-src 'sha256-{sha(css)}'; {script}"
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _reach_warnings(story: Analysis) -> list[str]:
    said = []
    limited = [(f, r) for f in story.families for r in f.reaches if r.fresh is not None]
    if limited:
        each = [
            f"{r.label} {fmt.loss(r.fresh.value)}" for f, r in limited
            if f is story.families[0] and r.fresh is not None
        ]  # fmt: skip
        new = f" New data alone would give {fmt.listed(each)}." if each else ""
        said.append(
            f"There are {fmt.count(story.D_unique or 0)} distinct {plural(story.token)} to "
            "train on, so these budgets repeat them. Repeated data are counted as worth less, at "
            f"the rate that Muennighoff et al. measured.{new}"
        )
    for family in story.families:
        known = set(family.law.warnings) if family.law is not None else set()
        said += [w for r in family.reaches for w in r.warnings if w not in known]
    return _once(said)


def _once(said: list[str]) -> list[str]:
    """Each sentence once; of those that differ only in what stands in brackets, none of that."""
    alike: dict[str, set[str]] = {}
    for sentence in said:
        alike.setdefault(re.sub(r" \([^)]*\)", "", sentence), set()).add(sentence)
    return [next(iter(full)) if len(full) == 1 else bare for bare, full in alike.items()]


def _subtitle(story: Analysis) -> str:
    parts = []
    if story.D_unique:
        parts.append(f"{fmt.count(story.D_unique)} {plural(story.token)} to train on")
    parts.append(fmt.several(story.total, "run"))
    if story.waiting:
        parts.append(f"{story.waiting} more to come")
    return "· " + " · ".join(parts)


def _runs_lead(story: Analysis) -> str:
    broken = len(story.unfinished)
    text = f"{fmt.several(story.total, 'run')}"
    if broken:
        text += f", of which {broken} did not finish"
    return (
        f"{text}. N leaves out embeddings, which are counted apart. Choose a column's name to "
        "sort by it."
    )


def _whose(story: Analysis) -> str:
    return "lower loss reads more like the text." if story.best else ""


def _told(name: str, value: Any) -> str:
    """A property of the target: where files lie is nobody's business, and hashes are long.

    Of a target made of several, each goes by its name and the first of its fingerprint.
    """
    if name == "paths" and isinstance(value, list):
        return ", ".join(Path(str(p)).name for p in value)
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return ", ".join(
            f"{part.get('name', part.get('target', 'unnamed'))} "
            f"({str(part.get('fingerprint', 'no fingerprint'))[:8]})"
            for part in value
        )
    return str(value)[:16] if name == "fingerprint" else _plainly(value)


def _plainly(value: Any) -> str:
    """A value from JSON in plain words."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plainly(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plainly, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _versions(runs: RunsLike) -> list[tuple[str, str]]:
    said = about(runs)
    target = said.get("target")
    rows: list[tuple[str, str]] = []
    if isinstance(target, dict):
        rows += [(k.replace("_", " "), _told(k, v)) for k, v in target.items() if v is not None]
    if said.get("folder"):
        rows.append(("folder", str(said["folder"])))
    versions = said.get("versions") or {"python": platform.python_version()}
    rows += [(str(k), str(v)) for k, v in dict(versions).items()]
    rows = list(dict.fromkeys(rows))
    rows += [("report written with", f"allometry {installed('allometry')}")]
    return rows
