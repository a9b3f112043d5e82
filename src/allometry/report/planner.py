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


def planner(
    laws: Sequence[NamedLaw],
    *,
    compute: float | None = None,
    unique: float | None = None,
    source: str = "RUNS",
    cautions: Sequence[str] | None = None,
) -> Planner | None:
    """The planner for those laws that can plan; `None` if none can.

    Args:
        laws: Laws, the most important first.
        compute: The budget shown first, in FLOPs. Default: ten times the largest run.
        unique: Amount of distinct data, if it is limited.
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
    budget = compute or 10.0 * float(np.exp(first.law.table.logs["C"].max()))
    chosen = tuple({a.name: a for a in hardware.accelerators().values()}.values())
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
        "start": {
            "budget": float(f"{budget:.3g}") if compute is None else compute,
            "on": ACCELERATOR,
            "count": COUNT,
            "mfu": hardware.MFU,
            "price": None,
            "unique": unique,
            "tokens": None,
            "fixed": None,
        },
        "source": source,
    }
    return Planner(
        laws=tuple(each for each, _ in made),
        accelerators=chosen,
        cautions=_cautions(first, budget, unique) if cautions is None else tuple(cautions),
        tokens=plural(first.token),
        optimal=made[0][1]["kind"] == "allocation",
        data=json.dumps(data, allow_nan=False, separators=(",", ":")),
    )


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
