"""`allometry watch`."""

import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allometry._core.errors import InputError, require
from allometry._core.user_files import MOST_TABLE, read_text
from allometry.cli import option_types
from allometry.cli.console import out, say, write_json

if TYPE_CHECKING:
    from allometry.laws import TrainingState

STEP = re.compile(r"\b(?:global[ _]?)?(?:step|iter|iteration|it)s?[ :=/#\[]*(\d+)", re.IGNORECASE)
"""A step in printed output."""

NUMBER = r"[ :=]*([-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?|nan|inf)"

LOSSES = {
    "Validation loss": r"(?:val|valid|validation|eval|dev|test)[ _/.-]*loss\b",
    "Loss": r"loss\b",
}
"""Losses in printed output, the one to prefer first."""

TEXT = (".txt", ".log", ".out")
"""Suffixes of the printed output of a training."""


def watch(
    log: Annotated[Path, typer.Argument(help="A log of one training: see `allometry fit`.")],
    total: Annotated[
        float,
        typer.Option(
            parser=option_types.steps, metavar="STEPS", help="The last step, such as 20000 or 20k."
        ),
    ],
    schedule: Annotated[
        str | None,
        typer.Option(help="Learning rate: constant, linear, cosine, wsd, wsd:0.4 (decay share)."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Column of the loss.")] = None,
    step: Annotated[str | None, typer.Option(help="Column of the step.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Pattern of printed output with one group, the loss, or two, step and loss. "
            "Default: a validation loss if there is one."
        ),
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
    before, waiting = None, ""
    while True:
        try:
            steps, losses, source = read_log(log, loss=loss, step=step, metric=metric, run=run)
        except InputError as error:
            # A training that has just begun has logged nothing yet.
            if not follow or before is not None:
                raise
            if waiting != str(error):
                say(f"{error} Waiting for the log to grow.")
            waiting = str(error)
            time.sleep(every)
            continue
        state = laws.watch(steps, losses, total, schedule, beat=beat)
        if before is None:
            say(source)
        if json and state != before:
            write_json(state.to_dict())
        elif state != before:
            out.print(sentence(state), markup=False, highlight=False)
        before = state
        if state.alarm is not None and state.alarm != state.reason:
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
) -> tuple[list[float], list[float], str]:
    """Steps and losses of a log, and where they were read; `metric` is for printed output.

    A log of several runs (a folder of W&B, a database of trackio) needs the name of one.
    """
    if metric is not None or path.suffix.lower() in TEXT:
        return _read_text(path, metric)
    from allometry.runs import importers

    imported = importers.load(path, loss=loss, D=step)
    columns, diverged = imported.columns, imported.diverged
    if run is not None or len(imported.curves) > 1:
        columns, diverged = _curve(imported.curves, run), []
    fix = "Name its column with --step."
    require("D" in columns, "log", "have steps or tokens", sorted(columns), fix)
    steps, losses = list(map(float, columns["D"])), list(map(float, columns["loss"]))
    # Sparse logs write NaN for steps without an evaluation; a divergence has no number after it.
    if diverged and min(diverged) > max(steps):
        steps, losses = [*steps, *diverged], [*losses, *[math.nan] * len(diverged)]
    names = imported.recognised
    return steps, losses, f"Loss from {names.get('loss', 'loss')!r}, {len(steps)} points."


def _curve(curves: "dict[str, Any]", run: str | None) -> "dict[str, Any]":
    """The steps and losses of the named run."""
    names = sorted(curves)
    fix = f"Choose one with --run: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}."
    require(run in curves, "run", "name a run of the log", run, fix)
    assert run is not None
    curve = curves[run]
    steps = curve["step"] if "step" in curve else curve.get("D")
    return {"loss": curve["loss"]} | ({} if steps is None else {"D": steps})


def _read_text(path: Path, metric: str | None) -> tuple[list[float], list[float], str]:
    """Steps and losses of printed lines, by a pattern or the first kind of loss that is found."""
    text = read_text(path, MOST_TABLE).splitlines()
    if metric is not None:
        steps, losses = _matched(text, _pattern(metric))
        source = f"Loss from the pattern {metric!r}, {len(steps)} lines."
    else:
        steps, losses, source = [], [], ""
        for name, words in LOSSES.items():
            steps, losses = _matched(text, _pattern(f"{words}{NUMBER}"))
            source = f"{name} of {len(steps)} lines."
            if len(set(steps)) >= 2:
                break
    fix = "Give a pattern with --metric, such as 'step ([0-9]+) loss ([0-9.]+)'."
    require(len(steps) > 0, "log", "have lines with step and loss", str(path), fix)
    return steps, losses, source


def _pattern(metric: str) -> re.Pattern[str]:
    """The pattern; with one group, the step is the number behind a word for it."""
    try:
        pattern = re.compile(metric, re.IGNORECASE)
    except re.error as error:
        raise InputError(f"metric must be a regular expression; got {error}.") from None
    groups = pattern.groups
    require(groups in (1, 2), "metric", "have one group, the loss, or two, step and loss", metric)
    return pattern


def _matched(lines: list[str], pattern: re.Pattern[str]) -> tuple[list[float], list[float]]:
    steps, losses = [], []
    for line in lines:
        found = pattern.search(line[:2000])
        place = found if pattern.groups == 2 else STEP.search(line[:2000])
        if found is None or place is None:
            continue
        try:
            step, loss = float(place[1]), float(found[pattern.groups])
        except (TypeError, ValueError):
            continue
        steps.append(step)
        losses.append(loss)
    return steps, losses
