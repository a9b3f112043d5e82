"""Run two studies against each other until a verdict stands or the budget is spent.

The first round has the smallest sizes with two seeds of each recipe. After each round the runs are
compared; the evidence is valid at every look. While undecided, the next round adds a size if the
multiplier at the scale asked for is much less certain than at the largest size measured. Otherwise
it adds a seed of every size.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from allometry._core.errors import InputError, require
from allometry._core.files import make_folder
from allometry._core.spec import Spec
from allometry.laws import RecipeComparison, compare_recipes
from allometry.study.execute.executors import Executor
from allometry.study.study import Study

FIRST_SIZES, FIRST_SEEDS, MOST_SEEDS = 3, 2, 16
TREND_DECIDES = 2.0
"""Ratio of the widths, beyond and inside the measured sizes, from which on a size is added."""


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
class Arm:
    """One of the studies: its runs by size and seed, the cheapest size first."""

    name: str
    study: Study
    folder: Path
    sizes: list[dict[int, Spec]] = field(default_factory=list)
    compute: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        old = self.study
        all_seeds = Study(
            old.target, old.recipes, old.ladder, max(MOST_SEEDS, old.seeds), old.tokens, old.unit
        )
        found: dict[tuple[Any, ...], tuple[float, dict[int, Spec]]] = {}
        for spec in all_seeds.specs():
            request = spec()
            columns, budget = request.columns, request.budget()
            key = (columns.get("family"), columns.get("shape"), budget.N, budget.D)
            cost = budget.C or float(budget.N * budget.D) or float(columns.get("rung", 0))
            found.setdefault(key, (cost, {}))[1][int(columns.get("seed", 0))] = spec
        for cost, specs in sorted(found.values(), key=lambda item: item[0]):
            self.sizes.append(specs)
            self.compute.append(cost)

    def carry_out(self, sizes: int, seeds: int, executor: Executor) -> None:
        """Run the first sizes with the first seeds; what is in the journal is not repeated."""
        specs = [s for size in self.sizes[:sizes] for k, s in sorted(size.items())[:seeds]]
        old = self.study
        chosen = Study(
            old.target, [ChosenRuns(tuple(specs))], old.ladder, seeds, old.tokens, old.unit
        )
        chosen.run(self.folder, executor)

    def rows(self) -> list[dict[str, Any]]:
        """The records of its runs."""
        from allometry.runs.journal import Journal

        path = self.folder / "journal.jsonl"
        return list(Journal(path).latest().values()) if path.exists() else []


@final
@dataclass(frozen=True)
class Refereed:
    """The comparison, what it cost, and why it ended."""

    found: RecipeComparison
    runs: int
    seconds: float
    why: str


def referee(
    studies: Mapping[str, Study],
    folder: Path | str,
    seconds: float,
    executor: Executor,
    *,
    at: float | None = None,
    noise: float | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Refereed:
    """Compare two or more studies by running them within a time.

    Args:
        studies: By name of the recipe. Sizes, tokens and families are those of the studies;
            seeds are added as needed.
        folder: Each study has a folder in it; the same folder again continues.
        seconds: Time budget.
        executor: Carries the runs out.
        at: Scale of the verdict in FLOPs. Default: the largest that all studies can reach.
        noise: Standard deviation of the log loss between seeds, if known from elsewhere.
        report: Receives a sentence after each round.
    """
    require(len(studies) >= 2, "studies", "be at least 2", list(studies))
    require(seconds > 0, "budget", "be above 0", seconds)
    began = time.monotonic()
    folder = make_folder(folder)
    arms = [Arm(name, study, folder / name) for name, study in studies.items()]
    most = min(len(arm.sizes) for arm in arms)
    goal = at if at is not None else min(arm.compute[-1] for arm in arms)
    sizes, seeds = min(FIRST_SIZES, most), FIRST_SEEDS
    while True:
        for arm in arms:
            arm.carry_out(sizes, seeds, executor)
        frame = frame_of(arms)
        found = compare_recipes(frame, at=goal if goal > 0 else None, noise=noise)
        spent = time.monotonic() - began
        report(f"{sizes} sizes, {seeds} seeds: {found.verdict}")
        if found.winner is not None:
            return Refereed(found, len(frame["loss"]), spent, "the verdict stands")
        following = _following(found, sizes, seeds, most)
        if following is None:
            return Refereed(found, len(frame["loss"]), spent, "all sizes and seeds are used")
        cost = _cost(arms, frame, (sizes, seeds), following, executor.workers)
        if spent + cost > seconds:
            why = f"the next round would take about {cost:.0f} s, more than the budget has left"
            return Refereed(found, len(frame["loss"]), spent, why)
        sizes, seeds = following


def frame_of(arms: Sequence[Arm]) -> dict[str, Any]:
    """The finished runs of all studies as columns, with the recipe's name."""
    rows = [row | {"recipe": arm.name} for arm in arms for row in arm.rows()]
    done = [row for row in rows if row.get("status") == "done"]
    lost = sorted({str(row.get("error")) for row in rows if row.get("status") != "done"})
    if len({row["recipe"] for row in done}) < len(arms):
        reason = f": {lost[0]}" if lost else ""
        raise InputError(f"every study must have a run that finished; got none of one{reason}.")
    names = ("recipe", "N", "D", "C", "loss", "seed")
    return {name: np.array([row.get(name) for row in done], object) for name in names} | {
        "status": np.array(["done"] * len(done), object)
    }


def _following(
    found: RecipeComparison, sizes: int, seeds: int, most: int
) -> tuple[int, int] | None:
    """The sizes and seeds of the next round; `None` if there is nothing to add."""
    (low, high), (near, far) = found.multiplier.interval, found.measured.interval
    trend = np.log(high / max(low, 1e-12)) > TREND_DECIDES * np.log(far / max(near, 1e-12))
    if sizes < most and (trend or seeds >= MOST_SEEDS):
        return sizes + 1, seeds
    if seeds < MOST_SEEDS:
        return sizes, seeds + 1
    return None


def _cost(
    arms: Sequence[Arm],
    frame: Mapping[str, Any],
    now: tuple[int, int],
    following: tuple[int, int],
    workers: int,
) -> float:
    """Expected seconds of a round, from the time per FLOP of the runs so far."""
    rows = [row for arm in arms for row in arm.rows() if row.get("status") == "done"]
    pace = [float(row["seconds"]) / max(float(row.get("C") or 1), 1.0) for row in rows]
    least = float(np.median([row["seconds"] for row in rows]))
    slowest = float(np.median(pace))
    total = 0.0
    for arm in arms:
        for i, cost in enumerate(arm.compute[: following[0]]):
            extra = following[1] if i >= now[0] else following[1] - now[1]
            total += extra * max(least, slowest * cost)
    return total / max(workers, 1)
