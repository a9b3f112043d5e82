r"""Runtimes of a user's own training code, known from its finished runs alone.

Nothing is profiled: a script would be started twice. The seconds of a run are modelled as
$t = a + b x$ with a start-up time $a \ge 0$ and a scale $x$, its FLOPs. Until two scales have
finished, the time is taken to be proportional to the scale, which overestimates larger runs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import optimize

from allometry._core.spec import Spec
from allometry.runs.journal import Journal
from allometry.study.request import Request
from allometry.study.schedule.measured_costs import MeasuredCosts, RunCosts
from allometry.study.study import Study
from allometry.study.tasks import Bundle

UNKNOWN = 1e-3
"""Seconds of the first shape while nothing has finished: the smallest are started first."""

GROWTH = 4.0
"""Ratio of the runtimes of neighbouring shapes of unknown size, until two are measured."""


@final
@dataclass(frozen=True)
class _Shape:
    """What a runtime depends on: FLOPs, or parameters; else the place in the table."""

    rung: int
    scale: float

    @classmethod
    def of(cls, request: Request) -> "_Shape":
        budget = request.budget()
        scale = float(budget.C or budget.N)
        return cls(0 if scale else int(request.columns.get("rung") or 0), scale)


@final
@dataclass
class OwnCosts(RunCosts):
    """Expected seconds of a user's runs.

    Args:
        machine: Runtimes of this machine, for everything but the runs.
        finished: Seconds of the finished runs by shape.
    """

    machine: MeasuredCosts
    finished: dict[_Shape, list[float]] = field(default_factory=dict)

    longest_share = 1.0

    @classmethod
    def of(
        cls, machine: MeasuredCosts, specs: Iterable[Spec], rows: Mapping[str, Mapping[str, Any]]
    ) -> "OwnCosts":
        """The costs by the records of a journal, so that a resumed study knows them."""
        found = cls(machine)
        for spec in specs:
            row = rows.get(spec.key, {})
            seconds = row.get("seconds")
            if row.get("status") == "done" and isinstance(seconds, int | float) and seconds > 0:
                found.finished.setdefault(_Shape.of(spec()), []).append(float(seconds))
        return found

    @property
    def known(self) -> bool:
        """Whether a run has finished."""
        return bool(self.finished)

    def seconds(self, bundle: Bundle) -> float:
        """Expected seconds of a bundle; those of the slowest finished run of the same shape."""
        return sum(self._one(_Shape.of(task.spec())) for task in bundle.tasks)

    def learn(self, bundle: Bundle, seconds: float, busy: float | None = None) -> None:
        """Record the seconds of a finished run."""
        if len(bundle.tasks) == 1:
            self.finished.setdefault(_Shape.of(bundle.tasks[0].spec()), []).append(seconds)

    def first_run(self) -> float:
        """Zero: a command starts as often as it runs."""
        return 0.0

    def learn_first_run(self, seconds: float) -> None:
        """A worker's first run counts like any other."""

    def report(self, runs: int) -> float:
        """Expected seconds of the report."""
        return self.machine.report(runs)

    def learn_report(self, runs: int, seconds: float) -> None:
        """Record the seconds of the report."""
        self.machine.learn_report(runs, seconds)

    def save(self, workers: int, threads: int) -> None:
        """The journal has the runtimes; the machine's file has those of reports."""
        self.machine.save(workers, threads)

    def _one(self, shape: _Shape) -> float:
        same = self.finished.get(shape)
        if same is not None:
            return max(same)
        if not self.finished:
            return UNKNOWN * (1 + shape.rung + math.log1p(shape.scale))
        scales = {s.scale for s in self.finished}
        if shape.scale > 0 and min(scales) > 0:
            return self._by_scale(shape.scale)
        return self._by_rung(shape.rung)

    def _by_scale(self, x: float) -> float:
        """Start-up time and seconds per scale, times the worst ratio of a run to that line."""
        rows = [(s.scale, t) for s, times in self.finished.items() for t in times]
        X, t = np.array(rows).T
        if len(set(X.tolist())) == 1:
            return float(t.max()) * max(x / float(X[0]), 1e-3)
        # Relative errors count: the runtimes span orders of magnitude.
        unit = float(X.max())
        design = np.column_stack([np.ones(len(t)), X / unit]) / t[:, None]
        (start, pace), _ = optimize.nnls(design, np.ones(len(t)))
        worst = float((t / np.maximum(start + pace * X / unit, 1e-9)).max())
        return (start + pace * x / unit) * max(worst, 1.0)

    def _by_rung(self, rung: int) -> float:
        """The runtime of the next measured shape, multiplied per shape in between."""
        slowest: dict[int, float] = {}
        for shape, times in self.finished.items():
            slowest[shape.rung] = max(slowest.get(shape.rung, 0.0), *times)
        measured = sorted(slowest)
        below = [r for r in measured if r <= rung]
        if not below:
            return slowest[measured[0]]
        last, growth = below[-1], GROWTH
        if len(below) > 1:
            step = (slowest[last] / slowest[below[-2]]) ** (1 / (last - below[-2]))
            growth = max(1.0, step)
        return slowest[last] * growth ** min(rung - last, 30)


def costs_of(study: Study, folder: Path, machine: MeasuredCosts) -> RunCosts:
    """The costs of a study's runs: by its finished runs if they can't be profiled."""
    if getattr(study.target, "profiled", True):
        return machine
    return OwnCosts.of(machine, study.specs(), Journal(folder / "journal.jsonl").latest())
