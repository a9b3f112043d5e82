"""A training laid open, so that it can be carried out alone, packed with others or branched."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn, optim

from allometry._core.estimate import Estimate
from allometry.train.loop import Progress, Trained, descend
from allometry.train.schedule import warmup_decay


@final
@dataclass(frozen=True)
class Training:
    """Everything that decides where one training ends.

    Args:
        model: Untrained.
        optimiser: AdamW over its parameters; the groups carry the peak rate as `peak_lr`.
        objective: `objective(model, *batch)` is the loss.
        batch: The tensors of a step: a pure function of its number, so that resuming is exact.
        measure: What the curve and the result record, from data apart from the training's.
        steps: Number of updates.
        seen: Data in a step, for the curve.
        warmup: Steps of linear warm-up; a twentieth of the training if not given.
        decay: As for `warmup_decay`.
        clip: Largest norm of the gradient.
        curve_points: Measurements along the way, evenly spread in the logarithm of the step.
        kept: Whatever `measure` keeps besides, for whoever finishes the run.
    """

    model: nn.Module
    optimiser: optim.AdamW
    objective: Callable[..., Tensor]
    batch: Callable[[int], tuple[Tensor, ...]]
    measure: Callable[[nn.Module], Estimate]
    steps: int
    seen: int
    warmup: int | None = None
    decay: str = "cosine"
    clip: float = 1.0
    curve_points: int = 12
    kept: list[Any] = field(default_factory=list)

    def factor(self, step: int) -> float:
        """On the peak rate at `step`."""
        warmup = max(1, self.steps // 20) if self.warmup is None else self.warmup
        return warmup_decay(step, steps=self.steps, warmup=warmup, shape=self.decay)

    def alone(
        self,
        *,
        save_to: Path | None = None,
        save_every: float = 10.0,
        watch: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Trained:
        """Carry it out by itself, in the plain loop; the arguments are those of `descend`."""
        return descend(
            self.model,
            self.optimiser,
            lambda step: self.objective(self.model, *self.batch(step)),
            lambda: self.measure(self.model),
            steps=self.steps,
            seen=self.seen,
            warmup=self.warmup,
            decay=self.decay,
            clip=self.clip,
            curve_points=self.curve_points,
            save_to=save_to,
            save_every=save_every,
            watch=watch,
            stop=stop,
        )
