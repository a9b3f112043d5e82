"""The study of a user's command: what is refused in advance, and what is checked afterwards."""

import hashlib
import json
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.study.own_training import metrics
from allometry.study.own_training.command_runs import OWN, PLACEHOLDER, CommandRun
from allometry.study.own_training.shape_tables import Shape
from allometry.study.study import Study

MOST_REASONS = 3
"""Reasons of failed runs that are printed."""

RESERVED = ("loss", "loss_se", "key", "status", "error", "N_embedding", "D_unique", "C_6ND")
"""Columns of the journal that a shape can't set."""


@final
@dataclass(frozen=True)
class OwnTask:
    """The task of a user's own training code, of which only a name is known.

    Args:
        name: One word.
        fingerprint: Of the code or command, so that one folder holds one study.
        unit: Unit of the loss, which only the user knows.
    """

    name: str
    fingerprint: str
    unit: str = "units"

    profiled = False
    """Runs are not timed in advance: they would be started twice."""

    @property
    def D_unique(self) -> float:
        """Unknown, so every example counts as new."""
        return math.inf

    def describe(self) -> dict[str, Any]:
        """The task in `study.json`. The command is not among it: files name no code."""
        return {
            "target": self.name, "name": self.name, "kind": "own", "unit": self.unit,
            "token": "token", "D_unique": None, "fingerprint": self.fingerprint,
        }  # fmt: skip


@final
@dataclass(frozen=True)
class CommandRecipe:
    """The runs of a command over shapes; sizes of the ladder are ignored."""

    command: tuple[str, ...]
    shapes: tuple[Shape, ...]
    family: str
    options: Mapping[str, Any]
    __name__ = "command"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """One request per shape and seed; a column `seed` of the shapes gives its own."""
        specs = []
        for rung, shape in enumerate(self.shapes):
            values = {k: v for k, v in shape.items() if k != "seed"}
            chosen = [int(shape["seed"])] if "seed" in shape else range(seeds)
            specs += [
                Spec(
                    CommandRun, command=list(self.command), values=values, family=self.family,
                    target=target.name, seed=seed, rung=rung, **self.options,
                )
                for seed in chosen
            ]  # fmt: skip
        return specs


def command_study(
    command: str | Sequence[str],
    shapes: Sequence[Mapping[str, Any]],
    *,
    metric: str = "json:loss",
    seeds: int = 2,
    rates: Sequence[float] = (),
    name: str | None = None,
    n_metric: str | None = None,
    flops_metric: str | None = None,
    timeout: float = 86_400.0,
    retries: int = 1,
) -> Study:
    """The study that runs a command once per shape, learning rate and seed.

    Args:
        command: Program and arguments with placeholders, such as
            `"python train.py --width {width} --seed {seed}"`. It is split as a shell would split
            it, but no shell runs it.
        shapes: Values of the placeholders, one mapping per size; see `shapes_of`. `N`, `D` and
            `C` are parameters, data and FLOPs.
        metric: Where the loss is read: a regular expression with a group, `json:KEY`, or
            `file:PATH`.
        seeds: Repetitions of each shape.
        rates: Values of `{lr}`, each of them with every shape.
        name: Name of the recipe. Default: the script's.
        n_metric: Where the number of parameters is read, like `metric`.
        flops_metric: Where the FLOPs are read.
        timeout: Seconds after which a run is ended.
        retries: How often a run that fails is started again.

    Example:
        >>> study = command_study("train --width {width} --seed {seed}", [{"width": 8, "N": 64}])
        >>> len(study.specs())
        2
    """
    parts = _split(command)
    require(seeds >= 1, "seeds", "be at least 1", seeds)
    require(0 < timeout < math.inf, "timeout", "be seconds above 0 and finite", timeout)
    require(0 <= retries <= 100, "retries", "be from 0 to 100", retries)
    for text, option in (
        (metric, "metric"), (n_metric, "n_metric"), (flops_metric, "flops_metric"),
    ):  # fmt: skip
        if text is not None:
            metrics.check(text, option)
    table = [dict(shape) for shape in shapes]
    require(len(table) > 0, "shapes", "have at least one shape", table)
    if rates:
        table = [shape | {"lr": float(rate)} for shape in table for rate in rates]
    _check(parts, metric, table, seeds)
    _check_size(table, metric, n_metric)
    name = name or _name(parts)
    options = {
        "metric": metric, "n_metric": n_metric, "flops_metric": flops_metric,
        "timeout": float(timeout), "retries": retries,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps([parts, metric]).encode()).hexdigest()
    recipe = CommandRecipe(tuple(parts), tuple(table), name, options)
    sizes = [float(shape.get("N") or i + 1) for i, shape in enumerate(table)]
    return Study(OwnTask(name, digest), [recipe], ladder=sizes, seeds=seeds, tokens=1)


