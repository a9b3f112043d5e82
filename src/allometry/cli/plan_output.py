"""A plan printed or written as JSON, with its costs and the runs that would narrow it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from allometry.cli.console import out, say

if TYPE_CHECKING:
    from allometry._core.estimate import Estimate
    from allometry.laws import Design, Law, Plan
    from allometry.laws.hardware import Hardware
    from allometry.laws.plan_costs import Fit, Lifetime, Usage

NEXT_SHARE = 0.1
"""Share of the plan's budget that may be spent on runs that narrow it."""

MOST_NEXT = 3
"""Number of such runs, at most."""


@final
@dataclass(frozen=True)
class Details:
    """What a plan takes and what would narrow it.

    Args:
        plan: The plan.
        compute: Its budget, with an interval if a loss was asked for.
        hardware: The hardware, if given.
        used: Time, cost and energy on it.
        fit: Memory on it.
        life: Training and inference, if inference is planned for.
        unique: Amount of unique data, if known.
        design: The runs that would narrow the prediction, if any could be sought.
    """

    plan: "Plan"
    compute: "Estimate"
    hardware: "Hardware | None"
    used: "Usage | None"
    fit: "Fit | None"
    life: "Lifetime | None"
    unique: float | None
    design: "Design | None"

    def to_dict(self) -> dict[str, Any]:
        """The keys that the plan's JSON has beside those of the plan."""
        plan, unique = self.plan, self.unique
        needed = None if plan.D is None else plan.D.value
        epochs = None if unique is None or needed is None else needed / unique
        following = None
        if self.design is not None:
            following = {"budget": NEXT_SHARE * plan.compute, **self.design.to_dict()}
            if self.hardware is not None and self.hardware.price is not None:
                following["cost"] = self.hardware.cost(self.design.spent)
                for run in following["runs"]:
                    run["cost"] = self.hardware.cost(run["compute"])
        return {
            "hardware": None if self.hardware is None else self.hardware.to_dict(),
            "usage": None if self.used is None else self.used.to_dict(),
            "lost_cost": self._lost_cost(),
            "memory": None if self.fit is None else self.fit.to_dict(),
            "data": {"needed": needed, "available": unique, "epochs": epochs},
            "inference": None if self.life is None else self.life.to_dict(),
            "next": following,
        }

    def _lost_cost(self) -> dict[str, float] | None:
        """Money wasted if the plan is wrong: mean and 97.5 % quantile."""
        if self.hardware is None or self.hardware.price is None or self.plan.lost is None:
            return None
        mean, most = self.plan.lost.value, self.plan.lost.interval[1]
        return {"value": self.hardware.cost(mean), "hi": self.hardware.cost(most)}

    def show(self, token: str) -> None:
        """Print the costs and the next runs."""
        from allometry.report import plan_cost_cells as cells
        from allometry.report.terminal import drawn

        if self.hardware is not None and self.used is not None:
            out.print()
            table = cells.costs(self.plan, self.hardware, self.used, self.fit, self.life, token)
            out.print(drawn(table))
        if self.life is not None and (sentence := cells.lifetime_sentence(self.life, token)):
            out.print(sentence)
        if sentence := cells.data_sentence(self.plan, self.unique, token):
            out.print(sentence)
        if self.design is not None:
            out.print()
            if (table := cells.next_table(self.design, self.hardware)) is not None:
                out.print(drawn(table))
            budget = NEXT_SHARE * self.plan.compute
            out.print(cells.next_sentence(self.design, budget, self.hardware))
        if self.hardware is None:
            say("Add --hardware 8xH100 --price 2.5/h for hours, cost, energy and memory.")


def details(
    law: "Law",
    plan: "Plan",
    compute: "Estimate",
    *,
    hardware: "Hardware | None",
    batch_tokens: float,
    inference_tokens: float,
    unique: float | None,
) -> Details:
    """What a plan takes and what would narrow it."""
    from allometry import AllometryError, laws
    from allometry.laws import plan_costs

    life = used = fit = design = None
    if inference_tokens:
        life = plan_costs.lifetime(law, plan, inference_tokens, unique)
    if hardware is not None:
        used = plan_costs.usage(compute, hardware)
        if plan.N is not None:
            fit = plan_costs.memory_fit(plan.N.value, hardware, batch_tokens)
    N, D = (None if x is None else x.value for x in (plan.N, plan.D))
    try:
        design = laws.next_runs(
            law,
            NEXT_SHARE * plan.compute,
            N=N,
            D=D,
            compute=plan.compute if N is None or D is None else None,
            most=MOST_NEXT,
        )
    except AllometryError:  # a budget smaller than any run, or an unbounded interval
        design = None
    return Details(plan, compute, hardware, used, fit, life, unique, design)
