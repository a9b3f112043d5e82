"""One trained family: its scaling law, the test on held-out sizes, and the supported claims."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from allometry.laws import Law, Plan
from allometry.report import claims, extrapolation
from allometry.report import formatting as fmt
from allometry.report.claims import Claim
from allometry.report.extrapolation import Crossover, Frontier, HeldOut, LargerBudget
from allometry.report.guards import Evidence, enough
from allometry.report.prose import coverage
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    import pandas as pd

MULTIPLES = (10, 100)
ROUGH = 0.05
"""Relative error on held-out sizes above which a note calls the law rough."""


@final
@dataclass(frozen=True)
class FamilyFit:
    """One trained family: its scaling law, the test of the law, and its claims.

    Args:
        name: The family.
        configurations: Its finished runs, averaged over seeds, smallest compute first.
        best: The configuration with the lowest loss.
        law: Fitted to all finished runs; `None` if they are too few (see `notes`).
        law_without: Fitted without the held-out sizes.
        held_sizes: The sizes kept out of `law_without`.
        held_out: Predicted and measured losses of these sizes.
        crossing: The predicted crossover with the best baseline; `None` if not supported.
        reaches: Predictions for larger budgets that are supported.
        frontier: Loss against compute with its band, from the smallest run to the largest budget.
        notes: What is missing or uncertain, in sentences.
        claims: The crossover and the forecasts, each stated or refused with the reason.
        entropy: The loss that no model can go below on its target, if known.
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
    """What all families of a study share: units, data, entropy and options of the fit."""

    unit: str
    token: str
    D_unique: float | None
    entropy: float | None
    hold_out: int
    seed: int
    bootstrap: int


def fit_family(
    done: "pd.DataFrame",
    grown: list[Configuration],
    rival: Configuration | None,
    settings: FitSettings,
    law: Law | None,
    plan: Plan | None,
) -> FamilyFit:
    """Fit, test and judge the scaling law of one family.

    Args:
        done: The family's finished runs.
        grown: The same, averaged over seeds.
        rival: The best baseline on the family's target.
        settings: What all families share.
        law: The law to use. Default: fitted to `done`.
        plan: A plan made from the law, to show beside larger budgets.
    """
    notes: list[str] = []
    missing = ""
    best = min(grown, key=lambda c: c.loss.value)
    if law is None:
        law, missing = extrapolation.fit(done, settings.seed, settings.bootstrap)
    held, why = extrapolation.hold_out(done, settings.hold_out)
    notes += [why] if why and law is not None else []
    law_without, tested_on = None, ()
    if held and law is not None:
        law_without, why = extrapolation.fit(
            done[~done["N"].isin(held)], settings.seed, settings.bootstrap
        )
        notes += [why] if why else []
        if law_without is not None:
            tested_on = extrapolation.predicted(law_without, [c for c in grown if c.N in held])
            notes += _caution(tested_on)
    if rival is not None and rival.exact:
        settings = replace(settings, entropy=rival.loss.value)
    evidence = Evidence(
        law=law,
        why=missing,
        grown=tuple(grown),
        held_out=tested_on,
        tested=0.0 if law is None else extrapolation.tested(law, law_without, tested_on),
        entropy=settings.entropy,
        D_unique=settings.D_unique,
        unit=settings.unit,
        token=settings.token,
    )
    reaches, stated, problems = _larger_budgets(law, plan, grown, evidence)
    met = None
    if rival is not None:
        behind = best.loss.value > rival.loss.value and enough(evidence) is None
        if law is not None and behind:
            met = extrapolation.crossing(law, rival, settings.D_unique)
        stated = [claims.crossover(evidence, rival, met), *stated]
        met = met if stated[0].supported and "measured" not in stated[0].values else None
    line, why = _line(law, grown, reaches, met, settings)
    notes += [why] if why else []
    return FamilyFit(
        name=best.family,
        configurations=tuple(grown),
        best=best,
        law=law,
        law_without=law_without,
        held_sizes=tuple(held) if law_without is not None else (),
        held_out=tested_on,
        crossing=met,
        reaches=reaches,
        frontier=line,
        notes=tuple(dict.fromkeys(notes + problems)),
        claims=tuple(stated),
        entropy=settings.entropy,
    )


def _line(
    law: Law | None,
    grown: list[Configuration],
    reaches: tuple[LargerBudget, ...],
    met: Crossover | None,
    settings: FitSettings,
) -> tuple[Frontier | None, str]:
    """The law's line for the chart, no farther than the supported claims."""
    if law is None:
        return None, ""
    top = max([c.C for c in grown] + [r.C for r in reaches])
    top = max(top, met.C.value) if met is not None and met.C is not None else top
    grid = np.geomspace(min(c.C for c in grown), top, 80)
    line, why = extrapolation.attempt(lambda: extrapolation.frontier(law, grid, settings.D_unique))
    if line is not None and settings.entropy is not None:
        line = line.at_least(settings.entropy)
    return line, why


def _caution(held: tuple[HeldOut, ...]) -> list[str]:
    """A note if the law missed the held-out sizes by far or its intervals do not cover them."""
    worst = max((abs(h.error) for h in held), default=0.0)
    covered = [h.covered for h in held]
    if worst <= ROUGH and all(covered):
        return []
    missed = "" if all(covered) else f"; {coverage(covered)}"
    return [
        f"The error of the scaling law on held-out sizes was up to {fmt.percent(worst)}{missed}. "
        "Its predictions beyond the runs are rough."
    ]


def _larger_budgets(
    law: Law | None, plan: Plan | None, grown: list[Configuration], evidence: Evidence
) -> tuple[tuple[LargerBudget, ...], list[Claim], list[str]]:
    """The supported predictions for larger budgets, all forecasts as claims, and problems."""
    tried: list[LargerBudget] = []
    notes: list[str] = []
    unique = evidence.D_unique
    if plan is not None:
        tried.append(extrapolation.larger_budget("the plan asked for", plan, unique))
    largest = max(c.C for c in grown)
    # Plans take a while, so none is made without the evidence for it.
    for multiple in MULTIPLES if law is not None and enough(evidence) is None else ():
        assert law is not None
        found, why = extrapolation.attempt(lambda m=multiple: law.plan(compute=m * largest))
        if found is not None:
            tried.append(extrapolation.larger_budget(f"{multiple}×", found, unique, law))
        notes += [why] if why else []
    supported: list[LargerBudget] = []
    stated: list[Claim] = []
    if not any("×" in r.label for r in tried):
        stated.append(claims.forecast(evidence, None))
    before = None
    for larger in tried:
        claim = claims.forecast(evidence, larger, before if "×" in larger.label else None)
        stated.append(claim)
        if claim.supported:
            bounded = extrapolation.at_least(larger.loss, evidence.entropy)
            supported.append(replace(larger, loss=bounded))
            before = larger.loss.value if "×" in larger.label else before
    return tuple(supported), stated, notes
