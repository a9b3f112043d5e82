"""A plan as plain cells and sentences, for pages and the terminal alike."""

from allometry._core.errors import InputError
from allometry._core.estimate import Estimate
from allometry.laws import Plan
from allometry.laws.hoffmann import ApproachResult
from allometry.report import formatting as fmt
from allometry.report import likelihood_units
from allometry.report.prose import plural
from allometry.report.tables import Cell, Head, Table


def table(plan: Plan, unit: str = "nats", token: str = "token") -> Table:
    """Size, data and loss with their intervals, and the FLOPs lost to doubt."""
    heads = (Head("", kind="tight"), Head(f"with {fmt.flops(plan.compute)}"))

    def row(name: str, x: Estimate | None, write: fmt.Writer, what: str) -> tuple[Cell, ...]:
        text = "not told by this law" if x is None else fmt.estimated(x, write, what)
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
        lost = f"{share} of the budget, for not knowing the best split better"
        rows = (*rows, (Cell("FLOPs lost"), Cell(lost)))
    return Table("Plan", heads, rows)


def repeated(plan: Plan, unique: float | None, token: str, *, counted: bool) -> str:
    """What a plan makes of limited data, in a sentence; nothing where there are enough.

    Args:
        plan: The plan.
        unique: Distinct data there are.
        token: What they are counted in.
        counted: Whether the plan counts repeated data as worth less.
    """
    if unique is None or plan.D is None or plan.D.value <= unique:
        return ""
    passes = fmt.significant(plan.D.value / unique, 2)
    start = f"The plan takes {passes} passes over the {fmt.many(unique, token, plural(token))} "
    if counted:
        return f"{start}there are; repeated ones are counted as worth less."
    return f"{start}there are, and this law does not know what repeated data are worth."


_APPROACHES = {
    "envelope": "the envelope of the best runs",
    "isoflop": "parabolas at equal compute",
    "parametric": "the parametric law alone",
}


def approach(name: str, found: ApproachResult | InputError) -> str:
    """What one of the three approaches to the best size says, in a sentence."""
    if isinstance(found, InputError):
        return f"By {_APPROACHES[name]}: not to be had. {found}"
    size = fmt.estimated(found.N, fmt.count, "parameters")
    return f"By {_APPROACHES[name]}: {size}; N grows as C^{found.exponent.value:.2f}."
