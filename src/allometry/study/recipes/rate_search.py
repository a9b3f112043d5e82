"""Learning-rate search with early stopping, and transfer of the best rate to all sizes."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import DivergedError, InputError, require
from allometry._core.spec import Spec
from allometry.study.recipes.base import WrappedRun
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.study.study import Recipe, Study
from allometry.train.early_stopping import EarlyStopping
from allometry.train.loop import Progress
from allometry.train.packed.batched_trainer import BatchedTrainer, TrainingResult

VECTORISED = 5e3
"""Parameters up to which rates are vectorised; larger models are as fast one by one."""


@final
@dataclass(frozen=True)
class TunedRun(WrappedRun):
    """One run at several learning rates; `train.EarlyStopping` stops those that can't win.

    The journal has the outcome of the rate with the lowest validation loss, that rate (`lr`), the
    loss and the share of steps of every rate (`rates`), and the FLOPs of all rates (`C_tuning`).

    Args:
        run: The run; its own rate is ignored.
        rates: Candidates, all different.
    """

    run: TrainingRequest
    rates: list[float | int]

    def work(self) -> float:
        """Of all rates; about half of the steps of the worse ones are skipped."""
        return self.run.work() * (1 + 0.5 * (len(self.rates) - 1))

    def __call__(self, context: RunContext) -> Outcome:
        """Train at all rates, finish the best."""
        requests = {str(lr): _with_rate(self.run, lr) for lr in self.rates}
        trainings = {name: request.training() for name, request in requests.items()}
        vectorised = self.run.packs and self.budget().N <= VECTORISED
        size = len(requests) if vectorised else 1
        trainer = BatchedTrainer(trainings, size=size, precision=context.on.packed)
        stopping = EarlyStopping()

        def watch(name: str, progress: Progress) -> None:
            stopping.watch(name, progress)
            context.watch(progress)

        results = {
            result.name: result
            for result in trainer(
                save_to=context.checkpoint, watch=watch, stop=context.stop, judge=stopping
            )
        }
        complete = {n: r for n, r in results.items() if _last_step(r) == trainings[n].steps}
        if not any(math.isfinite(_loss(result)) for result in complete.values()):
            raise DivergedError(f"the loss became infinite at every rate of {self.rates}.")
        best = min(complete, key=lambda name: _loss(complete[name]))
        trained = results[best].trained
        assert trained is not None
        outcome = requests[best].finish(context, trainings[best], results[best].model, trained)
        shares = {name: _last_step(r) / trainings[name].steps for name, r in results.items()}
        tried = {
            name: [None if math.isinf(_loss(result)) else _loss(result), shares[name]]
            for name, result in results.items()
        }
        flops = sum(shares.values()) * self.budget().C
        more = {"lr": float(best), "rates": tried, "C_tuning": flops}
        return dataclasses.replace(outcome, columns=outcome.columns | more)


def _last_step(result: TrainingResult) -> int:
    """The last step of its curve."""
    trained = result.trained
    return trained.curve.step[-1] if trained is not None and trained.curve.step else 0


def _loss(result: TrainingResult) -> float:
    """The last loss; infinite if it is not a number."""
    loss = math.inf if result.trained is None else result.trained.loss.value
    return math.inf if math.isnan(loss) else loss


def checked(rates: Sequence[float]) -> list[float]:
    """The rates in order: at least two, all different, above 0 and finite."""
    ordered = sorted(float(rate) for rate in rates)
    valid = all(math.isfinite(rate) and rate > 0 for rate in ordered)
    require(valid, "rates", "be above 0 and finite", list(rates))
    several = len(ordered) >= 2 and len(set(ordered)) == len(ordered)
    require(several, "rates", "be at least two, all different", list(rates))
    return ordered


@final
@dataclass(frozen=True)
class TunedRecipe:
    """A recipe whose trainings try several learning rates; see `tuned`."""

    recipe: Recipe
    rates: Sequence[float]
    __name__ = "tuned"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests at all rates; requests without a rate stay unchanged."""
        rates = checked(self.rates)
        specs = self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        return [Spec(TunedRun, run=s, rates=rates) if _has_rate(s) else s for s in specs]


def tuned(recipe: Recipe, rates: Sequence[float]) -> TunedRecipe:
    """A recipe each of whose trainings tries several learning rates; see `TunedRun`.

    Args:
        recipe: Of trainings that have a learning rate `lr`.
        rates: Candidates.
    """
    return TunedRecipe(recipe, rates)


@final
@dataclass(frozen=True)
class AtRateRecipe:
    """A recipe at other learning rates; see `at_rate`."""

    recipe: Recipe
    lr: dict[str, float]
    __name__ = "at_rate"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests at these rates."""
        return [
            _spec_with_rate(spec, self.lr[family])
            if (family := str(spec().columns["family"])) in self.lr and _has_rate(spec)
            else spec
            for spec in self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        ]


def at_rate(recipe: Recipe, lr: dict[str, float]) -> AtRateRecipe:
    """A recipe at other learning rates.

    Args:
        recipe: Of trainings, wrapped or not.
        lr: The rate of each family, by name; other families keep theirs.
    """
    return AtRateRecipe(recipe, lr)


def _has_rate(spec: Spec) -> bool:
    request: Any = spec()
    while isinstance(request, TrainingRequest) and not hasattr(request, "lr"):
        request = getattr(request, "run", None)
    return isinstance(request, TrainingRequest)


def _with_rate(request: Any, lr: float) -> TrainingRequest:
    """The request at another rate, wrapped or not."""
    if hasattr(request, "lr"):
        return dataclasses.replace(request, lr=lr)
    return dataclasses.replace(request, run=_with_rate(request.run, lr))


def _spec_with_rate(spec: Spec, lr: float) -> Spec:
    """As `_with_rate`, without making the request."""
    plain = spec.to_dict()
    inner = plain
    while "lr" not in inner["arguments"]:
        inner = inner["arguments"]["run"]
    inner["arguments"]["lr"] = lr
    return Spec.from_dict(plain, trusted=True)


def carried(study: Study, folder: Path | str, rates: Sequence[float], **options: Any) -> Study:
    """The study at the learning rates that are best at its smallest size.

    Every family with a learning rate tries `rates` once, at the smallest size and the middle
    number of tokens. The recipes scale rates with size, so the best rate is used at all sizes.

    Args:
        study: The study.
        folder: For the trials; the same folder again reuses them.
        rates: Candidates.
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
    if not any(isinstance(spec(), TunedRun) for spec in trial.specs()):
        raise InputError("rates must be for families that have one; none of this study's has.")
    frame = trial.run(folder, **options).frame()
    done = frame[(frame["status"] == "done") & frame["lr"].notna()]
    best = {str(row["family"]): float(row["lr"]) for _, row in done.iterrows()}
    recipes = [at_rate(recipe, best) for recipe in study.recipes]
    return Study(study.target, recipes, study.ladder, study.seeds, study.tokens, study.unit)
