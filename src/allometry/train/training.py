"""The description of one training, to be run alone, vectorised with others, or branched."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn, optim

from allometry._core.estimate import Estimate
from allometry.train.checkpoint import newest
from allometry.train.device import Agreed, DeviceSettings, best_precision
from allometry.train.device_batches import DeviceBatches
from allometry.train.distributed import Group, HelperFinished, whole
from allometry.train.loop import HERE, Progress, Trained, descend
from allometry.train.lr_schedule import warmup_decay


@final
@dataclass(frozen=True)
class Training:
    """Everything that determines the result of one training.

    Args:
        model: The untrained model.
        optimiser: AdamW or Muon over its parameters; its groups have the peak rate as `peak_lr`.
        objective: `objective(model, *batch)` is the loss.
        batch: The tensors of a step: a pure function of the step, so that resuming is exact.
        measure: The loss of curve and result, on held-out data.
        steps: Number of updates.
        seen: Tokens or examples per step, for the curve.
        warmup: Steps of linear warm-up; default: 5 % of the training.
        decay: As for `warmup_decay`.
        clip: Largest norm of the gradient.
        curve_points: Number of measurements, evenly spaced in the logarithm of the step.
        snapshot: Called before each measurement; the results are in `Trained.snapshots`.
        moves: Whether `objective`, `measure` and `snapshot` support other devices than the CPU.
    """

    model: nn.Module
    optimiser: optim.Optimizer
    objective: Callable[..., Tensor]
    batch: Callable[[int], tuple[Tensor, ...]]
    measure: Callable[[nn.Module], Estimate]
    steps: int
    seen: int
    warmup: int | None = None
    decay: str = "cosine"
    clip: float = 1.0
    curve_points: int = 12
    snapshot: Callable[[nn.Module], Any] | None = None
    moves: bool = True

    def evaluate(self, model: nn.Module) -> tuple[Estimate, list[Any]]:
        """The measured loss of `model`, and its snapshot if there is one."""
        snapshots = [] if self.snapshot is None else [self.snapshot(model)]
        return self.measure(model), snapshots

    def factor(self, step: int) -> float:
        """The factor on the peak rate at `step`."""
        warmup = max(1, self.steps // 20) if self.warmup is None else self.warmup
        return warmup_decay(step, steps=self.steps, warmup=warmup, shape=self.decay)

    def alone(
        self,
        *,
        save_to: Path | None = None,
        save_every: float = 10.0,
        watch: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        group: Group | None = None,
        on: DeviceSettings = HERE,
    ) -> Trained:
        """Run it alone in the plain loop; the arguments are those of `descend`.

        With a `group` of processes the loss must be a mean over rows of the batch. Without `moves`
        the training stays on the CPU for every `on`; with it, the model ends on the device.

        Raises:
            HelperFinished: It is finished, and this process is not the first of its group.
        """
        on = on if self.moves else dataclasses.replace(on, device="cpu")
        device = torch.device(on.device)
        model, optimiser = self.model.to(device), self.optimiser
        loss = functools.partial(self.objective, model)
        if group is not None:
            model, optimiser, loss = group.spread(model, optimiser, self.objective)

        snapshots: list[Any] = []

        def measure() -> Estimate:
            loss, new = self.evaluate(model)
            snapshots.extend(new)
            return loss

        def own(step: int) -> tuple[Tensor, ...]:
            return self.batch(step) if group is None else group.share(self.batch(step))

        batches = DeviceBatches(own, device, self.steps)

        def objective(step: int) -> Tensor:
            return loss(*batches(step))

        if on.precision == "auto":
            agreed = float if group is None else group.mean
            on = dataclasses.replace(on, precision=self._precision(objective, on, save_to, agreed))
        trained = descend(
            model,
            optimiser,
            objective,
            measure,
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
            group=group,
            on=on,
        )
        if model is not self.model:
            self.model.load_state_dict({k: whole(v) for k, v in model.state_dict().items()})
        if group is not None and group.rank > 0:
            raise HelperFinished
        return dataclasses.replace(trained, snapshots=snapshots)

    @staticmethod
    def _precision(
        objective: Callable[[int], Tensor],
        on: DeviceSettings,
        save_to: Path | None,
        agreed: Agreed,
    ) -> str:
        """The precision of the checkpoint, or else the fastest one."""
        saved = None if save_to is None else newest(save_to)
        if saved is not None:
            return saved[1]["precision"]
        return best_precision(lambda: objective(0), on, agreed)
