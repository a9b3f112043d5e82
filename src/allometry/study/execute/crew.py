"""Those who carry runs out, wherever they are: what the driver asks of them."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from allometry.study.tasks import Bundle, Task
from allometry.train.device import DeviceSettings


@final
@dataclass
class WorkerState:
    """What one worker is at."""

    bundle: Bundle | None = None
    left: dict[str, Task] = field(default_factory=dict)
    """The bundle's runs that have not ended, by key."""
    idle: bool = False
    ready: bool = False
    """Whether it has ever been heard of."""

    def take(self, bundle: Bundle) -> None:
        """Be at a bundle from now on."""
        self.bundle, self.idle = bundle, False
        self.left = {task.key: task for task in bundle.tasks}

    def drop(self, *, idle: bool) -> None:
        """Be at nothing."""
        self.bundle, self.left, self.idle = None, {}, idle


class Workers(ABC):
    """Live workers.

    A worker is asked by orders (see `order`) and answers by messages: `ready`, `progress`, `done`,
    `failed` and `stopped`, in plain values.

    Args:
        threads: Of each worker, where a bundle does not say.
        on: Where and in which precision runs by themselves train.
    """

    def __init__(self, threads: int, on: DeviceSettings | None = None) -> None:
        self.threads, self.on = threads, on or DeviceSettings()
        self.members: dict[int, WorkerState] = {}
        self.patience: float | None = None
        """Seconds after which `wait` comes back though nothing has been said; never if `None`."""

    def threads_of(self, bundle: Bundle) -> int:
        """How many threads a bundle runs on."""
        return self.threads if bundle.how.threads is None else bundle.how.threads

    @abstractmethod
    def start(self, index: int) -> None:
        """A new worker."""

    @abstractmethod
    def give(self, index: int, bundle: Bundle) -> None:
        """Hand a bundle to an idle worker."""

    @abstractmethod
    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """Messages that have come, each with its worker; `None` for a worker that has ended."""

    @abstractmethod
    def hang_up(self, index: int) -> None:
        """Ask a worker to checkpoint and leave."""

    @abstractmethod
    def remove(self, index: int) -> str:
        """Forget a worker that has ended; how it did, read after "the worker"."""

    @abstractmethod
    def close(self) -> None:
        """Ask every worker to checkpoint and leave; end those that do not in time."""


def order(
    bundle: Bundle, folder: Path, threads: int, on: DeviceSettings, index: int
) -> dict[str, Any]:
    """What worker number `index` is told of a bundle, in plain values."""
    return {
        "on": asdict(on),
        "index": index,
        "name": bundle.name,
        "plain": bundle.plain,
        "how": asdict(bundle.how) | {"threads": threads},
        "runs": [{"key": task.key, "spec": task.spec.to_dict()} for task in bundle.tasks],
        "folder": str(folder),
    }
