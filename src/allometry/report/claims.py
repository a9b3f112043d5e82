"""What a report claims: each claim with the guards it must pass before it is stated.

The headline, the tiles, the tables and charts of larger budgets, the terminal and the JSON output
all take their claims from here. A claim that fails a guard is replaced by what can be said, and by
which run would settle it.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from allometry._core.estimate import Estimate
from allometry.laws import Law, Plan
from allometry.report import extrapolation
from allometry.report import formatting as fmt
from allometry.report.extrapolation import Crossover, LargerBudget, above
from allometry.report.guards import (
    WIDEST_AMOUNT,
    WIDEST_LOSS,
    Evidence,
    Refusal,
    above_entropy,
    beyond_runs,
    comes_down,
    descending,
    enough,
    first,
    growing,
    narrow,
    sized,
    supplied,
    within_span,
    within_tests,
)
from allometry.report.prose import baseline, both, named, plural, size, verdict
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis
    from allometry.report.family_fit import FamilyFit


@final
@dataclass(frozen=True)
class Claim:
    """Something a report says about a study, or why it does not say it.

    Args:
        kind: `best`, `crossover` or `forecast`.
        family: Whose.
        supported: Whether it passed its guards.
        text: The sentences to read: the claim, or what can be said instead of it.
        reason: Why it is not supported; empty where it is.
        settled_by: Which run or data would settle it; empty where it is supported.
        values: The numbers claimed.
    """

    kind: str
    family: str
    supported: bool
    text: str
    reason: str = ""
    settled_by: str = ""
    values: dict[str, Estimate | float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain values, ready for JSON."""
        values = {
            name: x.to_dict() if isinstance(x, Estimate) else x for name, x in self.values.items()
        }
        return {
            "claim": self.kind,
            "family": self.family,
            "status": "supported" if self.supported else "not supported",
            "text": self.text,
            "reason": self.reason,
            "settled_by": self.settled_by,
            "values": values,
        }


def _passes(passes: float | None) -> str:
    if passes is None or passes <= 1:
        return ""
    return f"{fmt.significant(passes, 2)} passes over the data"


def forecast(e: Evidence, reached: LargerBudget | None, before: float | None = None) -> Claim:
    """What a larger budget would reach.

    Args:
        e: The family's evidence.
        reached: The law's plan for that budget; `None` where there is none.
        before: The loss forecast for the budget before.
    """
    what = "larger budgets" if reached is None else _times(reached.label)
    refusal = enough(e)
    if refusal is None and reached is None:
        refusal = Refusal("The law makes no plan for a larger budget.")
    if refusal is None and reached is not None:
        refusal = _doubted(e, reached, before)
    family = e.grown[0].family
    if refusal is not None or reached is None:
        return _refused("forecast", family, f"Loss at {what}", refusal)
    reached = replace(reached, loss=above(reached.loss, e.entropy))
    loss = fmt.estimated(reached.loss, fmt.loss, e.unit)
    where = ", ".join(filter(None, [sized(reached.N, reached.D, e.token), *_of(reached)]))
    text = f"Predicted loss at {what}: {loss}{f', with {where}' if where else ''}."
    values = {"C": reached.C, "loss": reached.loss, "N": reached.N, "D": reached.D}
    return Claim("forecast", family, True, text, values=values | {"passes": reached.passes})


def _doubted(e: Evidence, reached: LargerBudget, before: float | None) -> Refusal | None:
    return first(
        lambda: within_span(e, reached.C),
        lambda: growing(e, reached.N, reached.D),
        lambda: supplied(e, reached.D, reached.passes, reached.fresh is not None),
        lambda: descending(e, reached.loss, before),
        lambda: above_entropy(e, reached.loss),
        lambda: narrow(reached.loss, WIDEST_LOSS, fmt.loss),
    )


def _of(reached: LargerBudget) -> list[str]:
    often = _passes(reached.passes)
    if not often:
        return []
    return [f"{often}, repeated ones counted as worth less" if reached.fresh else often]


def _times(label: str) -> str:
    named = {"10×": "ten times the compute", "100×": "a hundred times the compute"}
    return named.get(label, "the planned compute")


