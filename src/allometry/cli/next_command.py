"""`allometry next`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli import option_types
from allometry.cli.column_questions import load_runs
from allometry.cli.console import out, say, write_json
from allometry.cli.fit_command import (
    CColumn,
    DColumn,
    Family,
    Form,
    Json,
    LossColumn,
    NColumn,
    Seed,
    Where,
)
from allometry.cli.hardware_options import Accelerators, HardwareName, Mfu, Price, hardware_of
from allometry.cli.pool_options import Campaign, Pool, ReplayFlag, Target, Width
from allometry.cli.run_options import (
    Config,
    DFrom,
    LossUnit,
    NFrom,
    Remember,
    Rows,
    Sql,
    require_sizes,
    saved_law,
)
from allometry.cli.variable_options import Cost, Role, X, Y


def next_(
    runs: Annotated[
        Path | None,
        typer.Argument(help="Finished runs, as for `fit`. With --pool there may be none yet."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=option_types.compute,
            help="FLOPs to spend on new runs, such as 2EFLOP; with --pool, in the unit of --cost.",
        ),
    ] = None,
    compute: Annotated[
        float | None,
        typer.Option(
            parser=option_types.compute,
            help="The run to predict: the compute-optimal run of this many FLOPs.",
        ),
    ] = None,
    size: Annotated[
        float | None,
        typer.Option(
            parser=option_types.size,
            help="Parameters of the run to predict, such as 7B; needs --tokens.",
        ),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(
            parser=option_types.data,
            help="Training tokens of the run to predict, such as 300B; needs --size.",
        ),
    ] = None,
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
    most: Annotated[
        int, typer.Option(max=option_types.LARGEST_COUNT, help="Largest number of new runs.")
    ] = 6,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Repeat existing runs instead, to measure the noise."),
    ] = False,
    hardware: HardwareName = None,
    mfu: Mfu = 0.4,
    price: Price = None,
    accelerators: Accelerators = None,
    pool: Pool = None,
    target: Target = None,
    x: X = None,
    y: Y = None,
    cost: Cost = None,
    role: Role = None,
    replay: ReplayFlag = False,
    width: Width = 0.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Choose the next runs that narrow a prediction's interval most per FLOP."""
    from allometry import InputError, laws
    from allometry.report.terminal import design_table

    if pool is not None:
        campaign = Campaign(pool, target or [], x or [], y or loss or "loss", cost, role, seed)
        if replay:
            campaign.replay(json)
        else:
            campaign.choose(runs, budget, where, most, width, json)
        return
    if runs is None or budget is None:
        raise InputError("next must be given RUNS and --budget, or --pool with candidates.")
    if compute is None and (size is None or tokens is None):
        raise InputError(
            "next must be given the run to predict: --compute, or --size with --tokens."
        )
    machine = hardware_of(hardware, mfu, price, accelerators)
    reading = {
        "N": n, "D": d, "C": c, "loss": loss, "family": family, "where": where or (),
        "n_from": n_from, "d_from": d_from, "config": config, "sql": sql, "rows": rows,
        "unit": loss_unit,
    }  # fmt: skip
    saved = saved_law(runs, form=form, seed=seed, **reading)
    imported = saved[1] if saved else load_runs(runs, reading, remember=remember, ask=not json)
    imported.require_several_runs("next")
    law = saved[0] if saved else laws.fit(imported.columns, form, seed=seed)
    require_sizes(law, "next")
    design = laws.next_runs(
        law, budget, N=size, D=tokens, compute=compute, most=most, replicas=replicas
    )
    for sentence in (*imported.words(), *(f"! {warning}" for warning in law.warnings)):
        say(sentence)
    if json:
        written = design.to_dict()
        if machine is not None and machine.price is not None:
            for run in written["runs"]:
                run["cost"] = machine.cost(run["compute"])
        write_json(written)
    else:
        out.print(design_table(design, budget, machine))
