"""`allometry next`."""

from typing import Annotated

import typer

from allometry.cli import option_types
from allometry.cli.console import out, say, write_json
from allometry.cli.fit import CColumn, DColumn, LossColumn, NColumn, Runs, Where


def next_(
    runs: Runs,
    budget: Annotated[
        float,
        typer.Option(parser=option_types.compute, help="FLOPs to spend on new runs, as 2EFLOP."),
    ],
    compute: Annotated[
        float | None,
        typer.Option(
            parser=option_types.compute, help="The run to predict: the plan for so many FLOPs."
        ),
    ] = None,
    size: Annotated[
        float | None, typer.Option(parser=option_types.size, help="Or its parameters, as 7B.")
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(parser=option_types.data, help="And its training tokens, as 300B."),
    ] = None,
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
    from allometry import InputError, laws
    from allometry.report.terminal import design_table
    from allometry.runs.importers import load

    if compute is None and (size is None or tokens is None):
        raise InputError(
            "next must be given the run to predict: --compute, or --size with --tokens."
        )
    made = load(runs, N=n, D=d, C=c, loss=loss, family=family, where=where or ())
    law = laws.fit(made.columns, form, seed=seed)
    design = laws.next_runs(law, budget, N=size, D=tokens, compute=compute, most=most)
    for sentence in (*made.words(), *(f"! {warning}" for warning in law.warnings)):
        say(sentence)
    if json:
        write_json(design.to_dict())
    else:
        out.print(design_table(design))
