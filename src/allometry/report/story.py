"""What the runs tell: a pure analysis that the page and the command line both speak from."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from allometry._core.errors import require
from allometry.laws import Law, Plan
from allometry.report import judge, words
from allometry.report.judge import Crossing, Frontier, HeldOut, Reach
from allometry.report.runs import (
    Configuration,
    RunsLike,
    Unfinished,
    about,
    configurations,
    counted,
    finished,
    table,
    unfinished,
)

if TYPE_CHECKING:
    from allometry.report.questions import Finding

MULTIPLES = (10, 100)
ROUGH = 0.05
"""Relative error on held-out sizes above which a law is called rough."""
_SELF_SCALED = ("of the entropy of a symbol", "nats per window")
"""Units whose scale has what is simple in it: counting symbols, or guessing by chance."""


@final
@dataclass(frozen=True)
class Family:
    """One trained family: its law, how far it can be trusted, and what it says.

    Args:
        name: The family.
        configurations: Its finished runs, averaged over seeds, smallest compute first.
        best: The one with the lowest loss.
        law: Fitted on all finished runs; `None` where they are too few (see `notes`).
        law_without: Fitted without the held-out sizes.
        held_sizes: The sizes kept out of `law_without`.
        held_out: What was predicted for them and what came.
        crossing: Where the law meets the best count model; `None` without one.
        reaches: What larger budgets would reach.
        frontier: Loss against compute with its band, from the smallest run to the largest reach.
        notes: What is missing or doubtful, in sentences.
    """

    name: str
    configurations: tuple[Configuration, ...]
    best: Configuration
    law: Law | None
    law_without: Law | None
    held_sizes: tuple[float, ...]
    held_out: tuple[HeldOut, ...]
    crossing: Crossing | None
    reaches: tuple[Reach, ...]
    frontier: Frontier | None
    notes: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """The largest relative error over the held-out configurations, in absolute value."""
        return max((abs(h.error) for h in self.held_out), default=None)


@final
@dataclass(frozen=True)
class Story:
    """Everything the report says, as values; `allometry.report.sentences` puts it in words.

    Args:
        target: The target's name.
        unit: Of the loss, such as `nats per character`.
        token: What data are counted in, such as `character`.
        D_unique: How much distinct data there is to train on.
        families: The trained families, best first.
        counted: The best configuration of every family of count models, best first.
        best: The best configuration of all.
        total: How many runs there are.
        waiting: How many more the study has asked for.
        unfinished: Runs that diverged or failed.
        notes: What is missing from the study as a whole.
        verdict: The headline, where the study asks a question and the answer is no law.
        findings: What it rests on.
        characters: That a token stands for in the validation split, where the target says so.
        dimensions: Of an image, where images are the target.
    """

    target: str
    unit: str
    token: str
    D_unique: float | None
    families: tuple[Family, ...]
    counted: tuple[Configuration, ...]
    best: Configuration | None
    total: int
    waiting: int
    unfinished: tuple[Unfinished, ...]
    notes: tuple[str, ...]
    verdict: str = ""
    findings: tuple["Finding", ...] = ()
    characters: float | None = None
    dimensions: int | None = None

    @property
    def rival(self) -> Configuration | None:
        """The best count model."""
        return self.counted[0] if self.counted else None

    @property
    def headline(self) -> str:
        """The answer in a sentence or two."""
        from allometry.report.sentences import headline

        return headline(self)


def tell(
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    hold_out: int = 2,
    seed: int = 0,
) -> Story:
    """What these runs say about how loss falls with size, data and compute.

    Diverged and failed runs are listed but enter no fit.

    Args:
        runs: A study's runs.
        law: The law to show for the trained family with the most runs, instead of fitting one.
        plan: A plan made from that law, shown beside ten and a hundred times the compute.
        hold_out: How many of the largest sizes to predict from the smaller ones.
        seed: Of the fits' intervals.
    """
    require(hold_out >= 0, "tell.hold_out", "be at least 0", hold_out)
    frame = table(runs)
    done = finished(frame)
    said = about(runs).get("target") or {}
    said = said if isinstance(said, dict) else {"name": str(said)}
    if said.get("kind") == "question" and len(frame):
        return _answered(runs, frame, said)
    D_unique = _unique(said, frame)
    everything = configurations(frame)
    best_of = {
        name: min((c for c in everything if c.family == name), key=lambda c: c.loss.value)
        for name in done["family"].unique()
    }
    counts = [n for n in best_of if counted(done[done["family"] == n])]
    trained = sorted((n for n in best_of if n not in counts), key=lambda n: best_of[n].loss.value)
    rivals = tuple(sorted((best_of[n] for n in counts), key=lambda c: c.loss.value))
    given_to = max(trained, key=lambda n: int((done["family"] == n).sum()), default=None)
    families = tuple(
        _family(
            done[done["family"] == name],
            [c for c in everything if c.family == name],
            rivals[0] if rivals else None,
            D_unique,
            law if name == given_to else None,
            plan if name == given_to else None,
            hold_out,
            seed,
        )
        for name in trained
    )
    unit = str(said.get("unit") or "nats")
    return Story(
        target=_called(said, frame),
        unit=unit,
        token=str(said.get("token") or unit.partition(" per ")[2] or "token"),
        D_unique=D_unique,
        families=families,
        counted=rivals,
        best=min(best_of.values(), key=lambda c: c.loss.value, default=None),
        total=len(frame),
        waiting=len(set(about(runs).get("runs") or ()) - set(frame["key"])),
        unfinished=unfinished(frame),
        notes=_missing(frame, done, trained, None if unit in _SELF_SCALED else rivals)
        + _data_loss(done, unit),
        characters=_characters(said),
        dimensions=_dimensions(said),
    )


def _answered(runs: RunsLike, frame: pd.DataFrame, said: dict[str, Any]) -> Story:
    """The story of a study that asks a question: a verdict and what it rests on, no law."""
    from allometry.report import questions

    answer = questions.answer(str(said.get("name")), frame[frame["status"] == "done"])
    return Story(
        target=str(said.get("question") or said.get("name")),
        unit=str(said.get("unit") or ""),
        token=str(said.get("token") or "point"),
        D_unique=None,
        families=(),
        counted=(),
        best=None,
        total=len(frame),
        waiting=len(set(about(runs).get("runs") or ()) - set(frame["key"])),
        unfinished=unfinished(frame[frame["status"] != "done"]),
        notes=answer.notes,
        verdict=answer.verdict,
        findings=answer.findings,
    )


def _called(said: dict[str, Any], frame: pd.DataFrame) -> str:
    first = frame["target"].iloc[0] if len(frame) else ""
    name = str(said.get("name") or said.get("target") or first or "these runs")
    return "the embedded text" if name == "embedded" else name


def _characters(said: dict[str, Any]) -> float | None:
    tokens, characters = (said.get(k) for k in ("tokens", "characters"))
    if not isinstance(tokens, dict) or not isinstance(characters, dict):
        return None
    many = tokens.get("validation")
    return characters.get("validation", 0) / many if many else None


def _dimensions(said: dict[str, Any]) -> int | None:
    shape = said.get("shape")
    return math.prod(map(int, shape)) if said.get("kind") == "images" and shape else None


def _unique(said: dict[str, Any], frame: pd.DataFrame) -> float | None:
    value = said.get("D_unique")
    if value is None:
        known = frame["D_unique"].dropna()
        value = known.max() if len(known) else None
    return None if value is None else float(value)


def _missing(
    frame: pd.DataFrame,
    done: pd.DataFrame,
    trained: list[str],
    rivals: tuple[Configuration, ...] | None,
) -> tuple[str, ...]:
    if frame.empty:
        return ("The study has no runs yet.",)
    if done.empty:
        return ("No run has finished, so there is no law, no prediction and no plan.",)
    notes = []
    if not trained:
        notes.append("No trained family has a finished run, so there is no law to fit.")
    if rivals is not None and not rivals:
        notes.append(
            "No n-gram or other count model was run, so there is nothing simple to compare with."
        )
    return tuple(notes)


def _data_loss(done: pd.DataFrame, unit: str) -> tuple[str, ...]:
    """What the data themselves score, where a study of samples has measured it."""
    if "data_loss" not in done or done["data_loss"].isna().all():
        return ()
    row = done[done["data_loss"].notna()].iloc[0]
    margin = 1.96 * float(row["data_loss_se"])
    low, high = (words.loss(max(0.0, float(row["data_loss"]) + s * margin)) for s in (-1, 1))
    return (
        f"The training data themselves are {words.loss(float(row['data_loss']))} {unit} ({low} to "
        f"{high}) from the held-out rows: expect no generator nearer than that, whatever its law "
        "says.",
    )


def _family(
    done: pd.DataFrame,
    grown: list[Configuration],
    rival: Configuration | None,
    D_unique: float | None,
    law: Law | None,
    plan: Plan | None,
    wanted: int,
    seed: int,
) -> Family:
    notes: list[str] = []
    best = min(grown, key=lambda c: c.loss.value)
    if law is None:
        law, why = judge.fit(done, seed)
        notes += [why] if why else []
    held, why = judge.hold_out(done, wanted)
    notes += [why] if why and law is not None else []
    law_without, judged = None, ()
    if held and law is not None:
        law_without, why = judge.fit(done[~done["N"].isin(held)], seed)
        notes += [why] if why else []
        if law_without is not None:
            judged = judge.judged(law_without, [c for c in grown if c.N in held])
            notes += _doubt(judged)
    met = judge.crossing(law, best, rival, D_unique) if law is not None and rival else None
    reaches, whys = _reaches(law, plan, grown, D_unique)
    line = None
    if law is not None:
        top = max([c.C for c in grown] + [r.C for r in reaches])
        if met is not None and met.C is not None and math.isfinite(met.C.value):
            top = max(top, min(met.C.value, 1e3 * top))
        grid = np.geomspace(min(c.C for c in grown), top, 80)
        line, why = judge.attempt(lambda: judge.frontier(law, grid))
        notes += [why] if why else []
    floor = judge.least(done)
    if floor is not None and any(r.loss.value < floor for r in reaches):
        notes.append(
            f"No model can have less than {words.loss(floor)} here, by what is known of the "
            "target; the law does not know it and goes below, so that larger budgets are told as "
            "that at least."
        )
    if floor is not None:
        reaches = tuple(judge.bounded(r, floor) for r in reaches)
        line = None if line is None else judge.lifted(line, floor)
    return Family(
        name=best.family,
        configurations=tuple(grown),
        best=best,
        law=law,
        law_without=law_without,
        held_sizes=tuple(held) if law_without is not None else (),
        held_out=judged,
        crossing=met,
        reaches=reaches,
        frontier=line,
        notes=tuple(dict.fromkeys(notes + whys)),
    )


def _doubt(held: tuple[HeldOut, ...]) -> list[str]:
    """A word of caution where the held-out sizes were missed by far."""
    worst = max((abs(h.error) for h in held), default=0.0)
    outside = sum(not h.covered for h in held)
    if worst <= ROUGH and not outside:
        return []
    what = f"missed the held-out sizes by up to {words.percent(worst)}"
    if outside:
        what += f" and {outside} of {len(held)} fell outside its interval"
    return [f"The law {what}, so what it says beyond the runs is rough."]


def _reaches(
    law: Law | None, plan: Plan | None, grown: list[Configuration], D_unique: float | None
) -> tuple[tuple[Reach, ...], list[str]]:
    made: list[Reach] = []
    notes: list[str] = []
    if plan is not None:
        made.append(judge.reach("the plan asked for", plan, D_unique))
    if law is None:
        return tuple(made), notes
    largest = max(c.C for c in grown)
    for multiple in MULTIPLES:
        found, why = judge.attempt(lambda m=multiple: law.plan(compute=m * largest))
        made += [judge.reach(f"{multiple}×", found, D_unique, law)] if found is not None else []
        notes += [why] if why else []
    return tuple(made), notes
