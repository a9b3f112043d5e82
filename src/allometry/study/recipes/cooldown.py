"""Several data budgets from one training: warm-up, stable phase, one cool-down per budget."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.study.recipes.base import WrappedRun
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.study.study import Recipe
from allometry.train.loop import Trained
from allometry.train.training import Training


@final
@dataclass(frozen=True)
class CooledRun(WrappedRun, TrainingRequest):
    """A run whose learning rate stays at its peak and decays over the last fifth of its steps.

    Runs that differ in length alone are equal up to the cool-down of the shorter one. Carried out
    together they share that stable phase; each ends where it would have ended alone.

    Args:
        run: The run, except for its schedule.
        warmup: Steps of linear warm-up, the same for every length.

    References: `hu2024`; `hagele2024`.
    """

    run: TrainingRequest
    warmup: int

    @property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Updates, cool-down included."""
        return self.run.steps

    @property
    def packs(self) -> bool:
        """As the inner run."""
        return self.run.packs

    @property
    def splits(self) -> bool:
        """As the inner run."""
        return self.run.splits

    @property
    def stable_phase(self) -> str:
        """Identifies the stable phase that all lengths of this run share."""
        fields = {
            field.name: getattr(self.run, field.name)
            for field in dataclasses.fields(self.run)  # pyright: ignore[reportArgumentType]
            if field.name not in ("target", "steps")
        }
        content = json.dumps([type(self.run).__name__, self.warmup, fields], default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the inner run, and the schedule."""
        return self.run.columns | {"schedule": "wsd"}

    def training(self) -> Training:
        """The inner run's, with the warm-up-stable-decay schedule."""
        return dataclasses.replace(self.run.training(), decay="wsd", warmup=self.warmup)

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """As the inner run."""
        outcome = self.run.finish(context, training, model, trained)
        return dataclasses.replace(outcome, columns=outcome.columns | {"schedule": "wsd"})


@final
@dataclass(frozen=True)
class CooledRecipe:
    """A recipe with the warm-up-stable-decay schedule; see `cooled`."""

    recipe: Recipe
    warmup: int | None = None
    __name__ = "cooled"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests with the schedule; jobs without training stay unchanged."""
        specs = self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        requests = {spec: spec() for spec in specs}
        trained = {s: r for s, r in requests.items() if isinstance(r, TrainingRequest)}
        require(len(trained) > 0, "cooled.recipe", "have gradient training", self.recipe)
        warmup = self.warmup or max(1, min(r.steps for r in trained.values()) // 10)
        return [Spec(CooledRun, run=s, warmup=warmup) if s in trained else s for s in specs]


def cooled(recipe: Recipe, warmup: int | None = None) -> CooledRecipe:
    """A recipe with the warm-up-stable-decay schedule: all data budgets from one training.

    Args:
        recipe: With gradient training.
        warmup: Steps of linear warm-up. Default: a tenth of the shortest training.

    Example:
        >>> import allometry as al
        >>> recipe = al.study.recipes.cooled(al.study.recipes.transformer)
        >>> text = al.targets.Text.embedded()
        >>> specs = recipe(text, [1000], tokens=[1e5, 2e5], seeds=1)
        >>> len({spec().stable_phase for spec in specs}), [spec().steps for spec in specs]
        (1, [195, 391])
    """
    return CooledRecipe(recipe, warmup)
