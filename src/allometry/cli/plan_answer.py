"""The answer of `allometry plan`: computed, printed, written as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from allometry._core.errors import InputError
from allometry._core.estimate import Estimate
from allometry.cli.console import out, say

if TYPE_CHECKING:
    from allometry.cli.plan_output import Details
    from allometry.laws.law import Law
    from allometry.laws.plan import Plan
    from allometry.report.claims import Claim
    from allometry.report.planner_data import Question

OWN_ALLOCATION = (
    "The plan's own size is read from the runs near the compute-optimal frontier. On public runs "
    "it was closer to the optimal sizes of larger budgets than these three (docs/laws.md, Plan)."
)


@final
@dataclass(frozen=True)
class Answer:
    """A plan and what is said with it.

    Args:
        plan: The allocation.
        needed: The compute budget.
        reach: The loss to reach, if that was asked for.
        claim: The sentence that the runs support or do not.
        details: Cost, memory, time and the next runs.
        question: What was asked, with the budget in FLOPs.
        unit: Unit of the loss.
        token: Name of a token.
    """

    plan: "Plan"
    needed: Estimate
    reach: float | None
    claim: "Claim | None"
    details: "Details"
    question: "Question"
    unit: str
    token: str

    def to_dict(self, others: Mapping[str, Any]) -> dict[str, Any]:
        """The answer as JSON; `others` are the allocations of other approaches."""
        approaches = {
            name: {"error": str(a)} if isinstance(a, InputError) else a.to_dict()
            for name, a in others.items()
        }
        reached = {"reach": {"loss": self.reach, "C": self.needed.to_dict()}}
        stated = {"claims": [] if self.claim is None else [self.claim.to_dict()]}
        known = self.plan.to_dict() | (reached if self.reach is not None else {}) | stated
        return known | {"approaches": approaches} | self.details.to_dict()

    def show(self, law: "Law", others: Mapping[str, Any]) -> None:
        """Print the answer."""
        from allometry.report.formatting import estimated, flops
        from allometry.report.plan_cells import approach
        from allometry.report.terminal import plan_table

        if self.reach is not None:
            out.print(f"A loss of {self.reach:g} takes {estimated(self.needed, flops)}.")
        out.print(plan_table(self.plan, self.unit, self.token))
        self.details.show(self.token)
        # The approaches plan training alone.
        shown = {} if self.question.inference_tokens else others
        for name, a in shown.items():
            say(approach(name, a))
        if shown and law.allocation.backtested:
            say(OWN_ALLOCATION)


def answer(
    law: "Law",
    question: "Question",
    *,
    reach: float | None,
    batch_tokens: float,
    unit: str,
    token: str,
    stated_unique: float | None,
) -> Answer:
    """Plan the question's budget, or the budget that reaches a loss.

    Args:
        law: A scaling law in N or D.
        question: Budget, fixed size or tokens, unique and inference tokens, hardware.
        reach: The loss to reach; the question's budget is then ignored.
        batch_tokens: Tokens of a batch, for the memory.
        unit: Unit of the loss.
        token: Name of a token.
        stated_unique: Unique tokens as an option of the command, not from a study.
    """
    from allometry import laws
    from allometry.cli.plan_output import details
    from allometry.laws.plan_costs import budget_to_reach
    from allometry.report import claims
    from allometry.report.plan_cells import repeated

    both = {"N", "D"} <= set(law.variables)
    inference = question.inference_tokens or 0.0
    if reach is None:
        needed = laws.budget(law, question.compute)
    else:
        free = question.N is None and question.D is None
        needed = budget_to_reach(
            law, reach, unique=question.unique if both and free else None,
            inference_tokens=inference if free else 0.0,
        )  # fmt: skip
    plan = law.plan(
        needed.value,
        N=question.N,
        D=question.D,
        unique=question.unique if both else stated_unique,
        inference_tokens=inference,
    )
    limited = repeated(plan, question.unique, token, counted=both)
    if limited:
        plan.warnings.insert(0, limited)
    claim = claims.planned(law, plan, question.unique, unit, token)
    if claim is not None and not claim.supported:
        plan.warnings.insert(0, claim.text)
    more = details(
        law, plan, needed, hardware=question.hardware, batch_tokens=batch_tokens,
        inference_tokens=inference, unique=question.unique,
    )  # fmt: skip
    asked = replace(question, compute=needed.value)
    return Answer(plan, needed, reach, claim, more, asked, unit, token)
