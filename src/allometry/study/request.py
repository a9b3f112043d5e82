"""What recipes request and what workers return."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import torch
from torch import nn

from allometry._core.estimate import Estimate
from allometry.train.budget import Budget
from allometry.train.device import DeviceSettings
from allometry.train.distributed import Group
from allometry.train.loop import HERE, Progress, Trained
from allometry.train.training import Training


@runtime_checkable
class Target(Protocol):
    """What a study needs of any target: text, points, images."""

    @property
    def name(self) -> str:
        """One word."""
        ...

    @property
    def D_unique(self) -> float:
        """Amount of distinct training data."""
        ...

    def describe(self) -> dict[str, Any]:
        """The target in `study.json`, as plain values."""
        ...


@final
@dataclass(frozen=True)
class RunContext:
    """Files, callbacks and device of a run.

    Args:
        key: The run's key, the name of its files.
        folder: The study's folder.
        watch: Receives the progress.
        stop: Called after every step; if true, the run saves a checkpoint and stops.
        group: The processes that train together, if there are several.
        on: Device and precision.
    """

    key: str
    folder: Path
    watch: Callable[[Progress], None]
    stop: Callable[[], bool]
    group: Group | None = None
    on: DeviceSettings = HERE

    @property
    def checkpoint(self) -> Path:
        """The file that an interrupted run resumes from."""
        return self.folder / "checkpoints" / f"{self.key}.safetensors"

    @property
    def weights(self) -> Path:
        """The file of the finished model."""
        return self.folder / "weights" / f"{self.key}.safetensors"

    def train(self, training: Training, save_to: Path | None = None) -> Trained:
        """Train one model; resumes from `save_to`, by default `checkpoint`."""
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
    """A finished run: journal columns, learning curve, generated text and evaluation metrics."""

    columns: dict[str, Any]
    curve: dict[str, list[float]] = field(default_factory=dict)
    sample: str = ""
    measures: dict[str, Estimate] = field(default_factory=dict)
    """Evaluation metrics of its samples, by name."""


class Request(ABC):
    """One run of a study: a value that can be hashed (as a `Spec`), costed and carried out."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """Columns that are known in advance: family, target, shape, rung, seed."""

    @abstractmethod
    def budget(self) -> Budget:
        """N, D and C before any training."""

    @abstractmethod
    def work(self) -> float:
        """Expected seconds on one core of an ordinary machine, for ordering and ETA."""

    @property
    def dtype(self) -> torch.dtype:
        """Default dtype of torch while the run is carried out; the worker sets it."""
        return torch.float32

    @property
    def splits(self) -> bool:
        """Whether several processes can train it, each on a share of the batch.

        That requires a loss that is a mean over the rows of a batch.
        """
        return False

    @abstractmethod
    def __call__(self, context: RunContext) -> Outcome:
        """Carry it out."""


class TrainingRequest(Request, ABC):
    """A run that is one training of one model, so that it can be vectorised and branched."""

    steps: int
    """Updates."""

    free: ClassVar[tuple[str, ...]] = ("seed", "steps", "lr")
    """Arguments in which vectorised runs of one shape may differ."""

    @property
    def packs(self) -> bool:
        """Whether it can be vectorised with others of its shape."""
        return True

    @property
    def stable_phase(self) -> str | None:
        """Identifies the stable phase that runs of other lengths share with this one."""
        return None

    @abstractmethod
    def training(self) -> Training:
        """The training, ready to start."""

    @abstractmethod
    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate and save the trained model; return the outcome."""

    def __call__(self, context: RunContext) -> Outcome:
        """Train alone, then finish."""
        training = self.training()
        return self.finish(context, training, training.model, context.train(training))


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set torch's default dtype inside the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
