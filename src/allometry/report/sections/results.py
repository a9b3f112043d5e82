"""Results of every study: families compared, loss against compute, scaling laws, curves."""

import math
import re
from collections.abc import Iterator

from allometry.report import figures, likelihood_units, tables
from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.content import Block, Chart, ChartRow, Folded, Heading, Part, Prose, Section
from allometry.report.family_fit import FamilyFit
from allometry.report.prose import plural, trust
from allometry.report.run_groups import RunsLike, curved

PANEL = 344
"""Width in pixels of the charts of one family against N, D and C."""


def _families(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = tables.families(analysis)
    assert table is not None
    title = "Domains" if analysis.target == "domains" else "Families"
    yield Part("families", f"{title} compared", (table,))


def _compute(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    chart = Chart(
        "loss-against-compute",
        lambda width: figures.frontier(runs, analysis, width),
        _frontier_caption(analysis),
    )
    blocks: list[Block] = [chart]
    table = tables.reaches(analysis)
    if table is not None:
        blocks += [table, Folded("About these budgets", tuple(_budget_notes(analysis)))]
    yield Part("compute", "Loss against compute", tuple(blocks))


def _frontier_caption(analysis: Analysis) -> str:
    several = len(analysis.families) > 1
    first, rival = analysis.families[0], analysis.rival
    optimal = any(f.law and {"N", "D"} <= set(f.law.variables) for f in analysis.families)
    line = "Each line is the scaling law of one family" if several else "The line is the fitted"
    sentences = [
        "Each dot is a finished run.",
        f"{line}{'' if several else ' scaling law'}"
        f"{' at the compute-optimal allocation' if optimal else ''}, dotted beyond the largest "
        "run, with the 95 % interval of a new run.",
    ]
    if first.reaches:
        whose = f" of the {fmt.family(first.name)}" if several else ""
        sentences.append(f"Open diamonds are predictions for larger budgets{whose}.")
    if rival is not None:
        sentences.append(f"The dashed line is the best {fmt.family(rival.family)}.")
        C = first.crossing.C if first.crossing is not None else None
        if C is not None and math.isfinite(C.value):
            sentences.append("The ring is the predicted crossover with it, with its interval.")
    return " ".join(sentences)


def _budget_notes(analysis: Analysis) -> list[str]:
    sentences = []
    limited = [(f, r) for f in analysis.families for r in f.reaches if r.fresh is not None]
    if limited:
        each = [
            f"{fmt.loss(r.fresh.value)} at {r.label}" for f, r in limited
            if f is analysis.families[0] and r.fresh is not None
        ]  # fmt: skip
        new = f" With new data only, the loss would be {fmt.listed(each)}." if each else ""
        sentences.append(
            f"There are {fmt.count(analysis.D_unique or 0)} distinct {plural(analysis.token)} to "
            "train on, so these budgets repeat them. Repeated data are discounted at the rate "
            f"that Muennighoff et al. (2023) measured.{new}"
        )
    for family in analysis.families:
        known = set(family.law.warnings) if family.law is not None else set()
        sentences += [w for r in family.reaches for w in r.warnings if w not in known]
    return without_repeats(sentences)


def without_repeats(sentences: list[str]) -> list[str]:
    """Each sentence once; sentences that differ only in brackets are merged without them."""
    alike: dict[str, set[str]] = {}
    for sentence in sentences:
        alike.setdefault(re.sub(r" \([^)]*\)", "", sentence), set()).add(sentence)
    return [next(iter(full)) if len(full) == 1 else bare for bare, full in alike.items()]


def _laws(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    blocks: list[Block] = []
    for i, family in enumerate(analysis.families):
        blocks += _panel(runs, analysis, family, i)
    if not blocks:
        return
    tested = any(f.held_out for f in analysis.families)
    if tested:
        blocks.append(
            Prose(
                "Crosses are held-out runs. The line and its 95 % band are fitted to the dots "
                "alone.",
                "aside",
            )
        )
    elif any(f.law for f in analysis.families):
        text = "The line and its 95 % band are the scaling law fitted to all finished runs."
        blocks.append(Prose(text, "aside"))
    table = tables.held_out(analysis)
    blocks += [table] if table is not None else []
    title = "Largest sizes predicted from smaller ones" if tested else "Loss against N, D and C"
    yield Part("laws", title, tuple(blocks))


def _panel(runs: RunsLike, analysis: Analysis, family: FamilyFit, i: int) -> list[Block]:
    """One family's loss against N, D and C, and the test of its law; nothing without charts."""
    charts, notes = [], []
    name = fmt.family(family.name)
    # A family's name may be any text, and this one becomes the name of a file.
    tail = "" if i == 0 else f"-{i + 1}-{re.sub('[^a-z0-9]+', '-', family.name.lower())[:40]}"
    for x in "NDC":
        spec = figures.against(runs, analysis, x, PANEL, family=family)
        if spec is not None:
            caption = f"Loss of the {name} in {analysis.unit} against {_axis(x, analysis.token)}."
            charts.append(Chart(f"loss-against-{x}{tail}", lambda _, spec=spec: spec, caption))
        elif len(family.configurations) > 1:
            notes.append(f"Loss against {x} is not drawn: all finished runs have the same {x}.")
    if not charts:
        return []
    title = [Heading(f"{name[:1].upper()}{name[1:]}")] if len(analysis.families) > 1 else []
    asides = (Prose(note, "aside") for note in notes)
    return [*title, Prose(trust(family)), ChartRow(tuple(charts)), *asides]


def _axis(x: str, token: str) -> str:
    return {
        "N": "N, the number of parameters",
        "D": f"D, the {plural(token)} seen in training",
        "C": "C, the training compute in FLOP",
    }[x]


def _units(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = likelihood_units.table(analysis)
    if table is not None:
        yield Part("units", "Loss in other units", (table,))


def _curves(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    count = len(curved(runs))
    which = "one line per run"
    if count > figures.MOST_CURVES:
        which = f"for up to {figures.MOST_CURVES} runs chosen evenly from {count:,}"
    chart = Chart(
        "learning-curves",
        lambda width: figures.curves(runs, analysis, width),
        f"Validation loss in {analysis.unit} during training, {which}, coloured by size. Dashed "
        "lines did not finish. The first steps may lie above the frame.",
    )
    yield Part("curves", "Learning curves", (chart,))


FAMILIES = Section(lambda runs, analysis: len(analysis.families) > 1, _families)
COMPUTE = Section(lambda runs, analysis: bool(analysis.families), _compute)
LAWS = Section(lambda runs, analysis: bool(analysis.families), _laws)
UNITS = Section(lambda runs, analysis: analysis.best is not None, _units)
CURVES = Section(lambda runs, analysis: not analysis.findings, _curves)
