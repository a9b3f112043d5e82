"""`allometry fit`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli import option_types
from allometry.cli.column_questions import load_runs
from allometry.cli.console import out, say, write_json
from allometry.cli.run_options import (
    Config,
    DFrom,
    LossUnit,
    NFrom,
    Remember,
    Rows,
    Save,
    Sql,
    require_sizes,
    saved_law,
)
from allometry.cli.variable_options import Cost, Role, X, Y, fitted, is_wanted, show

Runs = Annotated[
    Path,
    typer.Argument(
        help="Runs: a study's folder, a CSV, TSV, JSONL or Parquet file, or logs of W&B, "
        "TensorBoard, Hugging Face, MLflow and others; `clipboard`, or - for standard input; or a "
        "law that `fit --save` wrote."
    ),
]
NColumn = Annotated[
    str | None, typer.Option("--n", help="Column of parameters. Default: recognised by name.")
]
DColumn = Annotated[
    str | None, typer.Option("--d", help="Column of tokens. Default: recognised by name.")
]
CColumn = Annotated[
    str | None, typer.Option("--c", help="Column of FLOPs. Default: recognised by name.")
]
LossColumn = Annotated[
    str | None, typer.Option("--loss", help="Column of the loss. Default: recognised by name.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(help="Use only rows with column=value. Repeat the option for several."),
]
Family = Annotated[str | None, typer.Option(help="Use only the runs of this family.")]
Form = Annotated[str, typer.Option(help="Form of the law; see `allometry list forms`.")]
DropHighest = Annotated[
    int, typer.Option(max=option_types.LARGEST_COUNT, help="Leave out the K highest losses.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=option_types.LARGEST_SEED, help="Seed of the bootstrap.")
]
Report = Annotated[Path | None, typer.Option(help="Write a page of charts to this HTML file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def fit(
    runs: Runs,
    form: Form = "auto",
    n: NColumn = None,
    d: DColumn = None,
    c: CColumn = None,
    loss: LossColumn = None,
    family: Family = None,
    where: Where = None,
    n_from: NFrom = None,
    d_from: DFrom = None,
    config: Config = None,
    sql: Sql = None,
    rows: Rows = "auto",
    loss_unit: LossUnit = None,
    remember: Remember = False,
    drop_highest: DropHighest = 0,
    bootstrap: Annotated[
        int, typer.Option(max=option_types.LARGEST_COUNT, help="Number of bootstrap resamples.")
    ] = 4000,
    delta: Annotated[
        float | None,
        typer.Option(help="Huber's delta on log loss; 0 for least absolute deviations."),
    ] = None,
    x: X = None,
    y: Y = None,
    cost: Cost = None,
    role: Role = None,
    seed: Seed = 0,
    report: Report = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """Fit a scaling law of loss in size, data and compute, or in any columns, with intervals."""
    if is_wanted(x, form):
        law = fitted(runs, form, x, y or loss, cost, role, where, sql, delta, seed)
        show(law, report, save, json)
        return
    from allometry import laws

    reading = {
        "N": n, "D": d, "C": c, "loss": loss, "family": family, "where": where or (),
        "n_from": n_from, "d_from": d_from, "config": config, "sql": sql, "rows": rows,
        "unit": loss_unit,
    }  # fmt: skip
    options = {"drop_highest": drop_highest, "delta": delta, "seed": seed}
    saved = saved_law(runs, form=form, **reading, **options)
    if saved is not None:
        law, imported = saved
    else:
        imported = load_runs(runs, reading, remember=remember, ask=not json)
        law = laws.fit(imported.columns, form, bootstrap=bootstrap, **options)
    messages = imported.words()  # printed at the end, so that a failure is one line
    if report is not None:
        require_sizes(law, "--report")
        from allometry.report.law_page import write

        messages.append(f"Charts: {write(report, law, source=runs.name)}")
    if save is not None:
        from allometry.laws.law_files import save as write_law

        about = {"rows": imported.rows, "unit": imported.unit, "counted_in": imported.counted_in}
        messages.append(f"Law: {write_law(law, save, about)}")
    for sentence in messages:
        say(sentence)
    if json:
        write_json(law.to_dict() | imported.to_dict())
    elif isinstance(law, laws.Law):
        from allometry.report.terminal import law_table

        out.print(law_table(law))
    else:
        out.print(str(law), soft_wrap=True)
