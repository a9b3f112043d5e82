"""The interactive planner of a page: what its template and its scripts need.

The scripts are `templates/planner*.js`. They evaluate the law in the page, so that a report
answers other budgets without Python. State is in the URL fragment; nothing is sent anywhere.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from allometry._core.errors import InputError
from allometry.laws import Law, hardware, memory
from allometry.laws.hardware import Hardware
from allometry.report import claims, theme
from allometry.report.planner_payload import payload
from allometry.report.prose import plural

STYLE = "planner.css"
SCRIPTS = (
    "planner_forms.js",
    "planner_law.js",
    "planner_words.js",
    "planner_charts.js",
    "planner.js",
    "planner_controls.js",
)
"""Files of the templates folder, in the order in which the page runs them."""

MOST_DOTS = 300
"""Runs drawn in the chart."""

ACCELERATOR = "H100"
COUNT = 8
BATCH_TOKENS = 4096
"""Tokens in flight on each accelerator, for the estimate of memory."""


@final
@dataclass(frozen=True)
class NamedLaw:
    """A law of the planner.

    Args:
        law: The law.
        name: Its name in the page.
        unit: Unit of the loss.
        token: Unit of the data.
        family: Value of `--family` for the command, if the runs have several families.
    """

    law: Law
    name: str = ""
    unit: str = "nats"
    token: str = "token"
    family: str = ""


@final
@dataclass(frozen=True)
class Planner:
    """The planner of a page.

    Args:
        laws: The laws to choose from.
        accelerators: The accelerators to choose from.
        cautions: Sentences on what the runs do not identify.
        tokens: Unit of the data, in the plural.
        optimal: Whether the first law allocates compute to size and data.
        data: What the scripts read, as JSON.
    """

    laws: tuple[NamedLaw, ...]
    accelerators: tuple[hardware.Accelerator, ...]
    cautions: tuple[str, ...]
    tokens: str
    optimal: bool
    data: str


@final
@dataclass(frozen=True)
class Question:
    """What the planner shows first.

    Args:
        compute: The budget in FLOPs. Default: ten times the largest run.
        N: The fixed size.
        D: The fixed data.
        unique: Amount of distinct data, if it is limited.
        inference_tokens: Tokens to generate after training.
        hardware: The accelerators and their price.
    """

    compute: float | None = None
    N: float | None = None
    D: float | None = None
    unique: float | None = None
    inference_tokens: float | None = None
    hardware: Hardware | None = None


def planner(
    laws: Sequence[NamedLaw],
    question: Question,
    *,
    source: str = "RUNS",
    cautions: Sequence[str] | None = None,
) -> Planner | None:
    """The planner for those laws that can plan; `None` if none can.

    Args:
        laws: Laws, the most important first.
        question: What the planner shows first.
        source: The runs, as `allometry plan` is given them.
        cautions: What the runs do not identify. Default: checked at the first budget.
    """
    made: list[tuple[NamedLaw, dict[str, Any]]] = []
    for each in laws:
        try:
            made.append((each, payload(each.law)))
        except InputError:
            continue
    if not made:
        return None
    first = made[0][0]
    budget = question.compute or _rounded(10.0 * float(np.exp(first.law.table.logs["C"].max())))
    chosen = _accelerators(question.hardware)
    data = {
        "laws": [
            {
                "name": each.name,
                "unit": each.unit,
                "token": each.token,
                "family": each.family,
                "runs": _dots(each.law),
                "payload": plain,
            }
            for each, plain in made
        ],
        "accelerators": [
            {"name": a.name, "peak_flops": a.peak_flops, "memory": a.memory, "power": a.power}
            for a in chosen
        ],
        "memory": {
            "bytes": memory.WEIGHTS + memory.GRADIENTS + memory.OPTIMISER,
            "activations": memory.ACTIVATIONS["attention"],
            "aspect": memory.ASPECT,
            "batch_tokens": BATCH_TOKENS,
        },
        "start": _start(question, budget),
        "source": source,
    }
    return Planner(
        laws=tuple(each for each, _ in made),
        accelerators=chosen,
        cautions=_cautions(first, budget, question.unique)
        if cautions is None
        else tuple(cautions),
        tokens=plural(first.token),
        optimal=made[0][1]["kind"] == "allocation",
        data=json.dumps(data, allow_nan=False, separators=(",", ":")),
    )


def _rounded(x: float) -> float:
    return float(f"{x:.3g}")


def _accelerators(asked: Hardware | None) -> tuple[hardware.Accelerator, ...]:
    """The known accelerators, with the one asked for if it is the user's own."""
    known = {a.name: a for a in hardware.accelerators().values()}
    if asked is not None:
        known[asked.accelerator.name] = asked.accelerator
    return tuple(known.values())


def _start(question: Question, budget: float) -> dict[str, Any]:
    """The first state of the page."""
    machine = question.hardware
    fix = "N" if question.N is not None else "D" if question.D is not None else "none"
    return {
        "budget": budget,
        "on": ACCELERATOR if machine is None else machine.accelerator.name,
        "count": COUNT if machine is None else machine.count,
        "mfu": hardware.MFU if machine is None else machine.mfu,
        "price": None if machine is None else machine.price,
        "currency": "$" if machine is None else machine.currency,
        "unique": question.unique,
        "tokens": question.inference_tokens or None,
        "fix": fix,
        "fixed": question.N if question.N is not None else question.D,
    }


def _dots(law: Law) -> list[list[float]]:
    logs = law.table.logs
    if "C" not in logs:
        return []
    columns = theme.sample({"C": np.exp(logs["C"]), "loss": np.exp(law.table.y)}, MOST_DOTS)
    return [
        [float(f"{c:.5g}"), float(f"{loss:.6g}")]
        for c, loss in zip(columns["C"], columns["loss"], strict=True)
    ]


def _cautions(first: NamedLaw, budget: float, unique: float | None) -> tuple[str, ...]:
    """Why the report would not state a forecast at the first budget, if it would not."""
    law = first.law
    both = {"N", "D"} <= set(law.variables)
    plan = law.plan(budget, unique=unique if both else None)
    claim = claims.planned(law, plan, unique, first.unit, first.token)
    if claim is None or claim.supported or not math.isfinite(budget):
        return ()
    return (claim.text,)
