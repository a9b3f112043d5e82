"""`allometry plan`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry._core.errors import InputError
from allometry.cli import option_types, plan_answer
from allometry.cli.column_questions import load_runs
from allometry.cli.console import say, write_json
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
        _refuse_other_budgets(compute, reach, money, days)
        planned_variables(
            fitted(runs, form, x, y or loss, cost, role, where, sql, None, seed), budget, at, json
        )
        return
    from allometry import laws
    from allometry.report.planner_data import Question

    _require_one_question(compute, reach, money, days, size, tokens)
    machine = hardware_of(hardware, mfu, price, accelerators)
    bought, stated_budget = compute_budget(machine, money, days)
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
    question = Question(
        compute if bought is None else bought, size, tokens, unique, inference_tokens, machine
    )
    answer = plan_answer.answer(
        law, question, reach=reach, batch_tokens=batch_tokens, unit=unit, token=token,
        stated_unique=unique_tokens,
    )  # fmt: skip
    messages = imported.words()  # printed at the end, so that a failure is one line
    if report is not None:
        from allometry.report.law_page import write

        page = write(
            report, law, answer.plan, source=runs.name, question=answer.question, unit=unit,
            token=token,
        )  # fmt: skip
        messages.append(f"Charts: {page}")
    others = {}
    if {"N", "D"} <= set(law.variables) and size is None and tokens is None:
        others = laws.allocations(imported.columns, answer.needed.value, drop_highest=drop_highest)
    for sentence in (*messages, *filter(None, [stated_budget])):
        say(sentence)
    if json:
        write_json(answer.to_dict(others))
    else:
        answer.show(law, others)


def _refuse_other_budgets(
    compute: float | None, reach: float | None, money: str | None, days: float | None
) -> None:
    """Refuse the budgets of a plan in N and D, which a plan in other variables would ignore."""
    asked = {"--compute": compute, "--reach": reach, "--money": money, "--days": days}
    for flag, value in asked.items():
        if value is not None:
            raise InputError(
                f"plan with --x or an expression must be given --budget in the unit of "
                f"--cost; got {flag}. Name a form such as chinchilla to plan N and D."
            )


def _require_one_question(
    compute: float | None,
    reach: float | None,
    money: str | None,
    days: float | None,
    size: float | None,
    tokens: float | None,
) -> None:
    """Refuse no budget, several budgets, and a fixed N beside a fixed D."""
    if (compute is not None) + (reach is not None) + (money is not None or days is not None) != 1:
        raise InputError(
            "plan must be given one budget: --compute FLOPS, --reach LOSS, --money AMOUNT or "
            "--days DAYS."
        )
    if size is not None and tokens is not None:
        raise InputError("plan must be given --size or --tokens, not both: the other follows.")
    if reach is not None and not reach > 0:
        raise InputError(f"--reach must be a positive loss; got {reach:g}.")


def _study_facts(runs: Path) -> tuple[str, str, float | None]:
    """Unit of the loss, name of a token and number of unique tokens, from a study's folder."""
    from allometry.report.analysis import measured_in
    from allometry.runs import Runs as Study

    if not (runs / "study.json").is_file():
        return "nats", "token", None
    return measured_in(Study(runs))
