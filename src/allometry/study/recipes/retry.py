"""A second chance at half the rate for a training that diverges."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import DivergedError
from allometry._core.spec import Spec
from allometry.study.request import Outcome, Request, RunContext, TrainingRequest
from allometry.study.study import Recipe
from allometry.train.budget import Budget


@final
@dataclass(frozen=True)
class RetriedRun(Request):
    """A run that is begun again, once, at half its rate if it diverges.

    The journal then has the rate it ended with (`lr`) and why it was begun again (`retried`).

    Args:
        run: The run; it has a rate `lr`.
    """

    run: TrainingRequest

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the run."""
        return self.run.columns

    def budget(self) -> Budget:
        """That of one attempt."""
        return self.run.budget()

    def work(self) -> float:
        """Of one attempt."""
        return self.run.work()

    @property
    def splits(self) -> bool:
        """As the run does."""
        return self.run.splits

    def __call__(self, place: RunContext) -> Outcome:
        """Train, at half the rate if need be, then finish."""
        run, why = self.run, None
        training = run.training()
        try:
            trained = place.train(training)
        except DivergedError as error:
            why = str(error)
            run = dataclasses.replace(run, lr=_rate(run) / 2)  # pyright: ignore
            training = run.training()
            # A file of its own: the first attempt's checkpoint leads to where it diverged.
            second = place.checkpoint.with_name(f"{place.key}.half.safetensors")
            trained = place.train(training, second)
        outcome = run.finish(place, training, training.model, trained)
        more = {"lr": _rate(run), "retried": why}
        return dataclasses.replace(outcome, columns=outcome.columns | more)


def _rate(run: TrainingRequest) -> float:
    return float(getattr(run, "lr"))  # noqa: B009 - a request's class need not have one


@final
@dataclass(frozen=True)
class retried:  # noqa: N801 - reads as `retried(recipe)`
    """A recipe whose trainings are begun again, once, at half the rate if they diverge.

    Args:
        recipe: Of trainings.
    """

    recipe: Recipe

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests with a second chance; what is no training stays as it is."""
        specs = self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        return [
            Spec(RetriedRun, run=spec) if isinstance(spec(), TrainingRequest) else spec
            for spec in specs
        ]
