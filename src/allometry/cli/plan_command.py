"""`allometry plan`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry._core.errors import InputError
from allometry.cli import option_types
from allometry.cli.column_questions import load_runs
from allometry.cli.console import out, say, write_json
from allometry.cli.fit_command import (
    CColumn,
    DColumn,
    DropHighest,
    Family,
    Form,
    Json,
    LossColumn,
    NColumn,
    Report,
    Runs,
    Seed,
    Where,
)
from allometry.cli.hardware_options import (
    Accelerators,
    BatchTokens,
    Days,
    HardwareName,
    Mfu,
    Money,
    Price,
    compute_budget,
    hardware_of,
)
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
from allometry.cli.variable_options import Cost, Role, X, Y, fitted, is_wanted
from allometry.cli.variable_options import planned as planned_variables

OWN_ALLOCATION = (
    "The plan's own size is read from the runs near the compute-optimal frontier. On public runs "
    "it was closer to the optimal sizes of larger budgets than these three (docs/laws.md, Plan)."
)


def plan(
    runs: Runs,
    compute: Annotated[
        float | None,
        typer.Option(
            parser=option_types.compute, help="Compute budget in FLOPs, such as 1e21 or 1ZFLOP."
        ),
    ] = None,
    reach: Annotated[
        float | None, typer.Option(help="Loss to reach, instead of --compute.")
    ] = None,
    size: Annotated[
        float | None,
        typer.Option(parser=option_types.size, help="Fix the number of parameters, such as 7B."),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(
            parser=option_types.data, help="Fix the number of training tokens, such as 300B."
        ),
    ] = None,
    money: Money = None,
    days: Days = None,
    hardware: HardwareName = None,
    mfu: Mfu = 0.4,
    price: Price = None,
    accelerators: Accelerators = None,
    batch_tokens: BatchTokens = 4096,
    unique_tokens: Annotated[
        float | None,
        typer.Option(
            "--unique-tokens",
            "--unique",
            parser=option_types.data,
            help="Number of unique tokens available; a larger plan repeats them.",
        ),
    ] = None,
    inference_tokens: Annotated[
        float | None,
        typer.Option(
            parser=option_types.data,
            help="Number of tokens to generate after training, within the same budget.",
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
    drop_highest: DropHighest = 0,
    x: X = None,
    y: Y = None,
    cost: Cost = None,
    role: Role = None,
    budget: Annotated[
        float | None, typer.Option(help="Largest cost in the unit of --cost, with --x.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Value of a column as name=value, with --x; the others are planned."),
    ] = None,
    seed: Seed = 0,
    report: Report = None,
    json: Json = False,
) -> None:
    """Plan the compute-optimal allocation of a budget: size, data and expected loss."""
    if is_wanted(x, form):
        asked = {"--compute": compute, "--reach": reach, "--money": money, "--days": days}
        for flag, value in asked.items():
            if value is not None:  # it would be ignored
                raise InputError(
                    f"plan with --x or an expression must be given --budget in the unit of "
                    f"--cost; got {flag}. Name a form such as chinchilla to plan N and D."
                )
        planned_variables(
            fitted(runs, form, x, y or loss, cost, role, where, sql, None, seed), budget, at, json
        )
        return
    from allometry import laws
    from allometry.cli.plan_output import details
    from allometry.laws.plan_costs import budget_to_reach
    from allometry.report import claims
    from allometry.report.formatting import estimated, flops
    from allometry.report.plan_cells import approach, repeated
    from allometry.report.terminal import plan_table

    if (compute is not None) + (reach is not None) + (money is not None or days is not None) != 1:
        raise InputError(
            "plan must be given one budget: --compute FLOPS, --reach LOSS, --money AMOUNT or "
            "--days DAYS."
        )
    if size is not None and tokens is not None:
        raise InputError("plan must be given --size or --tokens, not both: the other follows.")
    if reach is not None and not reach > 0:
        raise InputError(f"--reach must be a positive loss; got {reach:g}.")
    machine = hardware_of(hardware, mfu, price, accelerators)
    bought, stated_budget = compute_budget(machine, money, days)
    compute = compute if bought is None else bought
    reading = {
        "N": n, "D": d, "C": c, "loss": loss, "family": family, "where": where or (),
        "n_from": n_from, "d_from": d_from, "config": config, "sql": sql, "rows": rows,
        "unit": loss_unit,
    }  # fmt: skip
    saved = saved_law(runs, form=form, seed=seed, drop_highest=drop_highest, **reading)
    imported = saved[1] if saved else load_runs(runs, reading, remember=remember, ask=not json)
    imported.require_several_runs("plan")
    law = (
        saved[0]
        if saved
        else laws.fit(imported.columns, form, drop_highest=drop_highest, seed=seed)
    )
    require_sizes(law, "plan")
    unit, token, unique = _study_facts(runs)
    unique = unique if unique_tokens is None else unique_tokens
    both = {"N", "D"} <= set(law.variables)
    if reach is None:
        needed = laws.budget(law, compute)
    else:
        counted = unique if both else None
        free = size is None and tokens is None
        needed = budget_to_reach(
            law, reach, unique=counted if free else None,
            inference_tokens=(inference_tokens or 0.0) if free else 0.0,
        )  # fmt: skip
    budget = needed.value
    planned = law.plan(
        budget,
        N=size,
        D=tokens,
        unique=unique if both else unique_tokens,
        inference_tokens=inference_tokens or 0.0,
    )
    limited = repeated(planned, unique, token, counted=both)
    if limited:
        planned.warnings.insert(0, limited)
    claim = claims.planned(law, planned, unique, unit, token)
    if claim is not None and not claim.supported:
        planned.warnings.insert(0, claim.text)
    more = details(
        law, planned, needed, hardware=machine, batch_tokens=batch_tokens,
        inference_tokens=inference_tokens or 0.0, unique=unique,
    )  # fmt: skip
    messages = imported.words()  # printed at the end, so that a failure is one line
    if report is not None:
        from allometry.report.law_page import write
        from allometry.report.planner_data import Question

        question = Question(budget, size, tokens, unique, inference_tokens, machine)
        page = write(
            report, law, planned, source=runs.name, question=question, unit=unit, token=token
        )
        messages.append(f"Charts: {page}")
    others = {}
    if both and size is None and tokens is None:
        others = laws.allocations(imported.columns, budget, drop_highest=drop_highest)
    for sentence in (*messages, *filter(None, [stated_budget])):
        say(sentence)
    if json:
        approaches = {
            name: {"error": str(a)} if isinstance(a, InputError) else a.to_dict()
            for name, a in others.items()
        }
        asked = {} if reach is None else {"reach": {"loss": reach, "C": needed.to_dict()}}
        stated = {"claims": [] if claim is None else [claim.to_dict()]}
        known = planned.to_dict() | asked | stated | {"approaches": approaches}
        write_json(known | more.to_dict())
    else:
        if reach is not None:
            out.print(f"A loss of {reach:g} takes {estimated(needed, flops)}.")
        out.print(plan_table(planned, unit, token))
        more.show(token)
        shown = {} if inference_tokens else others  # the approaches plan training alone
        for name, a in shown.items():
            say(approach(name, a))
        if shown and law.allocation.backtested:
            say(OWN_ALLOCATION)


def _study_facts(runs: Path) -> tuple[str, str, float | None]:
    """Unit of the loss, name of a token and number of unique tokens, from a study's folder."""
    from allometry.report.analysis import measured_in
    from allometry.runs import Runs as Study

    if not (runs / "study.json").is_file():
        return "nats", "token", None
    return measured_in(Study(runs))
