"""`allometry fit`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.output import out, write_json


def fit(
    runs: Annotated[Path, typer.Argument(help="A study's folder or a CSV file of runs.")],
    form: Annotated[str, typer.Option(help="Which law; see `allometry list forms`.")] = "auto",
    n: Annotated[str, typer.Option("--n", help="Column of parameters.")] = "N",
    d: Annotated[str, typer.Option("--d", help="Column of tokens.")] = "D",
    c: Annotated[str, typer.Option("--c", help="Column of FLOPs.")] = "C",
    loss: Annotated[str, typer.Option("--loss", help="Column of the loss.")] = "loss",
    family: Annotated[str | None, typer.Option(help="Only the runs of this family.")] = None,
    drop_highest: Annotated[int, typer.Option(help="Leave out the K highest losses.")] = 0,
    bootstrap: Annotated[int, typer.Option(help="Resamples behind the intervals.")] = 4000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fit the law by which loss falls with size, data and compute, with intervals."""
    from allometry import laws
    from allometry.study.table import read

    columns = read(runs, N=n, D=d, C=c, loss=loss, family=family)
    law = laws.fit(columns, form, drop_highest=drop_highest, bootstrap=bootstrap, seed=seed)
    if json:
        write_json(law.to_dict())
    else:
        from allometry.report.terminal import law_table

        out.print(law_table(law))
