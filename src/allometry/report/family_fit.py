"""One trained family: its law, the test of it on held-out sizes, and what it supports."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from allometry.laws import Law, Plan
from allometry.report import claims, extrapolation
from allometry.report import formatting as fmt
from allometry.report.claims import Claim
from allometry.report.extrapolation import Crossover, Frontier, HeldOut, LargerBudget
from allometry.report.guards import Evidence, enough
from allometry.report.run_groups import Configuration

MULTIPLES = (10, 100)
ROUGH = 0.05
"""Relative error on held-out sizes above which a law is called rough."""


@final
@dataclass(frozen=True)
class FamilyFit:
    """One trained family: its law, how far it can be trusted, and what it says.

    Args:
        name: The family.
        configurations: Its finished runs, averaged over seeds, smallest compute first.
        best: The one with the lowest loss.
        law: Fitted on all finished runs; `None` where they are too few (see `notes`).
        law_without: Fitted without the held-out sizes.
        held_sizes: The sizes kept out of `law_without`.
        held_out: What was predicted for them and what came.
        crossing: The predicted crossover with the best baseline; `None` where it is not supported.
        reaches: What larger budgets would reach, as far as that is supported.
        frontier: Loss against compute with its band, from the smallest run to the largest reach.
        notes: What is missing or doubtful, in sentences.
        claims: The crossover and the forecasts, each stated or refused with the reason.
        entropy: The loss that no model can go below on its target, where that is known.
    """

    name: str
    configurations: tuple[Configuration, ...]
    best: Configuration
    law: Law | None
    law_without: Law | None
    held_sizes: tuple[float, ...]
    held_out: tuple[HeldOut, ...]
    crossing: Crossover | None
    reaches: tuple[LargerBudget, ...]
    frontier: Frontier | None
    notes: tuple[str, ...]
    claims: tuple[Claim, ...] = ()
    entropy: float | None = None

    @property
    def error(self) -> float | None:
        """The largest relative error over the held-out configurations, in absolute value."""
        return max((abs(h.error) for h in self.held_out), default=None)


@final
@dataclass(frozen=True)
class FitSettings:
    """What all families of a study share."""

    unit: str
    token: str
    D_unique: float | None
    entropy: float | None
    hold_out: int
    seed: int
    bootstrap: int


def grow(
    done: pd.DataFrame,
    grown: list[Configuration],
    rival: Configuration | None,
    study: FitSettings,
    law: Law | None,
    plan: Plan | None,
) -> FamilyFit:
    """The family of these finished runs, with its law, claims and doubts."""
    notes: list[str] = []
    missing = ""
    best = min(grown, key=lambda c: c.loss.value)
    if law is None:
        law, missing = extrapolation.fit(done, study.seed, study.bootstrap)
    held, why = extrapolation.hold_out(done, study.hold_out)
    notes += [why] if why and law is not None else []
    law_without, judged = None, ()
    if held and law is not None:
        law_without, why = extrapolation.fit(
            done[~done["N"].isin(held)], study.seed, study.bootstrap
        )
        notes += [why] if why else []
        if law_without is not None:
            judged = extrapolation.judged(law_without, [c for c in grown if c.N in held])
            notes += _doubt(judged)
    if rival is not None and rival.exact:
        study = replace(study, entropy=rival.loss.value)
    tested = 0.0 if law is None else extrapolation.tested(law, law_without, judged)
    evidence = Evidence(
        law, missing, tuple(grown), judged, tested, study.entropy, study.D_unique, study.unit,
        study.token,
    )  # fmt: skip
    reaches, said, whys = _reaches(law, plan, grown, evidence)
    met = None
    if rival is not None:
        behind = best.loss.value > rival.loss.value and enough(evidence) is None
        met = (
            extrapolation.crossing(law, rival, study.D_unique)
            if law is not None and behind
            else None
        )
        said = [claims.crossover(evidence, rival, met), *said]
        met = met if said[0].supported and "measured" not in said[0].values else None
    line, why = _line(law, grown, reaches, met, study)
    notes += [why] if why else []
    return FamilyFit(
        name=best.family,
        configurations=tuple(grown),
        best=best,
        law=law,
        law_without=law_without,
        held_sizes=tuple(held) if law_without is not None else (),
        held_out=judged,
        crossing=met,
        reaches=reaches,
        frontier=line,
        notes=tuple(dict.fromkeys(notes + whys)),
        claims=tuple(said),
        entropy=study.entropy,
    )


def _line(
    law: Law | None,
    grown: list[Configuration],
    reaches: tuple[LargerBudget, ...],
    met: Crossover | None,
    study: FitSettings,
) -> tuple[Frontier | None, str]:
    """The law's line for the chart, no further than what is claimed."""
    if law is None:
        return None, ""
    top = max([c.C for c in grown] + [r.C for r in reaches])
    top = max(top, met.C.value) if met is not None and met.C is not None else top
    grid = np.geomspace(min(c.C for c in grown), top, 80)
    line, why = extrapolation.attempt(lambda: extrapolation.frontier(law, grid, study.D_unique))
    if line is not None and study.entropy is not None:
        line = extrapolation.lifted(line, study.entropy)
    return line, why


def _doubt(held: tuple[HeldOut, ...]) -> list[str]:
    """A word of caution where the held-out sizes were missed by far."""
    worst = max((abs(h.error) for h in held), default=0.0)
    outside = sum(not h.covered for h in held)
    if worst <= ROUGH and not outside:
        return []
    what = f"missed the held-out sizes by up to {fmt.percent(worst)}"
    if outside:
        what += f" and {outside} of {len(held)} fell outside its interval"
    return [f"The law {what}, so what it says beyond the runs is rough."]


def _reaches(
    law: Law | None, plan: Plan | None, grown: list[Configuration], evidence: Evidence
) -> tuple[tuple[LargerBudget, ...], list[Claim], list[str]]:
    """What larger budgets would reach where that is supported; the claims; what went wrong."""
    tried: list[LargerBudget] = []
    notes: list[str] = []
    if plan is not None:
        tried.append(extrapolation.reach("the plan asked for", plan, evidence.D_unique))
    largest = max(c.C for c in grown)
    # Plans take a while, and what they rest on may be missing.
    for multiple in MULTIPLES if law is not None and enough(evidence) is None else ():
        assert law is not None
        found, why = extrapolation.attempt(lambda m=multiple: law.plan(compute=m * largest))
        label = f"{multiple}×"
        tried += (
            [extrapolation.reach(label, found, evidence.D_unique, law)]
            if found is not None
            else []
        )
        notes += [why] if why else []
    kept: list[LargerBudget] = []
    said: list[Claim] = []
    if not any("×" in r.label for r in tried):
        said.append(claims.forecast(evidence, None))
    before = None
    for reached in tried:
        claim = claims.forecast(evidence, reached, before if "×" in reached.label else None)
        said.append(claim)
        if claim.supported:
            kept.append(replace(reached, loss=extrapolation.above(reached.loss, evidence.entropy)))
            before = reached.loss.value if "×" in reached.label else before
    return tuple(kept), said, notes
