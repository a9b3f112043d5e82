"""The training loop: trains a model and returns its loss curve and final loss."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn, optim

from allometry._core.errors import DivergedError, require
from allometry._core.estimate import Estimate
from allometry.models.transformer.fused_decoder import fused_decoder
from allometry.train import checkpoint
from allometry.train.device import DeviceSettings
from allometry.train.device_batches import LossReadings
from allometry.train.distributed import Group, whole
from allometry.train.evaluate import Split, evaluate
from allometry.train.lr_schedule import log_spaced, warmup_decay
from allometry.train.objectives import next_token
from allometry.train.optimiser import adamw

HERE = DeviceSettings("cpu")
"""The CPU, in the precision of the weights."""


@runtime_checkable
class TextTarget(Split, Protocol):
    """The interface that the loop needs of a target of tokens."""

    def batch(self, step: int, *, size: int, context: int, seed: int) -> Int[Tensor, "b n"]:
        """The batch of `step`: a pure function of its arguments, so that resuming is exact."""
        ...


@final
class Stopped(Exception):  # noqa: N818 - not an error: the caller asked for it
    """The training stopped on request, after writing its checkpoint."""


@final
@dataclass(frozen=True)
class Progress:
    """Progress of a training, for callbacks."""

    step: int
    steps: int
    loss: float


@final
@dataclass
class Curve:
    """Validation loss along training: equal-length lists of step, tokens and nats."""

    step: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)


@final
@dataclass(frozen=True)
class Trained:
    """Result of a training, besides the weights in the model.

    Args:
        curve: Measurements along the training.
        loss: The last of them.
        seconds: Runtime.
        precision: Precision of its steps.
        snapshots: Results of `Training.snapshot`, one for each measurement since the last resume.
    """

    curve: Curve
    loss: Estimate
    seconds: float
    precision: str = "float32"
    snapshots: list[Any] = field(default_factory=list)


def train(
    model: nn.Module,
    optimiser: optim.Optimizer,
    target: TextTarget,
    *,
    steps: int,
    batch: int,
    context: int,
    seed: int,
    warmup: int | None = None,
    decay: str = "cosine",
    clip: float = 1.0,
    curve_points: int = 12,
    save_to: Path | None = None,
    save_every: float = 10.0,
    watch: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train `model` in place for `steps` steps and measure it on the whole validation split.

    The batch of each step is a pure function of `(seed, step)` and the checkpoint contains
    weights, optimiser and curve, so a training that is killed and resumed gives the same result as
    one that is not.

    Args:
        model: Maps tokens (b, n) to logits (b, n, v).
        optimiser: Its groups have the peak rate as `peak_lr` (see `train.optimiser.adamw`).
        target: Source of the batches and the validation split.
        steps: Number of updates.
        batch: Sequences in a batch.
        context: Tokens in a sequence.
        seed: Seed of the data order.
        warmup: Steps of linear warm-up; default: 5 % of the training.
        decay: `"cosine"` or `"linear"`, to zero.
        clip: Largest norm of the gradient.
        curve_points: Number of evaluations, evenly spaced in the logarithm of the step.
        save_to: Checkpoint file; resumes from it if it exists.
        save_every: Seconds between checkpoints.
        watch: Called with the progress after every step.
        stop: Called after every step; if true, write a checkpoint and raise `Stopped`.

    Raises:
        DivergedError: The loss is not finite; the message gives the step.
        Stopped: `stop` returned true.
    """
    return descend(
        model,
        optimiser,
        lambda step: next_token(model, target.batch(step, size=batch, context=context, seed=seed)),
        lambda: evaluate(model, target, "validation", context=context),
        steps=steps,
        seen=batch * context,
        warmup=warmup,
        decay=decay,
        clip=clip,
        curve_points=curve_points,
        save_to=save_to,
        save_every=save_every,
        watch=watch,
        stop=stop,
    )


