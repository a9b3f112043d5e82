"""Options of `allometry run --command`: the user's own training script as a ladder."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry._core.errors import require
from allometry.cli import option_types
from allometry.cli.console import say

if TYPE_CHECKING:
    from allometry.cli.study_run import StudyRun
    from allometry.study import Study

Command = Annotated[
    str | None,
    typer.Option(
        help="Your training command with placeholders, such as 'python train.py --width {width} "
        "--seed {seed} --lr {lr}'. No shell runs it. {out} is a folder for the run's files."
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="Where the command's loss is read: a regular expression on its output with a group "
        "for the number (the last match counts), json:KEY of a JSON line, or file:PATH."
    ),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        help="Values of the command's placeholders: a table with a row per size, or a rule such "
        "as 'width=64,128,256; depth=width/32; N=12*depth*width^2; D=20*N'."
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the command's recipe and folder.")]
NMetric = Annotated[
    str | None,
    typer.Option("--n-metric", help="Where the number of parameters is read, like --metric."),
]
FlopsMetric = Annotated[
    str | None,
    typer.Option("--flops-metric", help="Where the training FLOPs are read, like --metric."),
]
Timeout = Annotated[str, typer.Option(help="Time after which a run of the command is ended.")]
Retries = Annotated[
    int,
    typer.Option(
        min=0, max=option_types.LARGEST_COUNT, help="How often a command that fails is restarted."
    ),
]


def study(
    command: str,
    shapes: str | None,
    *,
    metric: str,
    seeds: int | None,
    rates: Sequence[float],
    name: str | None,
    n_metric: str | None,
    flops_metric: str | None,
    timeout: str,
    retries: int,
) -> "Study":
    """The study of a command."""
    from allometry.study.own_training.command_study import command_study
    from allometry.study.own_training.shape_tables import shapes_of
    from allometry.study.schedule.study_budget import seconds_of

    fix = "Give a table, or a rule such as 'width=64,128,256; N=24*width^2'."
    require(shapes is not None, "shapes", "be given with --command", shapes, fix)
    assert shapes is not None
    return command_study(
        command, shapes_of(shapes), metric=metric, seeds=2 if seeds is None else seeds,
        rates=rates, name=name, n_metric=n_metric, flops_metric=flops_metric,
        timeout=seconds_of(timeout), retries=retries,
    )  # fmt: skip


Rates = Annotated[
    list[float] | None,
    typer.Option(
        help="Values of {lr}; the best of each recipe and size is used. Repeat the option."
    ),
]
Commands = Annotated[
    list[str] | None,
    typer.Option(
        "--command",
        help="A training command per recipe, run as by `allometry run --command` until a verdict "
        "stands. Give the option once per recipe.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="Name of a recipe of --command, in the same order."),
]


def studies(
    commands: Sequence[str], names: Sequence[str] | None, shapes: str | None, **options: Any
) -> "dict[str, Study]":
    """The studies of several commands by name of the recipe."""
    listed = list(commands)
    fix = "Give --command once per recipe."
    several = len(set(listed)) == len(listed) >= 2
    require(several, "command", "be two or more different commands", listed, fix)
    labels = list(names) if names else labels_of(listed)
    fit = len(labels) == len(listed) == len(set(labels))
    require(fit, "name", f"be {len(listed)} different names", labels)
    plain = [name for name in labels if not re.fullmatch(r"[\w][\w.+-]{0,59}", name)]
    require(not plain, "name", "be of letters, digits, '.', '+' and '-'", plain)
    return {
        name: study(command, shapes, name=name, seeds=None, **options)
        for name, command in zip(labels, listed, strict=True)
    }


def labels_of(commands: Sequence[str]) -> list[str]:
    """A name for each command: its script, or the words that the others do not have."""
    words = [command.split() for command in commands]
    scripts = [next((w for w in ws if w.endswith((".py", ".sh"))), ws[0]) for ws in words]
    stems = [Path(script).stem for script in scripts]
    if len(set(stems)) == len(stems):
        return stems
    shared = set(words[0]).intersection(*words[1:])
    own = ["-".join(w.strip("-") for w in ws if w not in shared) for ws in words]
    return [re.sub(r"[^\w.+-]+", "-", name).strip("-.+")[:60] or f"command-{i + 1}"
            for i, name in enumerate(own)]  # fmt: skip


def execute(run: "StudyRun") -> None:
    """Carry the study out, then say what its runs suggest about the script."""
    from allometry.study import Journal
    from allometry.study.own_training.command_study import observations

    try:
        run.execute()
    finally:
        if not run.dry_run and (run.folder / "journal.jsonl").exists():
            for sentence in observations(Journal(run.folder / "journal.jsonl").latest().values()):
                say(sentence)
