"""The claims of a report, each with the guards it must pass before it is stated.

The headline, the facts, the tables and charts of larger budgets, the terminal and the JSON output
all take their claims from here. A claim that fails a guard is replaced by the reason and by the
run that would settle it.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from allometry._core.estimate import Estimate
from allometry.laws import Law, Plan
from allometry.report import extrapolation
from allometry.report import formatting as fmt
from allometry.report.extrapolation import Crossover, LargerBudget, at_least
from allometry.report.guards import (
    WIDEST_AMOUNT,
    WIDEST_LOSS,
    Evidence,
    Refusal,
    above_entropy,
    beyond_runs,
    descending,
    enough,
    first,
    growing,
    narrow,
    reaches_baseline,
    sized,
    supplied,
    within_span,
    within_tests,
)
from allometry.report.prose import baseline, both, named, passes, plural, size, verdict
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis
    from allometry.report.family_fit import FamilyFit


@final
@dataclass(frozen=True)
class Claim:
    """A statement about a study, or the reason why it is not supported.

    Args:
        kind: `best`, `crossover` or `forecast`.
        family: The family it is about.
        supported: Whether it passed its guards.
        text: The sentences to print: the claim, or what replaces it.
        reason: Why it is not supported; empty if it is.
        settled_by: The run or data that would settle it; empty if it is supported.
        values: The numbers of the claim.
    """

    kind: str
    family: str
    supported: bool
    text: str
    reason: str = ""
    settled_by: str = ""
    values: dict[str, Estimate | float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain values for JSON."""
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


def forecast(e: Evidence, larger: LargerBudget | None, before: float | None = None) -> Claim:
    """The predicted loss at a larger budget.

    Args:
        e: The family's evidence.
        larger: The prediction for that budget; `None` if there is none.
        before: The loss predicted for the next smaller budget.
    """
    what = "larger budgets" if larger is None else _budget_name(larger.label)
    refusal = enough(e)
    if refusal is None and larger is None:
        refusal = Refusal("The scaling law makes no plan for a larger budget.")
    if refusal is None and larger is not None:
        refusal = _forecast_refusal(e, larger, before)
    family = e.grown[0].family
    if refusal is not None or larger is None:
        return _refused("forecast", family, f"Loss at {what}", refusal)
    larger = replace(larger, loss=at_least(larger.loss, e.entropy))
    loss = fmt.estimated(larger.loss, fmt.loss, e.unit)
    repeats = _repeats(larger.passes, discounted=larger.fresh is not None)
    where = ", ".join(filter(None, [sized(larger.N, larger.D, e.token), repeats]))
    text = f"Predicted loss at {what}: {loss}{f', with {where}' if where else ''}."
    values = {"C": larger.C, "loss": larger.loss, "N": larger.N, "D": larger.D}
    return Claim("forecast", family, True, text, values=values | {"passes": larger.passes})


def _forecast_refusal(e: Evidence, larger: LargerBudget, before: float | None) -> Refusal | None:
    return first(
        lambda: within_span(e, larger.C),
        lambda: growing(e, larger.N, larger.D),
        lambda: supplied(e, larger.D, larger.passes, larger.fresh is not None),
        lambda: descending(e, larger.loss, before),
        lambda: above_entropy(e, larger.loss),
        lambda: narrow(larger.loss, WIDEST_LOSS, fmt.loss),
    )


def _repeats(count: float | None, *, discounted: bool) -> str:
    """How often the data are repeated; empty if they are not."""
    if count is None or count <= 1:
        return ""
    return f"{passes(count)}{', with repeated data discounted' if discounted else ''}"


def _budget_name(label: str) -> str:
    names = {"10×": "ten times the compute", "100×": "a hundred times the compute"}
    return names.get(label, "the planned compute")


