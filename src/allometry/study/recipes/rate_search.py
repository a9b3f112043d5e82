"""Learning rates tried side by side, hopeless ones stopped, and the best one carried on."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import DivergedError, InputError, require
from allometry._core.spec import Spec
from allometry.study.request import Outcome, Request, RunContext, TrainingRequest
from allometry.study.study import Recipe, Study
from allometry.train.budget import Budget
from allometry.train.early_stopping import EarlyStopping
from allometry.train.loop import Progress
from allometry.train.packed.loop import BatchedTrainer, TrainingResult

PACKED = 5e3
"""Parameters up to which rates are stepped as one; larger models are as quick one by one."""


@final
@dataclass(frozen=True)
class TunedRun(Request):
    """One run at several rates: all begin, `train.EarlyStopping` stops those that can't win.

    The journal has the outcome of the rate with the lowest validation loss, that rate (`lr`), the
    loss and the share of its steps of every rate tried (`rates`), and the floating-point
    operations of all of them (`C_tuning`).

    Args:
        run: The run; its own rate does not count.
        rates: To try, all different.
    """

    run: TrainingRequest
    rates: list[float | int]

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the run."""
        return self.run.columns

    def budget(self) -> Budget:
        """That of one rate."""
        return self.run.budget()

    def work(self) -> float:
        """Of all rates; about half of the steps of the worse ones are never taken."""
        return self.run.work() * (1 + 0.5 * (len(self.rates) - 1))

    def __call__(self, place: RunContext) -> Outcome:
        """Train at all rates side by side, finish the best."""
        asked = {str(lr): _rated(self.run, lr) for lr in self.rates}
        trainings = {name: request.training() for name, request in asked.items()}
        together = self.run.packs and self.budget().N <= PACKED
        size = len(asked) if together else 1
        crowd = BatchedTrainer(trainings, size=size, precision=place.on.packed)
        judge = EarlyStopping()

        def watch(name: str, progress: Progress) -> None:
            judge.watch(name, progress)
            place.watch(progress)

        ended = {
            end.name: end
            for end in crowd(save_to=place.checkpoint, watch=watch, stop=place.stop, judge=judge)
        }
        whole = {n: e for n, e in ended.items() if _last(e) == trainings[n].steps}
        if not any(math.isfinite(_loss(end)) for end in whole.values()):
            raise DivergedError(f"the loss became infinite at every rate of {self.rates}.")
        best = min(whole, key=lambda name: _loss(whole[name]))
        trained = ended[best].trained
        assert trained is not None
        outcome = asked[best].finish(place, trainings[best], ended[best].model, trained)
        shares = {name: _last(end) / trainings[name].steps for name, end in ended.items()}
        tried = {
            name: [None if math.isinf(_loss(end)) else _loss(end), shares[name]]
            for name, end in ended.items()
        }
        spent = sum(shares.values()) * self.budget().C
        more = {"lr": float(best), "rates": tried, "C_tuning": spent}
        return dataclasses.replace(outcome, columns=outcome.columns | more)


def _last(end: TrainingResult) -> int:
    """Steps it took, as far as its curve tells."""
    return end.trained.curve.step[-1] if end.trained is not None and end.trained.curve.step else 0


def _loss(end: TrainingResult) -> float:
    """Its last; infinite where it is no number."""
    loss = math.inf if end.trained is None else end.trained.loss.value
    return math.inf if math.isnan(loss) else loss


def checked(rates: Sequence[float]) -> list[float]:
    """The rates in order: two at least, all different, above 0 and finite."""
    found = sorted(float(rate) for rate in rates)
    fine = all(math.isfinite(rate) and rate > 0 for rate in found)
    require(fine, "rates", "be above 0 and finite", list(rates))
    several = len(found) >= 2 and len(set(found)) == len(found)
    require(several, "rates", "be two at least, all different", list(rates))
    return found


@final
@dataclass(frozen=True)
class tuned:  # noqa: N801 - reads as `tuned(recipe, rates)`
    """A recipe each of whose trainings tries several rates; see `TunedRun`.

    Args:
        recipe: Of trainings that have a rate `lr`.
        rates: To try.
    """

    recipe: Recipe
    rates: Sequence[float]

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests at all rates; what has no rate stays as it is."""
        rates = checked(self.rates)
        specs = self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        return [Spec(TunedRun, run=s, rates=rates) if _has_rate(s) else s for s in specs]


@final
@dataclass(frozen=True)
class at_rate:  # noqa: N801 - reads as `at_rate(recipe, lr)`
    """A recipe at another learning rate.

    Args:
        recipe: Of trainings, whatever is wrapped around them.
        lr: The rate of each family, by name; others keep their own.
    """

    recipe: Recipe
    lr: dict[str, float]

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests at that rate."""
        return [
            _at(spec, self.lr[family])
            if (family := _family(spec)) in self.lr and _has_rate(spec)
            else spec
            for spec in self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        ]


def _family(spec: Spec) -> str:
    request: Request = spec()
    return str(request.columns["family"])


def _has_rate(spec: Spec) -> bool:
    request: Any = spec()
    while isinstance(request, TrainingRequest) and not hasattr(request, "lr"):
        request = getattr(request, "run", None)
    return isinstance(request, TrainingRequest)


def _rated(request: Any, lr: float) -> TrainingRequest:
    """The request at another rate, be it wrapped in others."""
    if hasattr(request, "lr"):
        return dataclasses.replace(request, lr=lr)
    return dataclasses.replace(request, run=_rated(request.run, lr))


def _at(spec: Spec, lr: float) -> Spec:
    """As `_rated`, before anything is made."""
    plain = spec.to_dict()
    inner = plain
    while "lr" not in inner["arguments"]:
        inner = inner["arguments"]["run"]
    inner["arguments"]["lr"] = lr
    return Spec.from_dict(plain, trusted=True)


def carried(study: Study, folder: Path | str, rates: Sequence[float], **options: Any) -> Study:
    """The study at the rates that are best at its smallest size.

    Every family that has a rate tries `rates` at the smallest size and the middle number of
    tokens, once; the recipes scale rates with size, so the best one is carried to all sizes.

    Args:
        study: What was asked for.
        folder: Where the trials are kept; the same folder again finds them there.
        rates: To try.
        **options: As for `Study.run`: `executor`, `watch`.
    """
    trial = Study(
        study.target,
        [tuned(recipe, rates) for recipe in study.recipes],
        study.ladder[:1],
        seeds=1,
        tokens=sorted(study.tokens)[len(study.tokens) // 2],
        unit=study.unit,
    )
    asked = [spec for spec in trial.specs() if isinstance(spec(), TunedRun)]
    if not asked:
        raise InputError("rates must be of families that have one; none of this study's has.")
    frame = trial.run(folder, **options).frame()
    done = frame[(frame["status"] == "done") & frame["lr"].notna()]
    best = {str(row["family"]): float(row["lr"]) for _, row in done.iterrows()}
    recipes = [at_rate(recipe, best) for recipe in study.recipes]
    return Study(study.target, recipes, study.ladder, study.seeds, study.tokens, study.unit)
