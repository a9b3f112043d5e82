"""One of the studies that a referee compares: its runs by size, seed and learning rate."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from allometry._core.spec import Spec
from allometry.laws.comparison.repeated_rows import RATES
from allometry.runs.journal import Journal
from allometry.study.execute.executors import Executor
from allometry.study.execute.time_limited_queue import TimeLimitedQueue, ending
from allometry.study.own_training.own_costs import OwnCosts, costs_of
from allometry.study.schedule import measured_costs
from allometry.study.schedule.measured_costs import RunCosts
from allometry.study.study import Study
from allometry.study.tasks import Task, single

FIRST_SIZES, FIRST_SEEDS, MOST_SEEDS = 3, 2, 16


@final
@dataclass(frozen=True)
class ChosenRuns:
    """A recipe that asks for given runs only."""

    specs: tuple[Spec, ...]
    __name__ = "chosen"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The given runs."""
        return list(self.specs)


@final
@dataclass
class Size:
    """The runs of one size by seed and learning rate; `compute` is 0 if it is not known yet."""

    compute: float
    specs: dict[int, dict[float | None, Spec]] = field(default_factory=dict)


@final
@dataclass
class Arm:
    """One of the studies, the cheapest size first.

    `lost` has the keys of runs that failed; they are not started again by the same referee.
    """

    name: str
    study: Study
    folder: Path
    workers: int = 1
    threads: int = 1
    sizes: list[Size] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    overhead: float = 0.0

    def __post_init__(self) -> None:
        found: dict[tuple[Any, ...], tuple[float, Size]] = {}
        for spec in self._with_seeds(max(MOST_SEEDS, self.study.seeds)).specs():
            request = spec()
            columns, budget = request.columns, request.budget()
            rate = next((columns[name] for name in RATES if name in columns), None)
            others = {k: v for k, v in columns.items() if k not in (*RATES, *VARYING)}
            text = columns.get("shape") if rate is None else sorted(map(str, others.items()))
            key = (columns.get("family"), str(text), budget.N, budget.D)
            size = Size(float(budget.C or budget.N * budget.D))
            order = size.compute or float(columns.get("rung", 0))
            _, size = found.setdefault(key, (order, size))
            size.specs.setdefault(int(columns.get("seed", 0)), {})[rate] = spec
        self.sizes = [size for _, size in sorted(found.values(), key=lambda item: item[0])]
        machine = measured_costs.load(self.workers, self.threads)
        self.costs: RunCosts = costs_of(self._with_seeds(MOST_SEEDS), self.folder, machine)

    def _with_seeds(self, seeds: int) -> Study:
        old = self.study
        return Study(old.target, old.recipes, old.ladder, seeds, old.tokens, old.unit)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds of any size."""
        return max(len(size.specs) for size in self.sizes)

    @property
    def own(self) -> bool:
        """Whether it is the user's own code."""
        return isinstance(self.costs, OwnCosts)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The records of its runs by key."""
        return Journal(self.folder / "journal.jsonl").latest()

    def chosen(self, sizes: int, seeds: int) -> list[Spec]:
        """The first sizes with the first seeds; further seeds at the best learning rate only."""
        rows, out = self.rows(), []
        for size in self.sizes[:sizes]:
            best = best_rate(size, rows)
            for i, (_, rates) in enumerate(sorted(size.specs.items())[:seeds]):
                every = i < FIRST_SEEDS or best is None or best not in rates
                out += list(rates.values()) if every else [rates[best]]
        return out

    def missing(self, sizes: int, seeds: int) -> list[Spec]:
        """Those of `chosen` that have neither finished nor failed."""
        settled = Journal(self.folder / "journal.jsonl").settled() | self.lost
        return [spec for spec in self.chosen(sizes, seeds) if spec.key not in settled]

    def expected(self, specs: Sequence[Spec]) -> float:
        """Expected seconds of some runs and of starting the workers."""
        works = [self.costs.seconds(single(Task(spec, spec().work()))) for spec in specs]
        return ending([0.0] * self.workers, sorted(works)) + self.overhead if works else 0.0

    def carry_out(self, sizes: int, seeds: int, executor: Executor, seconds: float) -> None:
        """Run what is missing of the first sizes and seeds, within a time."""
        specs = self.missing(sizes, seeds)
        if not specs:
            return
        old, began = self.study, time.monotonic()
        recipe = ChosenRuns(tuple(specs))
        chosen = Study(old.target, [recipe], old.ladder, seeds, old.tokens, old.unit)
        chosen.run(
            self.folder,
            executor,
            make_queue=lambda bundles: TimeLimitedQueue(
                bundles, seconds, executor.workers, self.costs
            ),
        )
        rows = self.rows()
        new = [rows[spec.key] for spec in specs if spec.key in rows]
        self.lost |= {row["key"] for row in new if row.get("status") == "failed"}
        if len(new) == len(specs):
            busy = ending([0.0] * self.workers, [float(row.get("seconds") or 0) for row in new])
            self.overhead = max(self.overhead, time.monotonic() - began - busy)

    def records(self) -> list[dict[str, Any]]:
        """Its runs at the best learning rate of each size, failed ones included."""
        rows, out = self.rows(), []
        for size in self.sizes:
            best = best_rate(size, rows)
            for rates in size.specs.values():
                specs = list(rates.values()) if best not in rates else [rates[best]]
                out += [rows[spec.key] for spec in specs if spec.key in rows]
        return out

    def rate_notes(self) -> list[str]:
        """Which learning rates are used, and whether they are at the end of those tried."""
        rows, best, ends = self.rows(), [], False
        for size in self.sizes:
            tried = sorted(r for r in next(iter(size.specs.values())) if r is not None)
            rate = best_rate(size, rows)
            if rate is not None and len(tried) > 1:
                best.append(f"{rate:g}")
                ends = ends or rate in (tried[0], tried[-1])
        if not best:
            return []
        where = ", which is at the end of the values tried. Try further values" if ends else ""
        return [
            f"{self.name}: learning rates by the first {FIRST_SEEDS} seeds, from the smallest "
            f"size: {', '.join(best)}{where}."
        ]

    def ignores_seed(self) -> bool:
        """Whether several seeds of each size always end with the same loss."""
        groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for row in self.rows().values():
            if row.get("status") == "done":
                groups[row.get("shape"), row.get("N"), row.get("D")].append(row.get("loss"))
        several = [losses for losses in groups.values() if len(losses) > 1]
        return bool(several) and all(len(set(losses)) == 1 for losses in several)


VARYING = ("shape", "seed", "rung")
"""Columns in which the runs of one size differ if several learning rates are tried."""


def best_rate(size: Size, rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The learning rate with the lowest mean loss over the first seeds; `None` if unknown."""
    means: dict[float, float] = {}
    first = [rates for _, rates in sorted(size.specs.items())[:FIRST_SEEDS]]
    for rate in first[0] if first else ():
        keys = [rates[rate].key for rates in first if rate in rates]
        losses = [rows[k]["loss"] for k in keys if rows.get(k, {}).get("status") == "done"]
        if rate is not None and losses:
            means[float(rate)] = float(np.mean(losses))
    return min(means, key=lambda rate: means[rate]) if means else None