def planned(law: Law, plan: Plan, D_unique: float | None, unit: str, token: str) -> Claim | None:
    """The forecast of a plan for a table of runs; `None` unless N, D and C are all known."""
    logs = law.table.logs
    if not {"N", "D", "C"} <= set(logs):
        return None
    columns = (np.exp(logs["N"]), np.exp(logs["D"]), np.exp(logs["C"]), np.exp(law.table.y))
    grown = tuple(
        Configuration("", "", N, D, C, Estimate(loss), None, 1, ())
        for N, D, C, loss in zip(*(x.tolist() for x in columns), strict=True)
    )
    tested = extrapolation.tested(law, None, ())
    e = Evidence(law, "", grown, (), tested, None, D_unique, unit, token)
    larger = extrapolation.larger_budget("plan", plan, D_unique)
    if {"N", "D"} <= set(law.variables):
        larger = replace(larger, fresh=plan.loss)  # the plan discounts repeated data
    return forecast(e, larger)


def _refused(kind: str, family: str, what: str, refusal: Refusal | None) -> Claim:
    assert refusal is not None
    tail = " ".join(filter(None, [refusal.reason, refusal.settled_by]))
    text = f"{what}: not identified by these runs. {tail}"
    return Claim(kind, family, False, text, refusal.reason, refusal.settled_by)


def exact(rival: Configuration, entropy: float | None) -> bool:
    """Whether the loss of a baseline is the entropy, so that no model can be better."""
    if rival.exact or entropy is None:
        return rival.exact
    margin = max(1e-6 * abs(entropy), 1.96 * (rival.loss.se or 0.0))
    return rival.loss.value <= entropy + margin


