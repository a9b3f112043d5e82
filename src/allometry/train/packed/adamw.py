"""One update of stacked models: traced losses and gradients, and a vectorised AdamW.

Shapes: M models of a stack, P parameters of each.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry.train.device import DeviceSettings, best_precision
from allometry.train.device_batches import is_host
from allometry.train.muon import update
from allometry.train.packed import fused_adamw
from allometry.train.packed.fused_next_token import FusedNextToken, fused_next_token
from allometry.train.packed.stack import Flat, StackedModels
from allometry.train.packed.trace import Losses, TracedStep, compiler
from allometry.train.training import Training


@final
class TracedLists:
    """Losses and gradients of stacked models; a trace serves every stack of the same shape.

    Next-token losses of plain decoders in float32 on CPU take one fused pass, which is faster than
    either; see `fused_next_token`. A function that cannot be traced (its control flow depends on
    tensor values, or it writes into buffers) is mapped over the models by `vmap`.

    Args:
        fuse: Compile the traces; without a compiler, use `vmap`.
        trace: Trace stacks of several models even without compiling.
        on: Device and precision, without gradient scaling; the precision `"auto"` is decided at
            the first call.
    """

    def __init__(self, *, fuse: bool, trace: bool, on: DeviceSettings) -> None:
        self.fuse, self.trace = fuse and compiler() is not None, trace
        self.on = on
        self.known: dict[Any, TracedStep | None] = {}
        self.fused: tuple[StackedModels, FusedNextToken | None] | None = None

    def __call__(
        self, models: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
    ) -> tuple[Losses, Flat]:
        """Losses and gradients of all models at their current parameters."""
        if self.on.precision == "auto":
            chosen = quickest(models, function, batch, self.on)
            self.on = dataclasses.replace(self.on, precision=chosen)
        if self.on.precision != "float32":
            function = _reduced(function, self.on)
        fused = self._fused(models, function, batch)
        if fused is not None:
            return fused(*batch)
        traced = self._traced(models, function, batch)
        if traced is not None:
            return traced(*batch)
        losses = models.map(function, *batch)
        (gradient,) = torch.autograd.grad(losses.sum(), models.flat)
        return losses.detach(), gradient

    def _fused(
        self, models: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
    ) -> FusedNextToken | None:
        if self.fused is None or self.fused[0] is not models:
            self.fused = (models, fused_next_token(models, function, batch))
        return self.fused[1]

    def _traced(
        self, models: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
    ) -> TracedStep | None:
        if not (self.fuse or (self.trace and len(models) > 1)):
            return None
        shapes = (models.flat.shape, *(part.shape for part in batch))
        if shapes not in self.known:
            try:
                step = TracedStep(models, function, *batch, fuse=self.fuse)
                self.known[shapes] = None if step.changes else step
            except Exception:  # tracing fails in many ways, and vmap always works
                self.known[shapes] = None
        step = self.known[shapes]
        if step is not None and step.models is not models:
            step = self.known[shapes] = step.of(models)
        return step


def _reduced(function: Callable[..., Tensor], on: DeviceSettings) -> Callable[..., Tensor]:
    """The same function in reduced precision."""

    def reduced(model: nn.Module, *batch: Tensor) -> Tensor:
        with on.autocast():
            return function(model, *batch)

    return reduced


def quickest(
    models: StackedModels,
    function: Callable[..., Tensor],
    batch: Sequence[Tensor],
    on: DeviceSettings,
) -> str:
    """The fastest precision for the first model; see `best_precision`.

    Args:
        models: The stack; a copy of its first model is timed.
        function: Loss of a plain module and the arguments of one model.
        batch: The arguments; their first axis is the model.
        on: Device of both. Float16 is not used: it would need gradient scaling.
    """
    model, own = models.member(0), [part[0] for part in batch]
    found = best_precision(lambda: function(model, *own), on)
    return "float32" if found == "float16" else found


@final
class Adam:
    """AdamW on the flattened parameters of all models, each with its own rate and schedule.

    Matrices in the groups of Muon have its update instead; their momentum is in `first`.

    Args:
        models: The stacked models.
        trainings: Training of each model; its optimiser gives peak rate and weight decay.
        first: Moving averages of the gradient.
        second: Moving averages of its square.

    References: `loshchilov2019` Algorithm 2; `jordan2024`.
    """

    def __init__(
        self, models: StackedModels, trainings: Sequence[Training], first: Flat, second: Flat
    ) -> None:
        self.models, self.first, self.second = models, first, second
        settings: dict[str, Any] = trainings[0].optimiser.param_groups[0]
        self.betas, self.eps = settings["betas"], settings["eps"]
        self.momentum = settings.get("momentum", 0.0)
        columns = [_columns(training) for training in trainings]
        rates = torch.stack([rate for rate, _ in columns])
        decays = torch.stack([decay for _, decay in columns])
        self.shrink = rates * decays if bool((rates * decays).any()) else None
        self.matrices = _matrices(trainings[0])
        self.matrix_rates = [(rates[:, i].clone(), i, shape) for i, shape in self.matrices]
        for i, shape in self.matrices:
            rates[:, i : i + shape.numel()] = 0.0
        self.inverse_rates = 1 / rates  # infinite for frozen parameters, whose step is then zero
        self.clips: Tensor | None = None
        """The largest norms on the device, if it is not the CPU."""

    @torch.no_grad()
    def step(
        self,
        gradient: Flat,
        norms: Float[Tensor, " M"],
        clips: Sequence[float],
        factors: Sequence[float],
        step: int,
    ) -> None:
        """One update.

        Args:
            gradient: Gradient of each model.
            norms: Its norm for each model.
            clips: Largest norm of each model.
            factors: Factor on the peak rate of each model.
            step: Number of updates before this one.
        """
        b1, b2 = self.betas
        root = math.sqrt(1 - b2 ** (step + 1))
        lengths = [factor * root / (1 - b1 ** (step + 1)) for factor in factors]
        fused = not self.matrices and fused_adamw.applies(self.models.flat, gradient)
        if fused:
            scales = _scales(norms, clips)
            rows = list(zip(scales, factors, lengths, strict=True))
            state = (self.models.flat, (self.first, self.second))
            given = (gradient, self.inverse_rates, self.shrink, rows)
            fused_adamw.update(*state, *given, betas=self.betas, eps=self.eps * root)
            return
        gradient = self._clipped(gradient, norms, clips)
        before = [self.first[:, i : i + s.numel()].clone() for i, s in self.matrices]
        self.first.lerp_(gradient, 1 - b1)
        self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        below = self.second.sqrt().add_(self.eps * root).mul_(self.inverse_rates)
        alike = len(set(factors)) == 1
        rows = [slice(None)] if alike else [slice(i, i + 1) for i in range(len(factors))]
        for row, factor, length in zip(rows, factors, lengths, strict=False):
            flat = self.models.flat[row]
            if self.shrink is not None:
                flat.addcmul_(flat, self.shrink[row], value=-factor)
            flat.addcdiv_(self.first[row], below[row], value=-length)
        self._orthogonal(gradient, before, factors)

    def _orthogonal(
        self, gradient: Flat, before: Sequence[Tensor], factors: Sequence[float]
    ) -> None:
        """Muon's update of its matrices, from their momentum `before` this step."""
        alike = len(set(factors)) == 1
        for momentum, (rates, i, shape) in zip(before, self.matrix_rates, strict=True):
            columns = slice(i, i + shape.numel())
            momentum = momentum.unflatten(1, shape)
            change = update(gradient[:, columns].unflatten(1, shape), momentum, self.momentum)
            self.first[:, columns] = momentum.flatten(1)
            # One factor needs no copy to a GPU.
            lengths_of = rates * (factors[0] if alike else rates.new_tensor(factors))
            self.models.flat[:, columns].addcmul_(change.flatten(1), lengths_of[:, None], value=-1)

    def _clipped(self, gradient: Flat, norms: Float[Tensor, " M"], clips: Sequence[float]) -> Flat:
        """The gradients, shortened to the largest norms."""
        if is_host(gradient.device):
            scales = _scales(norms, clips)
            return gradient * gradient.new_tensor(scales)[:, None] if min(scales) < 1 else gradient
        if self.clips is None:
            # MPS has no float64, in which the CPU computes these few numbers.
            wide = torch.float32 if gradient.device.type == "mps" else torch.float64
            self.clips = torch.tensor(clips, dtype=wide).to(gradient.device)
        scales = (self.clips / (norms.to(self.clips.dtype) + 1e-6)).clamp(max=1.0)
        return gradient * scales.to(gradient.dtype)[:, None]


