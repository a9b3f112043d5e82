"""What the runs can't tell, in words.

Letters: n runs.
"""

import numpy as np

from allometry._core.estimate import Estimate
from allometry.laws.backtest import Backtest
from allometry.laws.forms import Form
from allometry.laws.table import Table


def doubts(form: Form, params: dict[str, Estimate], table: Table, backtest: Backtest) -> list[str]:
    """Sentences on a floor, an exponent or an extrapolation that the runs don't settle."""
    said = []
    lowest = float(np.exp(table.y.min()))
    if "E" in params:
        E = params["E"]
        lo, hi = E.interval
        if E.value < 1e-3 * lowest:
            said.append("The floor E is not identified: the best fit has none (E near 0).")
        elif lo < 0.2 * lowest or hi - lo > 0.5 * lowest:
            said.append(
                f"The floor E is not identified: the runs agree with any from {max(lo, 0):.3g} to "
                f"{hi:.3g}, as the lowest loss seen is still {lowest:.3g}."
            )
    falling = {"a": -1.0, "alpha": 1.0, "beta": 1.0}
    pairs = {"a": form.variables[0], "alpha": form.variables[0], "beta": form.variables[-1]}
    for letter, sign in falling.items():
        if letter not in params:
            continue
        value = sign * params[letter].value
        ends = sorted(sign * e for e in params[letter].interval)
        if value <= 0:
            said.append(
                f"The loss rises with {pairs[letter]}: {letter} = {params[letter].value:.3g}. "
                "Check the columns, or that larger runs were trained as well as smaller ones."
            )
        elif ends[0] <= 0:
            said.append(
                f"The exponent {letter} is not determined: its interval includes zero, so "
                f"{pairs[letter]} may not matter at all."
            )
    if backtest.folds == 0:
        said.append(
            "There are too few runs to backtest the law, so how well it extrapolates is unknown "
            "and its intervals rest on a typical drift."
        )
    return said
