"""`allometry watch`."""

import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry._core.errors import InputError, require
from allometry._core.user_files import MOST_TABLE, read_text
from allometry.cli.console import out, say, write_json

if TYPE_CHECKING:
    from allometry.laws import TrainingState

TEXT = (".txt", ".log", ".out")
"""Suffixes of the printed output of a training."""


def watch(
    log: Annotated[Path, typer.Argument(help="A log of one training: see `allometry fit`.")],
    total: Annotated[float, typer.Option(help="The last step of the training.")],
    schedule: Annotated[
        str | None,
        typer.Option(help="Learning rate: constant, linear, cosine, wsd, wsd:0.4 (decay share)."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Column of the loss.")] = None,
    step: Annotated[str | None, typer.Option(help="Column of the step.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Pattern of step and loss in printed output, two groups in this order."),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Name of the run, if the log holds several.")
    ] = None,
    beat: Annotated[float | None, typer.Option(help="The final loss to beat.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Read the log again until the training ends.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two readings.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Forecast the final loss of a training in progress; say when it leaves its band."""
    from allometry import laws

    require(0 < every < math.inf, "every", "be seconds above 0 and finite", every)
    require(0 < total < math.inf, "total", "be above 0 and finite", total)
    require(beat is None or math.isfinite(beat), "beat", "be finite", beat)
    before = None
    while True:
        steps, losses = read_log(log, loss=loss, step=step, metric=metric, run=run)
        state = laws.watch(steps, losses, total, schedule, beat=beat)
        if json and state != before:
            write_json(state.to_dict())
        elif state != before:
            out.print(sentence(state), markup=False, highlight=False)
        before = state
        if state.alarm is not None:
            say(state.alarm)
        if not follow or state.step >= total or state.stop:
            return
        time.sleep(every)


def sentence(state: "TrainingState") -> str:
    """The state in one or two sentences."""
    share = state.step / state.total_steps
    text = f"Step {state.step:g} of {state.total_steps:g} ({share:.0%}): loss {state.loss:.4g}."
    if state.final is not None:
        low, high = state.final.interval
        text += f" Expected final loss: {state.final.value:.4g} ({low:.4g} to {high:.4g})."
    return f"{text} {state.reason}".strip()


def read_log(
    path: Path,
    *,
    loss: str | None,
    step: str | None,
    metric: str | None,
    run: str | None = None,
) -> tuple[list[float], list[float]]:
    """Steps and losses of a log; printed output is read by the pattern `metric`.

    A log of several runs (a folder of W&B, a database of trackio) needs the name of one.
    """
    if metric is not None or path.suffix.lower() in TEXT:
        return _read_text(path, metric or r"step[ :=/]*(\d+).*?loss[ :=]*([0-9.eE+-]+|nan|inf)")
    from allometry.runs import importers

    imported = importers.load(path, loss=loss, D=step)
    columns = imported.columns
    if run is not None or len(imported.curves) > 1:
        columns = _curve(imported.curves, run)
    fix = "Name its column with --step."
    require("D" in columns, "log", "have steps or tokens", sorted(columns), fix)
    return list(map(float, columns["D"])), list(map(float, columns["loss"]))


def _curve(curves: "dict[str, Any]", run: str | None) -> "dict[str, Any]":
    """The steps and losses of the named run."""
    names = sorted(curves)
    fix = f"Choose one with --run: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}."
    require(run in curves, "run", "name a run of the log", run, fix)
    assert run is not None
    curve = curves[run]
    steps = curve["step"] if "step" in curve else curve.get("D")
    return {"loss": curve["loss"]} | ({} if steps is None else {"D": steps})


def _read_text(path: Path, metric: str) -> tuple[list[float], list[float]]:
    try:
        pattern = re.compile(metric, re.IGNORECASE)
    except re.error as error:
        raise InputError(f"metric must be a regular expression; got {error}.") from None
    require(pattern.groups == 2, "metric", "have two groups, step and loss", metric)
    steps, losses = [], []
    for line in read_text(path, MOST_TABLE).splitlines():
        found = pattern.search(line[:2000])
        if found is None:
            continue
        try:
            steps.append(float(found[1]))
            losses.append(float(found[2]))
        except (TypeError, ValueError):
            del steps[len(losses) :]
    fix = "Give a pattern with --metric, such as 'step ([0-9]+) loss ([0-9.]+)'."
    require(len(steps) > 0, "log", "have lines with step and loss", str(path), fix)
    return steps, losses
