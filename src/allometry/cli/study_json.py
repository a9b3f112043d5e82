"""A study's answer as JSON values, for `--json`."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allometry._core.estimate import Estimate
    from allometry.report import Analysis
    from allometry.report.analysis import FamilyFit
    from allometry.report.extrapolation import HeldOut, LargerBudget
    from allometry.report.questions import Finding
    from allometry.report.run_groups import Configuration


def plain(story: "Analysis") -> dict[str, Any]:
    """Headline, claims with their status, best models, laws, tested predictions, budgets."""
    return {
        "headline": story.headline,
        "claims": [claim.to_dict() for claim in story.claims],
        "target": story.target,
        "unit": story.unit,
        "best": _configuration(story.best),
        "units": _units(story),
        "counted": [_configuration(c) for c in story.counted],
        "families": [_family(f) for f in story.families],
        "unfinished": [
            {"key": u.key, "status": u.status, "error": u.error} for u in story.unfinished
        ],
        "notes": list(story.notes),
    } | ({"findings": [_finding(f) for f in story.findings]} if story.findings else {})


def _units(story: "Analysis") -> dict[str, Any]:
    """The best loss in other units."""
    from allometry.report.likelihood_units import others

    if story.best is None:
        return {}
    more = others(story.unit, story.characters, story.dimensions)
    return {unit.name: unit.of(story.best.loss).to_dict() for unit in more}


def _finding(finding: "Finding") -> dict[str, Any]:
    tables = [
        {
            "caption": table.caption,
            "rows": [
                {
                    h.text: f"{c.text} {c.more}".strip()
                    for h, c in zip(table.heads, row, strict=True)
                }
                for row in table.rows
            ],
        }
        for table in finding.tables
    ]
    return {"title": finding.title, "words": list(finding.words), "tables": tables}


def _family(family: "FamilyFit") -> dict[str, Any]:
    crossing = family.crossing
    return {
        "family": family.name,
        "best": _configuration(family.best),
        "law": None if family.law is None else family.law.to_dict(),
        "held_out": [_held_out(h) for h in family.held_out],
        "crossing": None
        if crossing is None
        else {
            "rival": _configuration(crossing.rival),
            "N": _estimate(crossing.N),
            "D": _estimate(crossing.D),
            "C": _estimate(crossing.C),
            "passes": crossing.passes,
        },
        "reaches": [_reach(r) for r in family.reaches],
        "notes": list(family.notes),
    }


def _configuration(made: "Configuration | None") -> dict[str, Any] | None:
    if made is None:
        return None
    sizes = {"N": _number(made.N), "D": _number(made.D), "C": _number(made.C)}
    losses = {"loss": made.loss.to_dict(), "test": _estimate(made.test)}
    return {"family": made.family, "shape": made.shape} | losses | sizes


def _held_out(held: "HeldOut") -> dict[str, Any]:
    return {
        "configuration": _configuration(held.configuration),
        "predicted": held.predicted.to_dict(),
        "error": held.error,
        "covered": held.covered,
    }


def _reach(reach: "LargerBudget") -> dict[str, Any]:
    sizes = {"N": _estimate(reach.N), "D": _estimate(reach.D), "loss": _estimate(reach.loss)}
    sizes |= {"loss_if_data_were_new": _estimate(reach.fresh)}
    return {"C": reach.C, "passes": reach.passes, "warnings": list(reach.warnings)} | sizes


def _estimate(estimate: "Estimate | None") -> dict[str, Any] | None:
    return None if estimate is None else estimate.to_dict()


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None
