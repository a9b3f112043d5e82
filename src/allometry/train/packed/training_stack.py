"""Models of one architecture at one step, with one vectorised update.

Shapes: M models of a stack, P parameters of each.
"""

import functools
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry.train.device_batches import DeviceBatches
from allometry.train.lr_schedule import log_spaced
from allometry.train.packed.adamw import Adam, TracedLists
from allometry.train.packed.stack import StackedModels
from allometry.train.training import Training


@final
@dataclass
class ModelState:
    """One model with the names of its runs and Adam's two moments."""

    names: list[str]
    model: nn.Module
    first: Float[Tensor, " P"]
    second: Float[Tensor, " P"]


@final
class TrainingStack:
    """Models with one vectorised update."""

    def __init__(
        self, states: list[ModelState], trainings: dict[str, Training], lists: TracedLists
    ) -> None:
        self.names = [state.names for state in states]
        self.models = StackedModels([state.model for state in states])
        # The first run of each model has the schedule of all its runs.
        self.trainings = [trainings[names[0]] for names in self.names]
        self.adam = Adam(
            self.models,
            self.trainings,
            torch.stack([state.first for state in states]),
            torch.stack([state.second for state in states]),
        )
        self.lists = lists
        steps = max(training.steps for training in self.trainings)
        self.batches = DeviceBatches(self._batch, self.models.flat.device, steps)

    def states(self) -> list[ModelState]:
        """Copies of the models and their optimiser states."""
        first, second = self.adam.first, self.adam.second
        return [
            ModelState(list(names), self.models.member(i), first[i].clone(), second[i].clone())
            for i, names in enumerate(self.names)
        ]

    def _batch(self, step: int) -> tuple[Tensor, ...]:
        """The batches of all models, stacked, on CPU."""
        batches = [training.batch(step) for training in self.trainings]
        return tuple(torch.stack(parts) for parts in zip(*batches, strict=True))

    def step(self, step: int) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
        """One update of every model: losses and gradient norms before it, on the device."""
        losses, gradient = self.lists(self.models, self.trainings[0].objective, self.batches(step))
        norms = gradient.norm(dim=1)
        clips = [training.clip for training in self.trainings]
        factors = [training.factor(step) for training in self.trainings]
        self.adam.step(gradient, norms, clips, factors, step)
        return losses, norms


@final
@dataclass(frozen=True)
class UnreadLosses:
    """Losses and gradient norms of one step of a stack, on its device."""

    step: int
    stack: TrainingStack
    losses: Float[Tensor, " M"]
    norms: Float[Tensor, " M"]


def initial_state(names: list[str], training: Training) -> ModelState:
    """The state of a training before its first step; `names` are its runs."""
    size = sum(p.numel() for p in training.model.parameters())
    like = next(training.model.parameters()).detach()
    return ModelState(names, training.model, *(like.new_zeros(size) for _ in range(2)))


def copy_of(model: nn.Module, tensors: dict[str, Tensor], prefix: str) -> nn.Module:
    """A copy of `model` with those of the tensors whose names begin with `prefix`."""
    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    copied = StackedModels([model]).member(0)
    copied.load_state_dict(own)
    return copied


@functools.lru_cache(maxsize=256)
def _log_spaced(steps: int, points: int) -> frozenset[int]:
    return frozenset(log_spaced(steps, points))


def marks(training: Training) -> frozenset[int]:
    """The steps after which a training is measured."""
    return _log_spaced(training.steps, training.curve_points)
