"""`allometry next`."""

from typing import Annotated

import typer

from allometry.cli.fit import CColumn, DColumn, LossColumn, NColumn, Runs, Where
from allometry.cli.output import out, say, write_json


def next_(
    runs: Runs,
    budget: Annotated[float, typer.Option(help="FLOPs to spend on new runs.")],
    compute: Annotated[
        float | None, typer.Option(help="The run to predict: the plan for so many FLOPs.")
    ] = None,
    size: Annotated[float | None, typer.Option(help="Or its parameters.")] = None,
    tokens: Annotated[float | None, typer.Option(help="And its training tokens.")] = None,
    form: Annotated[str, typer.Option(help="Which law; see `allometry list forms`.")] = "auto",
    n: NColumn = None,
    d: DColumn = None,
    c: CColumn = None,
    loss: LossColumn = None,
    family: Annotated[str | None, typer.Option(help="Only the runs of this family.")] = None,
    where: Where = None,
    most: Annotated[int, typer.Option(help="Runs at most.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Which runs to do next, to narrow the answer most per FLOP."""
    from allometry import laws
    from allometry.report.terminal import design_table
    from allometry.study.importers import load

    made = load(runs, N=n, D=d, C=c, loss=loss, family=family, where=where or ())
    law = laws.fit(made.columns, form, seed=seed)
    design = laws.next_runs(law, budget, N=size, D=tokens, compute=compute, most=most)
    for sentence in (*made.words(), *(f"! {warning}" for warning in law.warnings)):
        say(sentence)
    if json:
        write_json(design.to_dict())
    else:
        out.print(design_table(design))
