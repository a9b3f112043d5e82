"""A plan as cells and sentences, for pages and the terminal alike."""

from allometry._core.errors import InputError
from allometry._core.estimate import Estimate
from allometry.laws import Plan
from allometry.laws.hoffmann import ApproachResult
from allometry.report import formatting as fmt
from allometry.report import likelihood_units
from allometry.report.cells import Cell, Head, Table
from allometry.report.prose import pass_count, plural


def table(plan: Plan, unit: str = "nats", token: str = "token") -> Table:
    """Size, data and loss with their intervals, and the FLOPs lost to parameter uncertainty."""
    heads = (Head("", kind="tight"), Head(f"with {fmt.flops(plan.compute)}"))

    def row(name: str, x: Estimate | None, write: fmt.Writer, what: str) -> tuple[Cell, ...]:
        text = "not identified by this law" if x is None else fmt.estimated(x, write, what)
        return Cell(name), Cell(text)

    rows = (
        row("N", plan.N, fmt.count, "parameters"),
        row("D", plan.D, fmt.count, plural(token)),
        row("loss", plan.loss, fmt.loss, unit),
        *(
            row("", plan.loss and u.of(plan.loss), u.write, u.name)
            for u in likelihood_units.others(unit)
        ),
    )
    if plan.lost is not None:
        most = plan.lost.interval[1]
        share = f"{plan.lost.value / plan.compute:.2%}, at most {most / plan.compute:.2%}"
        lost = f"{share} of the budget, from uncertainty about the compute-optimal allocation"
        rows = (*rows, (Cell("FLOPs lost"), Cell(lost)))
    return Table("Plan", heads, rows)


def repeated(plan: Plan, unique: float | None, token: str, *, counted: bool) -> str:
    """A sentence on the passes over limited data; empty if there are enough data.

    Args:
        plan: The plan.
        unique: Amount of distinct data.
        token: Unit of the data.
        counted: Whether the plan discounts repeated data.
    """
    if unique is None or plan.D is None or plan.D.value <= unique:
        return ""
    data = fmt.many(unique, token, plural(token))
    start = f"The plan takes {pass_count(plan.D.value / unique)} over the {data} available"
    if counted:
        return f"{start}; repeated data are discounted."
    return f"{start}, and this law does not predict the value of repeated data."


_APPROACHES = {
    "envelope": "the envelope of the best runs",
    "isoflop": "parabolas at equal compute",
    "parametric": "the parametric law",
}


def approach(name: str, found: ApproachResult | InputError) -> str:
    """The compute-optimal size by one of the three approaches, as a sentence."""
    if isinstance(found, InputError):
        return f"By {_APPROACHES[name]}: unavailable: {found}"
    size = fmt.estimated(found.N, fmt.count, "parameters")
    return f"By {_APPROACHES[name]}: {size}; N grows as C^{found.exponent.value:.2f}."