def _split(command: str | Sequence[str]) -> list[str]:
    """Program and arguments."""
    try:
        parts = shlex.split(command) if isinstance(command, str) else [str(p) for p in command]
    except ValueError as error:
        raise InputError(f"command must be closed in its quotes; got {error}.") from None
    require(len(parts) > 0, "command", "name a program", command)
    shell = [part for part in parts if part in ("|", "&&", "||", ";", ">", ">>", "<", "&")]
    fix = "Put it in a script, or run it with: bash -c '...'."
    require(not shell, "command", "be one program, as no shell runs it", shell, fix)
    return parts


def _check(parts: list[str], metric: str, table: list[Shape], seeds: int) -> None:
    """Refuse placeholders without values, values that clash, and seeds without effect."""
    used = {name for part in (*parts, metric) for name in PLACEHOLDER.findall(part)}
    if not metric.startswith("file:"):
        used -= set(PLACEHOLDER.findall(metric)) - {
            name for part in parts for name in PLACEHOLDER.findall(part)
        }
    for shape in table:
        missing = sorted(used - set(shape) - set(OWN))
        known = ", ".join(sorted(set(shape) | set(OWN)))
        require(not missing, "command", f"use the placeholders {known}", missing,
                "Add the others to --shapes.")  # fmt: skip
        clash = sorted(set(shape) & set(RESERVED))
        require(not clash, "shapes", "not name columns of the journal", clash, "Rename them.")
    own_seeds = all("seed" in shape for shape in table)
    fix = "Pass it on, as in --seed {seed}, or ask for --seeds 1."
    require("seed" in used or (seeds == 1 and not own_seeds), "command",
            "use {seed} if a shape is run several times", " ".join(parts), fix)  # fmt: skip


def _check_size(table: list[Shape], metric: str, n_metric: str | None) -> None:
    """Refuse a study whose number of parameters can't be known."""
    known = n_metric is not None or metric.startswith(("json:", "file:"))
    lacking = [shape for shape in table if not _positive(shape.get("N"))]
    fix = "Add N to --shapes, as in N=12*depth*width^2, or read it with --n-metric."
    require(known or not lacking, "shapes", "give the number of parameters N", lacking[:1], fix)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _name(parts: list[str]) -> str:
    """The script's name without its suffix."""
    script = next((p for p in parts if p.endswith((".py", ".sh"))), parts[0])
    return Path(script).stem[:60] or "command"


def observations(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sentences on finished runs that suggest a mistake in the user's script.

    Args:
        rows: Records of the journal.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.get("status") in ("failed", "diverged"):
            reasons[str(row.get("error"))] += 1
        if row.get("status") == "done":
            groups[str(row.get("family")), str(row.get("shape"))].append(row)
    notes = [
        f"{count} {'run' if count == 1 else 'runs'}: {reason}"
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:MOST_REASONS]
    ]
    several = [group for group in groups.values() if len({row.get("seed") for row in group}) > 1]
    same = [g for g in several if len({row.get("loss") for row in g}) == 1]
    if same:
        shape = same[0][0].get("shape")
        notes.append(
            f"All seeds of {shape} ended with the same loss, {same[0][0].get('loss'):.6g}: the "
            "script seems to ignore {seed}, so the noise of a run is not known."
        )
    changed = [g for g in groups.values() if len({row.get("N") for row in g}) > 1]
    if changed:
        sizes = sorted({float(row.get("N") or 0) for row in changed[0]})
        notes.append(
            f"Runs of {changed[0][0].get('shape')} have different numbers of parameters, "
            f"{sizes[0]:g} to {sizes[-1]:g}: one shape must be one model."
        )
    return notes
