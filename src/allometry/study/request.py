"""What a recipe asks for and what a worker gives back."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.estimate import Estimate
from allometry.train.budget import Budget
from allometry.train.loop import Progress


@final
@dataclass(frozen=True)
class Place:
    """Where a run works and whom it tells.

    Args:
        key: The run's key; its files carry this name.
        folder: The study's folder.
        watch: Told the progress.
        stop: Asked after every step; true means checkpoint and leave.
    """

    key: str
    folder: Path
    watch: Callable[[Progress], None]
    stop: Callable[[], bool]

    @property
    def checkpoint(self) -> Path:
        """The file a killed run resumes from."""
        return self.folder / "checkpoints" / f"{self.key}.safetensors"

    @property
    def weights(self) -> Path:
        """The file of the finished model."""
        return self.folder / "weights" / f"{self.key}.safetensors"


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

    @abstractmethod
    def __call__(self, place: Place) -> Outcome:
        """Carry it out."""