def crossover(e: Evidence, rival: Configuration, met: Crossover | None) -> Claim:
    """Where the family reaches the loss of a baseline: measured, predicted, or not identified."""
    family, name = e.grown[0].family, baseline(rival)
    if exact(rival, e.entropy):
        text = (
            f"The loss of {name}, {fmt.loss(e.entropy or 0.0)}, is the entropy: no model can be "
            "better."
        )
        return Claim("crossover", family, False, text, "The baseline is exact.")
    below = [c for c in e.grown if c.loss.value <= rival.loss.value]
    if below:
        return _measured(e, rival, min(below, key=lambda c: c.C))
    what = f"Crossover with {name}"
    refusal = first(
        lambda: enough(e),
        lambda: reaches_baseline(met),
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
    text = f"Predicted {what[:1].lower()}{what[1:]}: "
    text += f"{where} ({compute})." if where else f"{compute}."
    repeats = _repeats(met.passes, discounted=True)
    text += f" That takes {repeats}." if repeats else ""
    values = {"C": met.C, "N": met.N, "D": met.D, "passes": met.passes}
    return Claim("crossover", family, True, text, values=values)


def _measured(e: Evidence, rival: Configuration, least: Configuration) -> Claim:
    """A crossover within the runs: the least compute that reaches the baseline's loss."""
    where = f"{fmt.many(least.N, 'parameter')} on {fmt.many(least.D, e.token, plural(e.token))}"
    text = (
        f"Measured crossover with {baseline(rival)}: {where} ({fmt.flops(least.C)}), the least "
        "compute that reaches its loss."
    )
    values: dict[str, Estimate | float | None] = {"C": least.C, "N": least.N, "D": least.D}
    return Claim("crossover", least.family, True, text, values=values | {"measured": 1.0})


def best(analysis: "Analysis", family: "FamilyFit") -> Claim:
    """The loss of the best model beside the best baseline: measured numbers only."""
    own, rival, entropy = family.best, analysis.rival, analysis.entropy
    who = f"the best {fmt.family(family.name)} ({size(own, analysis.token)})"
    if analysis.compared > 1:
        who = (
            f"the best of {fmt.small(analysis.compared)} trained families, "
            f"{fmt.family(family.name)} ({size(own, analysis.token)}),"
        )
    values: dict[str, Estimate | float | None] = {"loss": own.loss, "N": own.N, "D": own.D}
    values |= {"C": own.C}
    start = f"On {analysis.target}, {who} reaches"
    if family.name == analysis.target and analysis.compared == 1:
        # The user's own training code gives both names.
        start = f"The best run of {family.name} ({size(own, analysis.token)}) reaches"
    if rival is None:
        known = f"; the entropy is {fmt.loss(entropy)}" if entropy is not None else ""
        if entropy is not None and own.loss.value < entropy:
            known = f", within the evaluation error of the entropy, {fmt.loss(entropy)}"
        text = f"{start} {fmt.loss(own.loss.value)} {analysis.unit}{known}."
        return Claim("best", family.name, True, text, values=values)
    values |= {"baseline": rival.loss}
    order = verdict(own, rival)
    loss, other = both(own.loss.value, rival.loss.value, tied=order == 0)
    start, name = f"{start} {loss} {analysis.unit}", baseline(rival)
    if exact(rival, entropy) and order <= 0:
        text = f"{start}, tied with {name}, which is exact: its loss, {other}, is the entropy."
    elif order < 0:
        text = f"{start} and is better than {name} at {other}."
    elif order > 0:
        text = f"{start}; {name} reaches {other} and is better."
    else:
        one = own.spread is None or rival.spread is None
        why = "one seed does" if one else "the spread between seeds does"
        text = f"{start}, tied with {name} at {other}: {why} not separate them."
    return Claim("best", family.name, True, f"{text}{_data(analysis, own, rival)}", values=values)


def _data(analysis: "Analysis", own: Configuration, rival: Configuration) -> str:
    """The data of a trained model and of a fitted baseline, if they differ."""
    if rival.family not in ("ngram", *fmt.FITTED) or not min(own.D, rival.D) > 0:
        return ""
    if max(own.D, rival.D) / min(own.D, rival.D) < 1.05:
        return ""
    many = plural(analysis.token)
    return (
        f" The training data differ: {fmt.many(rival.D, analysis.token, many)} for the baseline, "
        f"{fmt.many(own.D, analysis.token, many)} for the {fmt.family(own.family)}."
    )


def of(analysis: "Analysis") -> tuple[Claim, ...]:
    """Every claim of a study, those of the headline first."""
    measured = [best(analysis, f) for f in analysis.families[:1]]
    if analysis.target == "domains":
        measured = []  # losses on different domains do not compare
    return (*measured, *(claim for f in analysis.families for claim in f.claims))


def headline(analysis: "Analysis") -> str:
    """The answer in a few sentences, composed of claims."""
    target = analysis.target
    if analysis.verdict:
        return analysis.verdict
    if analysis.best is None:
        if analysis.total == 0:
            return f"There are no runs on {target} yet."
        count = fmt.several(len(analysis.unfinished), "run")
        return (
            f"No run on {target} has finished: {count} diverged or failed. There is no scaling "
            "law to fit."
        )
    if not analysis.families:
        loss = fmt.estimated(analysis.best.loss, fmt.loss, analysis.unit)
        return (
            f"On {target}, the best {named(analysis.best)} reaches {loss}. No trained family has "
            "a finished run to compare it with."
        )
    if target == "domains":
        each = [
            f"{fmt.loss(f.best.loss.value)} for {fmt.family(f.name)}" for f in analysis.families
        ]
        return (
            f"One transformer on {fmt.small(len(each))} kinds of data: relative to the unigram "
            f"entropy of each, the lowest losses are {fmt.listed(each)}."
        )
    family = analysis.families[0]
    return f"{best(analysis, family).text} {outlook(analysis, family).text}"


def outlook(analysis: "Analysis", family: "FamilyFit") -> Claim:
    """The headline's claim about larger models: the crossover while a baseline is better."""
    rival = analysis.rival
    crossed = next((c for c in family.claims if c.kind == "crossover"), None)
    if crossed is not None and rival is not None and verdict(family.best, rival) > 0:
        return crossed
    forecasts = [c for c in family.claims if c.kind == "forecast"]
    return next((c for c in forecasts if "planned" not in c.text), forecasts[0])
