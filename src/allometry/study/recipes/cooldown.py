"""One training for several budgets of data: a trunk at the peak rate, cool-downs off it."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.study.study import Recipe
from allometry.train.budget import Budget
from allometry.train.loop import Trained
from allometry.train.training import Training


@final
@dataclass(frozen=True)
class CooledRun(TrainingRequest):
    """A run whose rate stays at its peak after the warm-up and cools down over its last fifth.

    Runs that differ in nothing but their length are the same up to where the shorter one cools
    down. Carried out together they share that part; each ends where it would have ended alone.

    Args:
        run: The run, but for its schedule.
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
        """As the run does."""
        return self.run.packs

    @property
    def splits(self) -> bool:
        """As the run does."""
        return self.run.splits

    @property
    def trunk(self) -> str:
        """What all lengths of this run share."""
        fields = {
            field.name: getattr(self.run, field.name)
            for field in dataclasses.fields(self.run)  # pyright: ignore[reportArgumentType]
            if field.name not in ("target", "steps")
        }
        words = json.dumps([type(self.run).__name__, self.warmup, fields], default=str)
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @property
    def columns(self) -> dict[str, Any]:
        """Those of the run, and its schedule."""
        return self.run.columns | {"schedule": "wsd"}

    def budget(self) -> Budget:
        """That of the run by itself, whatever it shares."""
        return self.run.budget()

    def work(self) -> float:
        """As the run's."""
        return self.run.work()

    def training(self) -> Training:
        """The run's, under the other schedule."""
        return dataclasses.replace(self.run.training(), decay="wsd", warmup=self.warmup)

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """As the run does."""
        outcome = self.run.finish(place, training, model, trained)
        return dataclasses.replace(outcome, columns=outcome.columns | {"schedule": "wsd"})


@final
@dataclass(frozen=True)
class cooled:  # noqa: N801 - reads as `cooled(recipe)`
    """A recipe under the warm-up-stable-decay schedule: all budgets of data from one training.

    Args:
        recipe: Of trainings.
        warmup: Steps of linear warm-up; a tenth of the shortest training if not given.

    Example:
        >>> import allometry as al
        >>> recipe = al.study.recipes.cooled(al.study.recipes.transformer)
        >>> text = al.targets.Text.embedded()
        >>> specs = recipe(text, [1000], tokens=[1e5, 2e5], seeds=1)
        >>> len({spec().trunk for spec in specs}), [spec().steps for spec in specs]
        (1, [195, 391])
    """

    recipe: Recipe
    warmup: int | None = None

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The recipe's requests under the other schedule; what is no training stays as it is."""
        specs = self.recipe(target, ladder, tokens=tokens, seeds=seeds)
        made = {spec: spec() for spec in specs}
        trained = {s: r for s, r in made.items() if isinstance(r, TrainingRequest)}
        require(len(trained) > 0, "cooled.recipe", "ask for trainings", self.recipe)
        warmup = self.warmup or max(1, min(r.steps for r in trained.values()) // 10)
        return [Spec(CooledRun, run=s, warmup=warmup) if s in trained else s for s in specs]
