"""Lower limit on the error of choosing a form: the best form of each hold-out in hindsight.

Every form that `auto` may average is fitted alone to each hold-out of `bench/holdouts.py`, both as
`auto` fits it and as a named form is fitted. The form with the best predictions is then taken.
This choice needs the held-out runs, so its mean error is out of reach for any choice among these
forms. (On any one hold-out, an average of forms that err in opposite directions can be better.)

Run: `python bench/hindsight.py`
"""

import holdouts
import needs
import numpy as np
import pandas as pd

import allometry as al
from allometry.laws.component import fit_component
from allometry.laws.objective import FORECAST, PLAIN, SPREAD
from allometry.laws.runs_table import read
from allometry.laws.selection import candidates


def errors(small, large):
    """Mean relative error of each form alone."""
    table, truth = read(small), large.loss.to_numpy(float)
    logs = {k: np.log(large[k].to_numpy(float)) for k in ("N", "D", "C") if k in large}
    if {"N", "D"} <= set(logs):
        logs.setdefault("C", np.log(6) + logs["N"] + logs["D"])
    found = {}
    for form in candidates(table):
        for mode, objective in (
            ("forecast", SPREAD if len(form.variables) == 2 else FORECAST),
            ("plain", PLAIN),
        ):
            if table.configurations < form.p:
                continue
            rng = np.random.default_rng(0)
            member = fit_component(form, table, objective, starts=24, rng=rng)
            with np.errstate(over="ignore"):
                predicted = np.exp(form.value(member.theta[None], member.at(logs))[0])
            found[form.name, mode] = float(np.abs(predicted / truth - 1).mean())
    return found


def main():
    rows = []
    for name, small, large in holdouts.cases():
        points = {k: large[k].to_numpy(float) for k in ("N", "D", "C") if k in large}
        mid = al.laws.fit(small, bootstrap=0).band(**points)[1]
        own = float(np.abs(mid / large.loss.to_numpy(float) - 1).mean())
        kind = name.split()[0]
        group = {"grid": "runs", "ladder": "runs", "other": "other losses"}.get(kind, "curves")
        rows.append({"group": group, "auto": own, "hindsight": min(errors(small, large).values())})
    frame = pd.DataFrame(rows)
    for group, part in [*frame.groupby("group"), ("all", frame)]:
        print(
            f"{group:14s} {len(part):4d} hold-outs: auto {part.auto.mean():.4f}, "
            f"best form in hindsight {part.hindsight.mean():.4f}"
        )


if __name__ == "__main__":
    needs.run(main, needs.DATA)
