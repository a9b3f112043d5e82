"""A second training at half the learning rate for a run that diverges."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import DivergedError
from allometry._core.spec import Spec
from allometry.study.recipes.base import WrappedRun
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.study.study import Recipe


@final
@dataclass(frozen=True)
class RetriedRun(WrappedRun):
    """A run that is repeated once at half its learning rate if it diverges.

    The journal has the final learning rate (`lr`) and the reason for the retry (`retried`).

    Args:
        run: The run; it has a learning rate `lr`.
    """

    run: TrainingRequest

    @property
    def splits(self) -> bool:
        """As the inner run."""
        return self.run.splits

    def __call__(self, context: RunContext) -> Outcome:
        """Train, at half the rate if necessary, then finish."""
        run, reason = self.run, None
        training = run.training()
        try:
            trained = context.train(training)
        except DivergedError as error:
            reason = str(error)
            run = dataclasses.replace(run, lr=_rate(run) / 2)  # pyright: ignore
            training = run.training()
            # A separate file: the checkpoint of the first attempt leads to its divergence.
            second = context.checkpoint.with_name(f"{context.key}.half.safetensors")
            trained = context.train(training, second)
        outcome = run.finish(context, training, training.model, trained)
        more = {"lr": _rate(run), "retried": reason}
        return dataclasses.replace(outcome, columns=outcome.columns | more)


def _rate(run: TrainingRequest) -> float:
    return float(getattr(run, "lr"))  # noqa: B009 - a request's class need not have one


@final
@dataclass(frozen=True)
class RetriedRecipe:
    """A recipe whose diverged trainings are repeated; see `retried`."""

    recipe: Recipe
    __name__ = "retried"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests with a retry; jobs without training stay unchanged."""
        return [
            Spec(RetriedRun, run=spec) if isinstance(spec(), TrainingRequest) else spec
            for spec in self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        ]


def retried(recipe: Recipe) -> RetriedRecipe:
    """A recipe whose trainings are repeated once at half the learning rate if they diverge.

    Args:
        recipe: With gradient training.
    """
    return RetriedRecipe(recipe)
