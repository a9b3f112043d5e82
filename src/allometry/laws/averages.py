"""What a law is made of: its forms, each with weight and own parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allometry._core.estimate import Estimate
from allometry._core.notebook import interval
from allometry.laws.component import Component
from allometry.laws.selection import display_name

CARRIES = 0.9
"""From this weight on, a form's parameters describe the law. An average of forms has none."""


def carried(members: Sequence[Component]) -> bool:
    """Whether one form carries the law, so that its parameters are those of the law."""
    return members[0].weight >= CARRIES


def heading(members: Sequence[Component]) -> str:
    """The name and equation of the form that carries the law, or the forms of the average."""
    if carried(members):
        return f"{members[0].form.name}: {members[0].form.equation}"
    names = [f"{display_name(m.form)} ({m.weight:.0%})" for m in members]
    return f"average of {', '.join(names)}"


def parameter_lines(members: Sequence[Component], n: int) -> list[str]:
    """The heading, and the parameters of the form that carries the law or of every form."""
    lines = [f"{heading(members)}  (n = {n})"]
    whole = carried(members)
    for m in members[:1] if whole else members:
        if not whole:
            lines.append(f"  {display_name(m.form)}: {m.form.equation}")
        lines += [f"  {'' if whole else '  '}{k} = {e}" for k, e in estimates(m, n).items()]
    return lines


def parameter_rows(members: Sequence[Component], n: int) -> list[tuple[str, str, str]]:
    """The same as rows of a table: the parameter, its value and its interval."""
    whole = carried(members)
    return [
        (name if whole else f"{name} of {display_name(m.form)}", *interval(value))
        for m in (members[:1] if whole else members)
        for name, value in estimates(m, n).items()
    ]


def described(members: Sequence[Component], n: int) -> list[dict[str, Any]]:
    """Each form as plain values: name, variables, weight, equation and own parameters.

    Args:
        members: The fitted forms, largest weight first.
        n: Number of runs.
    """
    return [
        {
            "form": m.form.name,
            "name": display_name(m.form),
            "variables": list(m.form.variables),
            "weight": m.weight,
            "equation": m.form.equation,
            "params": {k: e.to_dict() for k, e in estimates(m, n).items()},
        }
        for m in members
    ]


def estimates(member: Component, n: int) -> dict[str, Estimate]:
    """The value of each parameter, with standard error and interval from the draws."""
    values = member.form.public(member.theta[None], member.centre)
    if len(member.draws) < 20:
        return {
            k: Estimate(float(v[0]), n=n, method="no bootstrap draws") for k, v in values.items()
        }
    spread = member.form.public(member.draws, member.centre)
    out = {}
    for k, v in values.items():
        finite = spread[k][np.isfinite(spread[k])]
        # Infinite draws cannot be interpolated.
        rule = "linear" if len(finite) == len(spread[k]) else "nearest"
        lo, hi = np.quantile(spread[k], [0.025, 0.975], method=rule)
        with np.errstate(over="ignore"):  # a level that is not identified
            se = float(finite.std(ddof=1)) if len(finite) > 1 else None
        out[k] = Estimate(
            float(v[0]),
            se=se if se is not None and np.isfinite(se) else None,
            lo=float(lo),
            hi=float(hi),
            n=n,
            method=(
                "delta method"
                if member.resampling == "delta"
                else f"{member.resampling} bootstrap"
            ),
        )
    return out