def planned(law: Law, plan: Plan, D_unique: float | None, unit: str, token: str) -> Claim | None:
    """What a plan claims about runs of anyone's; `None` where N, D and C are not all known."""
    logs = law.table.logs
    if not {"N", "D", "C"} <= set(logs):
        return None
    columns = (np.exp(logs["N"]), np.exp(logs["D"]), np.exp(logs["C"]), np.exp(law.table.y))
    grown = tuple(
        Configuration("", "", N, D, C, Estimate(loss), None, 1, ())
        for N, D, C, loss in zip(*(x.tolist() for x in columns), strict=True)
    )
    tests = extrapolation.tested(law, None, ())
    e = Evidence(law, "", grown, (), tests, None, D_unique, unit, token)
    reached = extrapolation.reach("plan", plan, D_unique)
    if {"N", "D"} <= set(law.variables):
        reached = replace(reached, fresh=plan.loss)  # planned with repeated data worth less
    return forecast(e, reached)


def _refused(kind: str, family: str, what: str, refusal: Refusal | None) -> Claim:
    assert refusal is not None
    tail = " ".join(filter(None, [refusal.reason, refusal.settled_by]))
    text = f"{what}: not identified by these runs. {tail}"
    return Claim(kind, family, False, text, refusal.reason, refusal.settled_by)


def exact(rival: Configuration, entropy: float | None) -> bool:
    """Whether a baseline has the entropy itself as its loss: there is nothing below it."""
    if rival.exact or entropy is None:
        return rival.exact
    margin = max(1e-6 * abs(entropy), 1.96 * (rival.loss.se or 0.0))
    return rival.loss.value <= entropy + margin


def crossover(e: Evidence, rival: Configuration, met: Crossover | None) -> Claim:
    """Where the family has the loss of a baseline: measured, predicted, or not identified."""
    family, name = e.grown[0].family, baseline(rival)
    if exact(rival, e.entropy):
        text = (
            f"{name[:1].upper()}{name[1:]} has the entropy as its loss, "
            f"{fmt.loss(e.entropy or 0.0)}: no model can be better."
        )
        return Claim("crossover", family, False, text, "The baseline is exact.")
    below = [c for c in e.grown if c.loss.value <= rival.loss.value]
    if below:
        return _passed(e, rival, min(below, key=lambda c: c.C))
    what = f"Crossover with {name}"
    refusal = first(
        lambda: enough(e),
        lambda: comes_down(met),
        lambda: beyond_runs(e, met),
        lambda: growing(e, met.N, met.D) if met else None,
        lambda: within_tests(e, met),
        lambda: (
            None
            if met is None
            else supplied(
                e, met.D, met.passes, {"N", "D"} <= set(e.law.variables if e.law else ())
            )
        ),
        lambda: narrow(met.C, WIDEST_AMOUNT, fmt.flops) if met and met.C else None,
    )
    if refusal is not None or met is None or met.C is None:
        return _refused("crossover", family, what, refusal)
    where = sized(met.N, met.D, e.token)
    compute = f"{fmt.flops(met.C.value)}, 95 % interval {fmt.span(met.C, fmt.flops)}"
    text = f"Predicted crossover with {name}: "
    text += f"{where} ({compute})." if where else f"{compute}."
    if _passes(met.passes):
        text += f" That is {_passes(met.passes)}, repeated ones counted as worth less."
    values = {"C": met.C, "N": met.N, "D": met.D, "passes": met.passes}
    return Claim("crossover", family, True, text, values=values)


def _passed(e: Evidence, rival: Configuration, least: Configuration) -> Claim:
    """A crossover that the runs have behind them: the least compute with as low a loss."""
    where = f"{fmt.many(least.N, 'parameter')} on {fmt.many(least.D, e.token, plural(e.token))}"
    text = (
        f"The least compute with a loss as low as {baseline(rival)}'s is "
        f"{fmt.flops(least.C)}, measured at {where}."
    )
    values: dict[str, Estimate | float | None] = {"C": least.C, "N": least.N, "D": least.D}
    return Claim("crossover", least.family, True, text, values=values | {"measured": 1.0})


