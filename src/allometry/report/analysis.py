"""The analysis of a study's runs, which the page and the command line both print."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from allometry._core.errors import require
from allometry.laws import Law, Plan
from allometry.report import claims, extrapolation
from allometry.report import formatting as fmt
from allometry.report.claims import Claim
from allometry.report.family_fit import FamilyFit, FitSettings, fit_family
from allometry.report.questions import Finding, answer
from allometry.report.run_groups import (
    Configuration,
    RunsLike,
    UnfinishedRun,
    about,
    configurations_of,
    counted,
    finished,
    table,
    unfinished,
)

if TYPE_CHECKING:
    import pandas as pd

_SELF_SCALED = ("of the entropy of a symbol", "nats per window")
"""Units that are relative to a simple baseline: unigram counts, or chance."""


@final
@dataclass(frozen=True)
class Analysis:
    """The results of a study as values; `allometry.report.prose` puts them in sentences.

    Args:
        target: The target's name.
        unit: Unit of the loss, such as `nats per character`.
        token: Unit of the data, such as `character`.
        D_unique: Amount of distinct training data.
        families: The trained families, best first.
        counted: The best configuration of every baseline family, best first.
        best: The best configuration of all.
        total: Number of runs.
        waiting: Number of runs that the study has yet to start or finish.
        unfinished: Runs that diverged or failed.
        notes: What is missing from the study as a whole.
        verdict: The headline of a study that asks a question instead of fitting a law.
        findings: The findings behind the verdict.
        characters: Characters per token in the validation split, if the target gives them.
        dimensions: Dimensions of an image, if the target is images.
        entropy: The loss that no model can go below, if known.
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
    findings: tuple[Finding, ...] = ()
    characters: float | None = None
    dimensions: int | None = None
    entropy: float | None = None

    @property
    def rival(self) -> Configuration | None:
        """The best baseline: an n-gram, a fitted density or a construction."""
        first = self.families[0].best.target if self.families else None
        same = (c for c in self.counted if first is None or c.target == first)
        return next(same, None)

    @property
    def compared(self) -> int:
        """Number of trained families on the first one's target, whose losses compare."""
        return sum(f.best.target == self.families[0].best.target for f in self.families)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims of the report, each with its status; see `allometry.report.claims`."""
        return claims.of(self)

    @property
    def headline(self) -> str:
        """The answer in a few sentences."""
        return claims.headline(self)


def analyse(
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    hold_out: int = 2,
    seed: int = 0,
    bootstrap: int = 1000,
) -> Analysis:
    """Analyse how loss depends on size, data and compute in these runs.

    Diverged and failed runs are listed but enter no fit.

    Args:
        runs: A study's runs.
        law: The scaling law of the trained family with the most runs. Default: fitted here.
        plan: A plan made from that law, shown beside 10 and 100 times the compute.
        hold_out: How many of the largest sizes to predict from the smaller ones.
        seed: Seed of the fits' intervals.
        bootstrap: Draws behind the fits' intervals.

    References:
        `hoffmann2022` (scaling laws in size and data), `muennighoff2023` (repeated data).
    """
    require(hold_out >= 0, "analyse.hold_out", "be at least 0", hold_out)
    frame = table(runs)
    target = _target(runs)
    if target.get("kind") == "question" and len(frame):
        return _question(runs, frame, target)
    done = finished(frame)
    unit, token = _units(target)
    D_unique = _unique(target, frame)
    everything = configurations_of(runs)
    best_of = {
        name: min((c for c in everything if c.family == name), key=lambda c: c.loss.value)
        for name in done["family"].unique()
    }
    trained, rivals, own = _ranked(best_of, done, target)
    given_to = max(trained, key=lambda n: int((done["family"] == n).sum()), default=None)
    one_target = len({best_of[n].target for n in trained}) < 2

    def family(name: str) -> FamilyFit:
        rows, best = done[done["family"] == name], best_of[name]
        known = target if best.target == own else {}
        settings = FitSettings(
            unit=unit,
            token=token,
            D_unique=D_unique if one_target else _unique({}, rows),
            entropy=extrapolation.entropy(rows, known, unit),
            hold_out=hold_out,
            seed=seed,
            bootstrap=bootstrap,
        )
        return fit_family(
            rows,
            [c for c in everything if c.family == name],
            next((r for r in rivals if r.target == best.target), None),
            settings,
            law if name == given_to else None,
            plan if name == given_to else None,
        )

    families = tuple(family(name) for name in trained)
    return Analysis(
        target=_name(target, frame),
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
        waiting=_waiting(runs, frame),
        unfinished=unfinished(frame),
        notes=_missing(frame, done, trained, None if unit in _SELF_SCALED else rivals)
        + _data_loss(done, unit),
        characters=_characters(target),
        dimensions=_dimensions(target),
        entropy=families[0].entropy if families else None,
    )


def _ranked(
    best_of: dict[str, Configuration], done: "pd.DataFrame", target: dict[str, Any]
) -> tuple[list[str], tuple[Configuration, ...], str]:
    """Trained families and baselines, best first, and the study's own target.

    A study may have several targets. Its own comes first; losses compare on one target only.
    """
    counts = [n for n in best_of if counted(done[done["family"] == n])]
    trained = sorted((n for n in best_of if n not in counts), key=lambda n: best_of[n].loss.value)
    own = str(target.get("name") or target.get("target") or "")
    own = own if any(best_of[n].target == own for n in trained) else ""
    own = own or next((best_of[n].target for n in trained), "")
    trained = sorted(trained, key=lambda n: best_of[n].target != own)
    rivals = sorted((best_of[n] for n in counts), key=lambda c: (c.target != own, c.loss.value))
    return trained, tuple(rivals), own


def measured_in(runs: RunsLike) -> tuple[str, str, float | None]:
    """The unit of the loss, the unit of the data, and the amount of distinct data."""
    target = _target(runs)
    return *_units(target), _unique(target, table(runs))


def _target(runs: RunsLike) -> dict[str, Any]:
    """The target as the study describes it; its name alone if that is all there is."""
    target = about(runs).get("target") or {}
    return target if isinstance(target, dict) else {"name": str(target)}


def _units(target: dict[str, Any]) -> tuple[str, str]:
    unit = str(target.get("unit") or "nats")
    return unit, str(target.get("token") or unit.partition(" per ")[2] or "token")


def _waiting(runs: RunsLike, frame: "pd.DataFrame") -> int:
    return len(set(about(runs).get("runs") or ()) - set(frame["key"]))


def _question(runs: RunsLike, frame: "pd.DataFrame", target: dict[str, Any]) -> Analysis:
    """The analysis of a study that asks a question: a verdict with findings, and no law."""
    done = frame[frame["status"] == "done"]
    found = answer(str(target.get("name")), done)
    waiting = _waiting(runs, frame)
    verdict = found.verdict
    if len(done) and (waiting or len(done) < len(frame)):
        # A missing run may be the largest or the best.
        verdict = f"From the {fmt.several(len(done), 'run')} finished so far: {verdict}"
    return Analysis(
        target=str(target.get("question") or target.get("name")),
        unit=str(target.get("unit") or ""),
        token=str(target.get("token") or "point"),
        D_unique=None,
        families=(),
        counted=(),
        best=None,
        total=len(frame),
        waiting=waiting,
        unfinished=unfinished(frame[frame["status"] != "done"]),
        notes=found.notes,
        verdict=verdict,
        findings=found.findings,
    )


def _name(target: dict[str, Any], frame: "pd.DataFrame") -> str:
    first = frame["target"].iloc[0] if len(frame) else ""
    name = str(target.get("name") or target.get("target") or first or "these runs")
    return "the embedded text" if name == "embedded" else name


def _characters(target: dict[str, Any]) -> float | None:
    tokens, characters = (target.get(k) for k in ("tokens", "characters"))
    if not isinstance(tokens, dict) or not isinstance(characters, dict):
        return None
    many = tokens.get("validation")
    return characters.get("validation", 0) / many if many else None


def _dimensions(target: dict[str, Any]) -> int | None:
    shape = target.get("shape")
    return math.prod(map(int, shape)) if target.get("kind") == "images" and shape else None


def _unique(target: dict[str, Any], frame: "pd.DataFrame") -> float | None:
    """The amount of distinct data; `None` if every run draws new data."""
    if "D_unique" in target:
        value = target["D_unique"]
        return None if value is None or not math.isfinite(value) else float(value)
    known = frame[frame["D_unique"].notna() & np.isfinite(frame["D_unique"])]
    # If every run has as many distinct data as it sees, data are drawn anew.
    repeat = known["D_unique"] < 0.99 * known["D"]
    spare = known["D_unique"] > 1.01 * known["D"]
    return float(known["D_unique"].max()) if (repeat | spare).any() else None


def _missing(
    frame: "pd.DataFrame",
    done: "pd.DataFrame",
    trained: list[str],
    rivals: tuple[Configuration, ...] | None,
) -> tuple[str, ...]:
    if frame.empty:
        return ("The study has no runs yet.",)
    if done.empty:
        return ("No run has finished, so there is no scaling law, prediction or plan.",)
    notes = []
    if not trained:
        notes.append("No trained family has a finished run, so there is no scaling law to fit.")
    if rivals is not None and not rivals:
        notes.append("There is no n-gram or other baseline to compare with.")
    return tuple(notes)


def _data_loss(done: "pd.DataFrame", unit: str) -> tuple[str, ...]:
    """The score of the training data themselves, if a study of samples has measured it."""
    if "data_loss" not in done or done["data_loss"].isna().all():
        return ()
    row = done[done["data_loss"].notna()].iloc[0]
    margin = 1.96 * float(row["data_loss_se"])
    low, high = (fmt.loss(max(0.0, float(row["data_loss"]) + s * margin)) for s in (-1, 1))
    return (
        f"The training data themselves have a {unit} of {fmt.loss(float(row['data_loss']))} "
        f"({low} to {high}) from the held-out rows. No generator is expected to do better, "
        "whatever its scaling law predicts.",
    )
