"""Run two studies against each other until a verdict stands or the budget is spent.

The first round has the smallest sizes with two seeds of each recipe. After each round the runs are
compared; the evidence is valid at every look. While undecided, the next round adds a size if the
multiplier at the scale asked for is much less certain than at the largest size measured. Otherwise
it adds a seed of every size. No round is started that is not expected to end within the budget,
and runs in progress at its end are stopped.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from allometry._core.errors import InputError, require
from allometry._core.files import make_folder
from allometry.laws import RecipeComparison, compare_recipes
from allometry.laws.comparison.wording import progress
from allometry.study.execute.executors import Executor
from allometry.study.own_training.command_study import observations
from allometry.study.referee_arm import FIRST_SEEDS, FIRST_SIZES, MOST_SEEDS, Arm
from allometry.study.study import Study

TREND_DECIDES = 2.0
"""Ratio of the widths, beyond and inside the measured sizes, from which on a size is added."""


@final
@dataclass(frozen=True)
class Refereed:
    """The comparison, the number of its runs, the seconds it took, and why it ended.

    `notes` are sentences on failed runs, learning rates and mistakes in the user's code.
    """

    found: RecipeComparison
    runs: int
    seconds: float
    why: str
    notes: tuple[str, ...] = ()


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
            seeds are added as needed. Several learning rates are all tried with the first two
            seeds of a size; further seeds use the best.
        folder: Each study has a folder in it; the same folder again continues.
        seconds: Time budget of this call.
        executor: Carries the runs out.
        at: Scale of the verdict in FLOPs. Default: the largest that all studies can reach.
        noise: Standard deviation of the log loss between seeds, if known from elsewhere.
        report: Receives a sentence after each round.
    """
    require(len(studies) >= 2, "studies", "be at least 2", list(studies))
    require(seconds > 0, "budget", "be above 0", seconds)
    end = (began := time.monotonic()) + seconds
    folder = make_folder(folder)
    arms = [
        Arm(name, study, folder / name, executor.workers, executor.threads)
        for name, study in studies.items()
    ]
    most = min(len(arm.sizes) for arm in arms)
    tops = [arm.sizes[-1].compute for arm in arms]
    goal = at if at is not None or min(tops) <= 0 else min(tops)
    sizes, seeds = min(FIRST_SIZES, most), FIRST_SEEDS
    while True:
        for i, arm in enumerate(arms):
            # Each study has its share, so that one whose runs hang does not use up all the time.
            arm.carry_out(
                sizes, seeds, executor, max(0.0, end - time.monotonic()) / (len(arms) - i)
            )
        frame = frame_of(arms, seconds)
        found = compare_recipes(frame, at=goal, noise=noise)
        many = f"{sizes} sizes" if sizes > 1 else "1 size"
        report(f"{many}, {seeds} seeds: {progress(found)}")
        following = _following(arms, found, sizes, seeds, most)
        left = end - time.monotonic()
        why = _why(arms, found, (sizes, seeds), following, left)
        if why is not None:
            done = int((frame["status"] == "done").sum())
            return Refereed(found, done, time.monotonic() - began, why, _notes(arms))
        assert following is not None
        sizes, seeds = following


def frame_of(arms: Sequence[Arm], seconds: float) -> dict[str, Any]:
    """The runs of all studies as columns, with the recipe's name."""
    rows = [row | {"recipe": arm.name} for arm in arms for row in arm.records()]
    for arm in arms:
        mine = [row for row in rows if row["recipe"] == arm.name]
        if any(row.get("status") == "done" for row in mine):
            continue
        lost = [str(row.get("error")) for row in mine]
        reason = f"none did: {lost[0]}" if lost else f"none did within {seconds:.3g} s"
        fix = "" if lost else " Give a larger --budget; the same command continues."
        raise InputError(f"every study must have a run that ends; of {arm.name} {reason}.{fix}")
    names = ("recipe", "N", "D", "C", "loss", "seed", "status")
    return {name: np.array([row.get(name) for row in rows], object) for name in names}


def _following(
    arms: Sequence[Arm], found: RecipeComparison, sizes: int, seeds: int, most: int
) -> tuple[int, int] | None:
    """The sizes and seeds of the next round; `None` if there is nothing to add."""
    (low, high), (near, far) = found.multiplier.interval, found.measured.interval
    trend = np.log(high / max(low, 1e-12)) > TREND_DECIDES * np.log(far / max(near, 1e-12))
    useful = not any(arm.ignores_seed() for arm in arms)
    most_seeds = min(MOST_SEEDS, *(arm.most_seeds for arm in arms)) if useful else FIRST_SEEDS
    if sizes < most and (trend or seeds >= most_seeds):
        return sizes + 1, seeds
    return (sizes, seeds + 1) if seeds < most_seeds else None


def _why(
    arms: Sequence[Arm],
    found: RecipeComparison,
    now: tuple[int, int],
    following: tuple[int, int] | None,
    left: float,
) -> str | None:
    """Why the comparison ends here; `None` if the next round is to be carried out."""
    if found.winner is not None:
        return "the verdict stands"
    waiting = sum(len(arm.missing(*now)) for arm in arms)
    if waiting:
        runs = "1 run was" if waiting == 1 else f"{waiting} runs were"
        return f"{runs} left out to keep to the budget"
    if following is None:
        deaf = [arm.name for arm in arms if arm.ignores_seed()]
        if deaf:
            return f"all seeds of {', '.join(deaf)} end with the same loss, so more add nothing"
        return "all sizes and seeds are used"
    cost = sum(arm.expected(arm.missing(*following)) for arm in arms)
    if cost > left:
        return (
            f"the next round would take about {cost:.2g} s, more than the budget has left "
            f"({max(left, 0):.2g} s)"
        )
    return None


def _notes(arms: Sequence[Arm]) -> tuple[str, ...]:
    """Sentences on learning rates, and on failed runs and mistakes in the user's code."""
    notes = []
    for arm in arms:
        notes += arm.rate_notes()
        notes += [f"{arm.name}: {text}" for text in observations(arm.rows().values())]
    return tuple(notes)
