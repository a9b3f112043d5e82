"""`allometry plan`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli import option_types
from allometry.cli.console import out, say, write_json
from allometry.cli.fit import CColumn, DColumn, LossColumn, NColumn, Report, Runs, Where

OWN_SPLIT = (
    "The plan's own size is read from the efficient runs, which on public runs came nearer to the "
    "best sizes of larger budgets than these three did (docs/laws.md, Plan)."
)


def plan(
    runs: Runs,
    compute: Annotated[
        float | None,
        typer.Option(parser=option_types.compute, help="The budget, as 1e21 or 1ZFLOP."),
    ] = None,
    reach: Annotated[float | None, typer.Option(help="Or: the loss to reach.")] = None,
    size: Annotated[
        float | None, typer.Option(parser=option_types.size, help="Fix the parameters, as 7B.")
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(parser=option_types.data, help="Fix the training tokens, as 300B."),
    ] = None,
    unique_tokens: Annotated[
        float | None,
        typer.Option(
            parser=option_types.data, help="Unique tokens there are; more means repeating them."
        ),
    ] = None,
    inference_tokens: Annotated[
        float | None,
        typer.Option(
            parser=option_types.data, help="Tokens to generate, paid from the same budget."
        ),
    ] = None,
    form: Annotated[str, typer.Option(help="Which law; see `allometry list forms`.")] = "auto",
    n: NColumn = None,
    d: DColumn = None,
    c: CColumn = None,
    loss: LossColumn = None,
    family: Annotated[str | None, typer.Option(help="Only the runs of this family.")] = None,
    where: Where = None,
    drop_highest: Annotated[int, typer.Option(help="Leave out the K highest losses.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    report: Report = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What to do with a budget: size, data, and the loss to expect."""
    from allometry import InputError, laws
    from allometry.report import claims
    from allometry.report.formatting import estimated, flops
    from allometry.report.plan_cells import approach, repeated
    from allometry.report.terminal import plan_table
    from allometry.runs.importers import load

    if (compute is None) == (reach is None):
        raise InputError("plan must be given either --compute FLOPS or --reach LOSS.")
    if size is not None and tokens is not None:
        raise InputError("plan must be given --size or --tokens, not both: the other follows.")
    if reach is not None and not reach > 0:
        raise InputError(f"--reach must be a positive loss; got {reach:g}.")
    made = load(runs, N=n, D=d, C=c, loss=loss, family=family, where=where or ())
    law = laws.fit(made.columns, form, drop_highest=drop_highest, seed=seed)
    needed = laws.budget(law, compute, reach)
    budget = needed.value
    unit, token, unique = _told(runs)
    unique = unique if unique_tokens is None else unique_tokens
    both = {"N", "D"} <= set(law.variables)
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
    said = made.words()  # told after all is done: a failure is one line
    if report is not None:
        from allometry.report.law_charts import write

        said.append(f"Charts: {write(report, law, planned)}")
    others = {}
    if {"N", "D"} <= set(law.variables) and size is None and tokens is None:
        others = laws.allocations(made.columns, budget, drop_highest=drop_highest)
    for sentence in said:
        say(sentence)
    if json:
        approaches = {
            name: {"error": str(a)} if isinstance(a, InputError) else a.to_dict()
            for name, a in others.items()
        }
        asked = {} if reach is None else {"reach": {"loss": reach, "C": needed.to_dict()}}
        stated = {"claims": [] if claim is None else [claim.to_dict()]}
        write_json(planned.to_dict() | asked | stated | {"approaches": approaches})
    else:
        if reach is not None:
            out.print(f"A loss of {reach:g} takes {estimated(needed, flops)}.")
        out.print(plan_table(planned, unit, token))
        for name, a in others.items():
            say(approach(name, a))
        if others and law.split.drifts:
            say(OWN_SPLIT)


def _told(runs: Path) -> tuple[str, str, float | None]:
    """What a study's folder says of its loss and data: unit, token, how much distinct data."""
    from allometry.report.analysis import measured_in
    from allometry.study import Runs as Study

    if not (runs / "study.json").is_file():
        return "nats", "token", None
    return measured_in(Study(runs))