def _scales(norms: Float[Tensor, " M"], clips: Sequence[float]) -> list[float]:
    """Factor on each gradient that shortens it to the largest norm."""
    return [min(1.0, c / (n + 1e-6)) for c, n in zip(clips, norms.tolist(), strict=True)]


def _matrices(training: Training) -> list[tuple[int, torch.Size]]:
    """First column and shape of every matrix that Muon updates; none for AdamW."""
    groups = training.optimiser.param_groups
    chosen = {id(p) for group in groups if group.get("orthogonal") for p in group["params"]}
    found, start = [], 0
    for parameter in training.model.parameters():
        if id(parameter) in chosen:
            found.append((start, parameter.shape))
        start += parameter.numel()
    return found


def _columns(training: Training) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Peak rate and weight decay of every parameter; zero for frozen ones."""
    owners = {id(p): group for group in training.optimiser.param_groups for p in group["params"]}
    found: list[list[Tensor]] = [[], []]
    for parameter in training.model.parameters():
        group = owners.get(id(parameter), {"peak_lr": 0.0, "weight_decay": 0.0})
        for part, name in zip(found, ("peak_lr", "weight_decay"), strict=True):
            part.append(parameter.new_full((parameter.numel(),), group[name], requires_grad=False))
    rates, decays = (torch.cat(part).detach() for part in found)
    return rates, decays
