"""`allometry serve`."""

import math
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allometry._core.errors import InputError, require
from allometry.cli import option_types
from allometry.cli.console import out, say
from allometry.cli.fit_command import (
    CColumn,
    DColumn,
    DropHighest,
    Family,
    Form,
    LossColumn,
    NColumn,
    Runs,
    Seed,
    Where,
)
from allometry.cli.run_options import Config, DFrom, LossUnit, NFrom, Rows, Sql, saved_law

if TYPE_CHECKING:
    from allometry.laws import Law
    from allometry.runs.importers import Imported


def serve(
    runs: Runs,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. Default: any free one.")
    ] = 0,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the runs.")] = 2.0,
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
    drop_highest: DropHighest = 0,
    bootstrap: Annotated[
        int, typer.Option(max=option_types.LARGEST_COUNT, help="Number of bootstrap resamples.")
    ] = 1000,
    seed: Seed = 0,
) -> None:
    """Serve a live page of a scaling law to this machine; it follows the runs as they arrive."""
    from allometry import laws
    from allometry._core.user_files import exists, shorten
    from allometry.laws.form_names import FORMS
    from allometry.laws.law_files import is_saved_law
    from allometry.report.live_runs import LiveRuns
    from allometry.report.live_server import LiveServer
    from allometry.runs.importers import load

    require(0.1 <= every < math.inf, "every", "be at least 0.1 seconds", every)
    reading = {
        "N": n, "D": d, "C": c, "loss": loss, "family": family, "where": where or (),
        "n_from": n_from, "d_from": d_from, "config": config, "sql": sql, "rows": rows,
        "unit": loss_unit,
    }  # fmt: skip

    def fit(path: Path) -> "tuple[Law, Imported]":
        saved = saved_law(path, form=form, **reading, drop_highest=drop_highest, seed=seed)
        if saved is not None:
            return saved
        imported = load(path, **reading)
        law = laws.fit(
            imported.columns, form, drop_highest=drop_highest, bootstrap=bootstrap, seed=seed
        )
        return law, imported

    if not exists(runs):
        raise InputError(f"{runs} must be a file or folder of runs; got no such path.")
    if form not in FORMS:
        raise InputError(f"serve.form must be one of {', '.join(FORMS)}; got {shorten(form)!r}.")
    if runs.is_file() and not is_saved_law(runs):
        load(runs, **reading)  # a table that can't be read is refused now; too few runs may grow
    live = LiveRuns(runs, fit, secrets.token_urlsafe(18))
    try:
        with LiveServer(live, port) as server:
            live.refresh()
            live.watch(every)
            # A shell starts background jobs with SIGINT ignored, and Python then raises nothing.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            out.print(server.address, soft_wrap=True)
            say("Only this machine can open it. Press Ctrl+C to end.")
            server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say("Ended.")
    finally:
        live.close()
