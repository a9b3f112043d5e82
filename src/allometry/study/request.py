"""What a recipe asks for and what a worker gives back."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, final, runtime_checkable

from torch import nn

from allometry._core.estimate import Estimate
from allometry.train.budget import Budget
from allometry.train.device import DeviceSettings
from allometry.train.distributed import Group
from allometry.train.loop import HERE, Progress, Trained
from allometry.train.training import Training


@runtime_checkable
class Target(Protocol):
    """What a study asks of any target: text, points, images."""

    @property
    def name(self) -> str:
        """In one word."""
        ...

    @property
    def D_unique(self) -> float:
        """How much distinct data there is to train on."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a journal should remember of it, in plain values."""
        ...


@final
@dataclass(frozen=True)
class RunContext:
    """Where a run works and whom it tells.

    Args:
        key: The run's key; its files carry this name.
        folder: The study's folder.
        watch: Told the progress.
        stop: Asked after every step; true means checkpoint and leave.
        group: The processes that carry it out together, if there are several.
        on: Where and in which precision it trains.
    """

    key: str
    folder: Path
    watch: Callable[[Progress], None]
    stop: Callable[[], bool]
    group: Group | None = None
    on: DeviceSettings = HERE

    @property
    def checkpoint(self) -> Path:
        """The file a killed run resumes from."""
        return self.folder / "checkpoints" / f"{self.key}.safetensors"

    @property
    def weights(self) -> Path:
        """The file of the finished model."""
        return self.folder / "weights" / f"{self.key}.safetensors"

    def train(self, training: Training, save_to: Path | None = None) -> Trained:
        """Carry a training out here, by itself; it resumes from `checkpoint` or `save_to`."""
        return training.alone(
            save_to=save_to or self.checkpoint,
            watch=self.watch,
            stop=self.stop,
            group=self.group,
            on=self.on,
        )


@final
@dataclass(frozen=True)
class Outcome:
    """A finished run: its journal columns, its curve, what it makes and what that is worth."""

    columns: dict[str, Any]
    curve: dict[str, list[float]] = field(default_factory=dict)
    sample: str = ""
    measures: dict[str, Estimate] = field(default_factory=dict)
    """What its samples are worth, by the measures' names."""


class Request(ABC):
    """One run as asked for: a value that can be hashed (as a `Spec`), costed and carried out."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """What is known beforehand: family, shape, rung, seed."""

    @abstractmethod
    def budget(self) -> Budget:
        """N, D and C before any training."""

    @abstractmethod
    def work(self) -> float:
        """Expected seconds on one core of an ordinary machine, for ordering and ETA."""

    @property
    def splits(self) -> bool:
        """Whether several processes may carry it out together, each with a share of the batch.

        They may where its loss is a mean over the rows of a batch.
        """
        return False

    @abstractmethod
    def __call__(self, place: RunContext) -> Outcome:
        """Carry it out."""


class TrainingRequest(Request, ABC):
    """A run that is one training of one model, so that it can be packed, compiled and branched."""

    steps: int
    """Updates."""

    free: ClassVar[tuple[str, ...]] = ("seed", "steps", "lr")
    """Arguments in which runs of one shape may differ and still be stepped as one."""

    @property
    def packs(self) -> bool:
        """Whether it may be stepped as one with others of its shape."""
        return True

    @property
    def trunk(self) -> str | None:
        """A name for what runs of other lengths share with this one up to its cool-down."""
        return None

    @abstractmethod
    def training(self) -> Training:
        """The training, ready to begin."""

    @abstractmethod
    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure the trained model, keep it, and give back what the journal shall say."""

    def __call__(self, place: RunContext) -> Outcome:
        """Train alone, then finish."""
        training = self.training()
        return self.finish(place, training, training.model, place.train(training))
