"""`allometry fit`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.console import out, say, write_json

Runs = Annotated[
    Path,
    typer.Argument(
        help="A study's folder, CSV, TSV, JSONL, Parquet, W&B, TensorBoard, HF or MLflow logs."
    ),
]
NColumn = Annotated[str | None, typer.Option("--n", help="Column of parameters.")]
DColumn = Annotated[str | None, typer.Option("--d", help="Column of tokens.")]
CColumn = Annotated[str | None, typer.Option("--c", help="Column of FLOPs.")]
LossColumn = Annotated[str | None, typer.Option("--loss", help="Column of the loss.")]
Where = Annotated[
    list[str] | None, typer.Option(help="Only rows that say so, as column=value; may be repeated.")
]
Report = Annotated[Path | None, typer.Option(help="Write a page of charts to this HTML file.")]


def fit(
    runs: Runs,
    form: Annotated[str, typer.Option(help="Which law; see `allometry list forms`.")] = "auto",
    n: NColumn = None,
    d: DColumn = None,
    c: CColumn = None,
    loss: LossColumn = None,
    family: Annotated[str | None, typer.Option(help="Only the runs of this family.")] = None,
    where: Where = None,
    drop_highest: Annotated[int, typer.Option(help="Leave out the K highest losses.")] = 0,
    bootstrap: Annotated[int, typer.Option(help="Resamples behind the intervals.")] = 4000,
    delta: Annotated[
        float | None, typer.Option(help="Huber's delta on log loss; 0 for absolute deviations.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    report: Report = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fit the law by which loss falls with size, data and compute, with intervals."""
    from allometry import laws
    from allometry.runs.importers import load

    made = load(runs, N=n, D=d, C=c, loss=loss, family=family, where=where or ())
    law = laws.fit(
        made.columns, form, drop_highest=drop_highest, bootstrap=bootstrap, delta=delta, seed=seed
    )
    said = made.words()  # told after all is done: a failure is one line
    if report is not None:
        from allometry.report.law_charts import write

        said.append(f"Charts: {write(report, law)}")
    for sentence in said:
        say(sentence)
    if json:
        write_json(law.to_dict() | made.to_dict())
    else:
        from allometry.report.terminal import law_table

        out.print(law_table(law))
