"""What the runs tell: a pure analysis that the page and the command line both speak from."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from allometry._core.errors import require
from allometry.laws import Law, Plan
from allometry.report import claims, extrapolation
from allometry.report import formatting as fmt
from allometry.report.claims import Claim
from allometry.report.family_fit import FamilyFit, FitSettings, grow
from allometry.report.run_groups import (
    Configuration,
    RunsLike,
    UnfinishedRun,
    about,
    configurations,
    counted,
    finished,
    table,
    unfinished,
)

if TYPE_CHECKING:
    from allometry.report.sections.questions import Finding

_SELF_SCALED = ("of the entropy of a symbol", "nats per window")
"""Units whose scale has what is simple in it: counting symbols, or guessing by chance."""


@final
@dataclass(frozen=True)
class Analysis:
    """Everything the report says, as values; `allometry.report.prose` puts it in words.

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
        entropy: The loss that no model can go below, where it is known.
    """

    target: str
    unit: str
    token: str
    D_unique: float | None
    families: tuple[FamilyFit, ...]
    counted: tuple[Configuration, ...]
    best: Configuration | None
    total: int
    waiting: int
    unfinished: tuple[UnfinishedRun, ...]
    notes: tuple[str, ...]
    verdict: str = ""
    findings: tuple["Finding", ...] = ()
    characters: float | None = None
    dimensions: int | None = None
    entropy: float | None = None

    @property
    def rival(self) -> Configuration | None:
        """The best baseline: a count model, a fitted density or a construction."""
        first = self.families[0].best.target if self.families else None
        same = (c for c in self.counted if first is None or c.target == first)
        return next(same, None)

    @property
    def compared(self) -> int:
        """How many trained families share the first one's target, so that losses compare."""
        return sum(f.best.target == self.families[0].best.target for f in self.families)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Everything the report claims, each with its status; see `allometry.report.claims`."""
        return claims.of(self)

    @property
    def headline(self) -> str:
        """The answer in a few sentences."""
        return claims.headline(self)


def tell(
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    hold_out: int = 2,
    seed: int = 0,
    bootstrap: int = 1000,
) -> Analysis:
    """What these runs say about how loss falls with size, data and compute.

    Diverged and failed runs are listed but enter no fit.

    Args:
        runs: A study's runs.
        law: The law to show for the trained family with the most runs, instead of fitting one.
        plan: A plan made from that law, shown beside ten and a hundred times the compute.
        hold_out: How many of the largest sizes to predict from the smaller ones.
        seed: Of the fits' intervals.
        bootstrap: Draws behind the fits' intervals.
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
    # A study may have several targets; its own comes first, and only equals are compared.
    own = str(said.get("name") or said.get("target") or "")
    own = own if any(best_of[n].target == own for n in trained) else ""
    own = own or next((best_of[n].target for n in trained), "")
    trained = sorted(trained, key=lambda n: best_of[n].target != own)
    rivals = tuple(
        sorted((best_of[n] for n in counts), key=lambda c: (c.target != own, c.loss.value))
    )
    given_to = max(trained, key=lambda n: int((done["family"] == n).sum()), default=None)
    unit, token = _units(said)
    targets = {best_of[n].target for n in trained}
    families = tuple(
        grow(
            done[done["family"] == name],
            [c for c in everything if c.family == name],
            next((r for r in rivals if r.target == best_of[name].target), None),
            FitSettings(
                unit,
                token,
                D_unique if len(targets) < 2 else _unique({}, done[done["family"] == name]),
                extrapolation.entropy(
                    done[done["family"] == name],
                    said if best_of[name].target == own else {},
                    unit,
                ),
                hold_out,
                seed,
                bootstrap,
            ),
            law if name == given_to else None,
            plan if name == given_to else None,
        )
        for name in trained
    )
    return Analysis(
        target=_called(said, frame),
        unit=unit,
        token=token,
        D_unique=D_unique,
        families=families,
        counted=rivals,
        best=min(
            (c for c in best_of.values() if not own or c.target == own),
            key=lambda c: c.loss.value,
            default=None,
        ),
        total=len(frame),
        waiting=len(set(about(runs).get("runs") or ()) - set(frame["key"])),
        unfinished=unfinished(frame),
        notes=_missing(frame, done, trained, None if unit in _SELF_SCALED else rivals)
        + _data_loss(done, unit),
        characters=_characters(said),
        dimensions=_dimensions(said),
        entropy=families[0].entropy if families else None,
    )


def measured_in(runs: RunsLike) -> tuple[str, str, float | None]:
    """The unit of the loss, what data are counted in, and how much distinct data there are."""
    said = about(runs).get("target") or {}
    said = said if isinstance(said, dict) else {}
    return *_units(said), _unique(said, table(runs))


def _units(said: dict[str, Any]) -> tuple[str, str]:
    unit = str(said.get("unit") or "nats")
    return unit, str(said.get("token") or unit.partition(" per ")[2] or "token")


def _answered(runs: RunsLike, frame: pd.DataFrame, said: dict[str, Any]) -> Analysis:
    """The story of a study that asks a question: a verdict and what it rests on, no law."""
    from allometry.report.sections import questions

    done = frame[frame["status"] == "done"]
    answer = questions.answer(str(said.get("name")), done)
    waiting = len(set(about(runs).get("runs") or ()) - set(frame["key"]))
    verdict = answer.verdict
    if len(done) and (waiting or len(done) < len(frame)):
        # What is missing may be what would have been largest or best.
        verdict = f"Of the {fmt.several(len(done), 'run')} finished so far: {verdict}"
    return Analysis(
        target=str(said.get("question") or said.get("name")),
        unit=str(said.get("unit") or ""),
        token=str(said.get("token") or "point"),
        D_unique=None,
        families=(),
        counted=(),
        best=None,
        total=len(frame),
        waiting=waiting,
        unfinished=unfinished(frame[frame["status"] != "done"]),
        notes=answer.notes,
        verdict=verdict,
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
    """How much distinct data there are; `None` where they are made as they are needed."""
    if "D_unique" in said:
        value = said["D_unique"]
        return None if value is None or not math.isfinite(value) else float(value)
    known = frame[frame["D_unique"].notna() & np.isfinite(frame["D_unique"])]
    # Runs that all have as many distinct data as they see draw new ones every time.
    repeat = known["D_unique"] < 0.99 * known["D"]
    spare = known["D_unique"] > 1.01 * known["D"]
    return float(known["D_unique"].max()) if (repeat | spare).any() else None


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
            "No n-gram or other baseline was run, so there is nothing simple to compare with."
        )
    return tuple(notes)


def _data_loss(done: pd.DataFrame, unit: str) -> tuple[str, ...]:
    """What the data themselves score, where a study of samples has measured it."""
    if "data_loss" not in done or done["data_loss"].isna().all():
        return ()
    row = done[done["data_loss"].notna()].iloc[0]
    margin = 1.96 * float(row["data_loss_se"])
    low, high = (fmt.loss(max(0.0, float(row["data_loss"]) + s * margin)) for s in (-1, 1))
    return (
        f"The training data themselves are {fmt.loss(float(row['data_loss']))} {unit} ({low} to "
        f"{high}) from the held-out rows: expect no generator nearer than that, whatever its law "
        "says.",
    )