def best(story: "Analysis", family: "FamilyFit") -> Claim:
    """What the best model reaches, beside the best baseline: measured numbers alone."""
    made, rival, floor = family.best, story.rival, story.entropy
    who = f"the best {fmt.family(family.name)} ({size(made, story.token)})"
    if story.compared > 1:
        many = fmt.small(story.compared)
        who = f"the best of {many} trained families, {fmt.family(family.name)} "
        who += f"({size(made, story.token)}),"
    values: dict[str, Estimate | float | None] = {"loss": made.loss, "N": made.N, "D": made.D}
    values |= {"C": made.C}
    start = f"On {story.target}, {who} reaches"
    if rival is None:
        known = f"; the entropy is {fmt.loss(floor)}" if floor is not None else ""
        if floor is not None and made.loss.value < floor:
            known = f", within the evaluation's error of the entropy, {fmt.loss(floor)}"
        text = f"{start} {fmt.loss(made.loss.value)} {story.unit}{known}."
        return Claim("best", family.name, True, text, values=values)
    values |= {"baseline": rival.loss}
    which = verdict(made, rival)
    own, other = both(made.loss.value, rival.loss.value, level=which == 0)
    start, name = f"{start} {own} {story.unit}", baseline(rival)
    if exact(rival, floor) and which <= 0:
        text = f"{start}, level with {name}, which is exact: its loss, {other}, is the entropy."
    elif which < 0:
        text = f"{start} and is better than {name} at {other}."
    elif which > 0:
        text = f"{start}; {name} reaches {other} and is better."
    else:
        one = made.spread is None or rival.spread is None
        why = "one seed does" if one else "the spread between seeds does"
        text = f"{start}, level with {name} at {other}: {why} not separate them."
    return Claim("best", family.name, True, f"{text}{_data(story, made, rival)}", values=values)


def _data(story: "Analysis", made: Configuration, rival: Configuration) -> str:
    """Whose data were more, where a model that was trained and one that was fitted differ."""
    if rival.family not in ("ngram", *fmt.FITTED) or not min(made.D, rival.D) > 0:
        return ""
    if max(made.D, rival.D) / min(made.D, rival.D) < 1.05:
        return ""
    many = plural(story.token)
    return (
        f" The data are not equal: {fmt.many(rival.D, story.token, many)} for the baseline, "
        f"{fmt.many(made.D, story.token, many)} for the {fmt.family(made.family)}."
    )


def of(story: "Analysis") -> tuple[Claim, ...]:
    """Every claim of a study, those of the headline first."""
    made = [best(story, f) for f in story.families[:1]] if story.target != "domains" else []
    return (*made, *(claim for f in story.families for claim in f.claims))


def headline(story: "Analysis") -> str:
    """The answer in a few sentences, composed of claims."""
    if story.verdict:
        return story.verdict
    if story.best is None:
        what = fmt.several(len(story.unfinished), "run")
        if story.total == 0:
            return f"There are no runs on {story.target} yet, so there is nothing to tell."
        return f"No run on {story.target} has finished: {what} diverged or failed, so no law."
    if not story.families:
        loss = fmt.estimated(story.best.loss, fmt.loss, story.unit)
        return (
            f"On {story.target}, the best {named(story.best)} reaches {loss}. No trained family "
            "has a finished run to set beside it."
        )
    if story.target == "domains":
        each = [f"{fmt.loss(f.best.loss.value)} for {fmt.family(f.name)}" for f in story.families]
        return (
            f"One transformer on {fmt.small(len(each))} kinds of data: where counting single "
            f"symbols has a loss of 1, the best of each has {fmt.listed(each)}."
        )
    family = story.families[0]
    return f"{best(story, family).text} {outlook(story, family).text}"


def outlook(story: "Analysis", family: "FamilyFit") -> Claim:
    """The claim about larger models for the headline: the crossover while a baseline is ahead."""
    crossed = next((c for c in family.claims if c.kind == "crossover"), None)
    if crossed is not None and story.rival is not None and verdict(family.best, story.rival) > 0:
        return crossed
    forecasts = [c for c in family.claims if c.kind == "forecast"]
    return next((c for c in forecasts if "planned" not in c.text), forecasts[0])
