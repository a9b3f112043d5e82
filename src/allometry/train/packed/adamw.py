"""One update of a pack: losses and gradients as a list of kernels, AdamW on all rows at once.

Shapes: M rows of a pack, P parameters of each.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry.train.device import DeviceSettings, best_precision
from allometry.train.packed.stack import Flat, StackedModels
from allometry.train.packed.trace import Losses, TracedStep, compiler
from allometry.train.training import Training


@final
class TracedLists:
    """Losses and gradients of packs; what was traced once serves every pack of the same shape.

    A function that can't be traced (it decides by the values of tensors, or writes into buffers)
    is mapped over the members as it is.

    Args:
        fuse: Compile what was traced; where there is no compiler, it is mapped.
        trace: Trace packs of several rows too where they are not to be compiled.
        precision: As for `DeviceSettings`, without a scaler of gradients; `"auto"` is decided at
            the first call.
    """

    def __init__(self, *, fuse: bool, trace: bool, precision: str = "float32") -> None:
        self.fuse, self.trace = fuse and compiler() is not None, trace
        self.precision = precision
        self.known: dict[Any, TracedStep | None] = {}

    def __call__(
        self, pack: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
    ) -> tuple[Losses, Flat]:
        """Of all members at the pack's present parameters."""
        if self.precision == "auto":
            self.precision = quickest(pack, function, batch)
        if self.precision != "float32":
            function = _reduced(function, self.precision)
        traced = self._traced(pack, function, batch)
        if traced is not None:
            return traced(*batch)
        losses = pack.map(function, *batch)
        (gradient,) = torch.autograd.grad(losses.sum(), pack.flat)
        return losses.detach(), gradient

    def _traced(
        self, pack: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
    ) -> TracedStep | None:
        if not (self.fuse or (self.trace and len(pack) > 1)):
            return None
        name = (pack.flat.shape, *(part.shape for part in batch))
        if name not in self.known:
            try:
                made = TracedStep(pack, function, *batch, fuse=self.fuse)
                self.known[name] = None if made.changes else made
            except Exception:  # torch refuses in many ways, and mapping always works
                self.known[name] = None
        found = self.known[name]
        if found is not None and found.pack is not pack:
            found = self.known[name] = found.of(pack)
        return found


def _reduced(function: Callable[..., Tensor], precision: str) -> Callable[..., Tensor]:
    """The same function, computed in another precision."""

    def reduced(model: nn.Module, *batch: Tensor) -> Tensor:
        with DeviceSettings("cpu", precision).autocast():
            return function(model, *batch)

    return reduced


def quickest(pack: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]) -> str:
    """The precision in which the first member's passes are quickest; see `best_precision`.

    Args:
        pack: Of which a copy is tried.
        function: From a plain module and one member's arguments to its loss.
        batch: The arguments, with the members as first axis.
    """
    model, own = pack.member(0), [part[0] for part in batch]
    return best_precision(lambda: function(model, *own), DeviceSettings("cpu"))


@final
class Adam:
    """AdamW on all rows' parameters laid end to end, each row with its own rate and schedule.

    Rows do not touch one another.

    Args:
        pack: Whose parameters.
        trainings: Of each row; their optimisers say peak rate and weight decay.
        first: Running means of the gradient.
        second: Running means of its square.

    References: `loshchilov2019` Algorithm 2.
    """

    def __init__(
        self, pack: StackedModels, trainings: Sequence[Training], first: Flat, second: Flat
    ) -> None:
        self.pack, self.first, self.second = pack, first, second
        settings: dict[str, Any] = trainings[0].optimiser.param_groups[0]
        self.betas, self.eps = settings["betas"], settings["eps"]
        columns = [_columns(training) for training in trainings]
        rates = torch.stack([rate for rate, _ in columns])
        decays = torch.stack([decay for _, decay in columns])
        self.slowness = 1 / rates  # infinite for what is left alone, whose step is then zero
        self.shrink = rates * decays if bool((rates * decays).any()) else None

    @torch.no_grad()
    def step(
        self,
        gradient: Flat,
        norms: Sequence[float],
        clips: Sequence[float],
        factors: Sequence[float],
        step: int,
    ) -> None:
        """One update.

        Args:
            gradient: Of each row.
            norms: Its length in each row.
            clips: What that is cut to.
            factors: On the peak rate of each row.
            step: How many updates came before.
        """
        scales = [min(1.0, clip / (norm + 1e-6)) for clip, norm in zip(clips, norms, strict=True)]
        b1, b2 = self.betas
        root = math.sqrt(1 - b2 ** (step + 1))
        lengths = [factor * root / (1 - b1 ** (step + 1)) for factor in factors]
        if min(scales) < 1:
            gradient = gradient * gradient.new_tensor(scales)[:, None]
        self.first.lerp_(gradient, 1 - b1)
        self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        below = self.second.sqrt().add_(self.eps * root).mul_(self.slowness)
        alike = len(set(factors)) == 1
        rows = [slice(None)] if alike else [slice(i, i + 1) for i in range(len(factors))]
        for row, factor, length in zip(rows, factors, lengths, strict=False):
            flat = self.pack.flat[row]
            if self.shrink is not None:
                flat.addcmul_(flat, self.shrink[row], value=-factor)
            flat.addcdiv_(self.first[row], below[row], value=-length)


def _columns(training: Training) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Peak rate and weight decay of every parameter; zero for those the optimiser leaves alone."""
    owners = {id(p): group for group in training.optimiser.param_groups for p in group["params"]}
    found: list[list[Tensor]] = [[], []]
    for parameter in training.model.parameters():
        group = owners.get(id(parameter), {"peak_lr": 0.0, "weight_decay": 0.0})
        for part, name in zip(found, ("peak_lr", "weight_decay"), strict=True):
            part.append(parameter.new_full((parameter.numel(),), group[name], requires_grad=False))
    rates, decays = (torch.cat(part).detach() for part in found)
    return rates, decays