@fused_decoder()
def descend(
    model: nn.Module,
    optimiser: optim.Optimizer,
    objective: Callable[[int], Tensor],
    measure: Callable[[], Estimate],
    *,
    steps: int,
    seen: int,
    warmup: int | None = None,
    decay: str = "cosine",
    clip: float = 1.0,
    curve_points: int = 12,
    save_to: Path | None = None,
    save_every: float = 10.0,
    watch: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    group: Group | None = None,
    on: DeviceSettings = HERE,
) -> Trained:
    """Minimise any objective of `model` in place: the loop behind `train`, for other jobs too.

    Args:
        model: The model whose parameters the optimiser has.
        optimiser: Its groups have the peak rate as `peak_lr`.
        objective: The loss of a step; a pure function of the step, so that resuming is exact.
        measure: The loss of curve and result, on held-out data.
        steps: Number of updates.
        seen: Tokens or examples per step, for the curve.
        warmup: Steps of linear warm-up; default: 5 % of the training.
        decay: `"cosine"` or `"linear"`, to zero.
        clip: Largest norm of the gradient.
        curve_points: Number of measurements, evenly spaced in the logarithm of the step.
        save_to: Checkpoint file; resumes from it if it exists.
        save_every: Seconds between checkpoints.
        watch: Called with the progress of every step; on a GPU after the steps of a block.
        stop: Called after every step; if true, write a checkpoint and raise `Stopped`.
        group: Processes that train together, each with its part of the batch in `objective`; the
            first one writes checkpoints and calls `watch`.
        on: Device and precision of the model.

    Raises:
        DivergedError: The loss is not finite; the message gives the step.
        Stopped: `stop` returned true.
    """
    require(steps >= 1, "train.steps", "be at least 1", steps)
    warmup = max(1, steps // 20) if warmup is None else warmup
    marks = set(log_spaced(steps, curve_points))
    curve, first, spent = Curve(), 0, 0.0
    state = None if save_to is None else checkpoint.load(save_to, model, optimiser)
    if state is not None:
        curve, first, spent = Curve(**state["curve"]), state["step"], state["seconds"]
    start = saved = time.monotonic()
    first_one, scaler = group is None or group.rank == 0, on.scaler()
    readings = LossReadings(torch.device(on.device))
    if state is not None and "scaler" in state:
        scaler.load_state_dict(state["scaler"])
    model.train()
    last = Estimate(math.nan)
    for step in range(first, steps):
        factor = warmup_decay(step, steps=steps, warmup=warmup, shape=decay)
        for part in optimiser.param_groups:
            part["lr"] = part["peak_lr"] * factor
        with on.autocast():
            loss = objective(step)
        optimiser.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        readings.add(step, loss, whole(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        # A GPU is read only now and then: asking for a value makes Python wait for it.
        reading = readings.due or step + 1 in marks
        read = _checked(readings, steps, group, scaler.is_enabled()) if reading else []
        scaler.step(optimiser)
        scaler.update()
        if step + 1 in marks:
            last = measure()
            curve.step.append(step + 1)
            curve.tokens.append((step + 1) * seen)
            curve.loss.append(last.value)
            if not math.isfinite(last.value):
                raise unmeasurable(last.value, step + 1, steps)
        if watch is not None and first_one:
            for progress in read:
                watch(progress)
        now = time.monotonic()
        stopping = stop is not None and stop() and step + 1 < steps
        saving = save_to is not None and step + 1 < steps and now - saved > save_every
        if group is not None:
            stopping, saving = group.agree(stopping, saving)
        if save_to is not None and (stopping or saving):
            _checked(readings, steps, group, scaler.is_enabled())
            # The runtime so far is saved too, so that a resumed run reports its total.
            state = {"step": step + 1, "seconds": spent + now - start, "curve": asdict(curve)}
            state |= {"precision": on.precision}
            state |= {"scaler": scaler.state_dict()} if scaler.is_enabled() else {}
            checkpoint.save(save_to, model, optimiser, state, first=first_one)
            saved = now
        if stopping:
            raise Stopped
    return Trained(curve, last, spent + time.monotonic() - start, on.precision)


def _checked(
    readings: LossReadings, steps: int, group: Group | None, scaled: bool
) -> list[Progress]:
    """Read the losses since the last reading; refuse those that are not finite."""
    seen = []
    for step, nats, norm in readings.read():
        nats = nats if group is None else group.mean(nats)
        # In float16 an overflowing gradient is not a divergence: the scaler skips the step.
        if not (math.isfinite(nats) and (math.isfinite(norm) or scaled)):
            raise diverged(nats, norm, step, steps)
        seen.append(Progress(step + 1, steps, nats))
    return seen


def minimise(
    model: nn.Module,
    objective: Callable[[int], Tensor],
    *,
    steps: int,
    lr: float,
    clip: float = 1.0,
) -> list[float]:
    """Minimise an objective of `model` in place by AdamW; returns the loss of every step.

    A short form of `descend` for a notebook: the default warm-up and cosine decay, no held-out
    measurements, no checkpoints.

    Args:
        model: The model whose parameters are trained.
        objective: The loss of a step.
        steps: Number of updates.
        lr: Peak learning rate.
        clip: Largest norm of the gradient.

    Raises:
        DivergedError: The loss is not finite; the message gives the step.

    Example:
        >>> import torch
        >>> from allometry.models import flows
        >>> from allometry.train import minimise
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) + 3
        >>> flow = flows.linear(2)
        >>> losses = minimise(flow, lambda step: -flow.log_prob(x).mean(), steps=30, lr=0.1)
        >>> losses[-1] < losses[0] - 1
        True
    """
    losses: list[float] = []
    descend(
        model,
        adamw(model, lr=lr),
        objective,
        lambda: Estimate(losses[-1] if losses else 0.0),
        steps=steps,
        seen=1,
        clip=clip,
        watch=lambda progress: losses.append(progress.loss),
    )
    return losses


def diverged(loss: float, norm: float, step: int, steps: int) -> DivergedError:
    """The error of a training whose loss or gradient is not finite at `step`, counted from 0."""
    return DivergedError(
        f"the loss became {loss} (gradient norm {norm:g}) at step {step + 1} "
        f"of {steps}; a smaller learning rate may help."
    )


def unmeasurable(loss: float, step: int, steps: int) -> DivergedError:
    """The error of a training whose measured loss is not finite after `step` steps."""
    return DivergedError(
        f"the measured loss became {loss} at step {step} of {steps}; "
        "a smaller learning rate may help."
    )
