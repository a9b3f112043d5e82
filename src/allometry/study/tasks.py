"""What is to be carried out: runs, and bundles of runs that go together."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from allometry._core.spec import Spec


@final
@dataclass(frozen=True)
class Task:
    """A run to be carried out, and how long it may take (seconds, roughly)."""

    spec: Spec
    work: float

    @property
    def key(self) -> str:
        """The run's key."""
        return self.spec.key


@final
@dataclass(frozen=True)
class ExecutionOptions:
    """In which way the runs of a bundle are carried out.

    Args:
        size: Models stepped as one; 1 means one after another.
        compiled: Whether torch compiles losses and gradients.
        traced: Whether these are one list of kernels (see `train.TracedStep`); compiled ones are.
        threads: Threads of the process; the executor's own number if not given.
    """

    size: int = 1
    compiled: bool = False
    traced: bool = False
    threads: int | None = None


@final
@dataclass(frozen=True)
class Bundle:
    """Runs that one worker carries out together; a run by itself is a bundle of one.

    Args:
        name: Of its checkpoint; it outlives members that have ended.
        tasks: The runs.
        how: They are carried out.
    """

    name: str
    tasks: tuple[Task, ...]
    how: ExecutionOptions = ExecutionOptions()

    @property
    def work(self) -> float:
        """Expected seconds."""
        return sum(task.work for task in self.tasks)

    @property
    def plain(self) -> bool:
        """Whether it is one run in the plain loop."""
        return len(self.tasks) == 1 and self.name == self.tasks[0].key

    def checkpoint(self, folder: Path) -> Path:
        """The file that its runs resume from."""
        return folder / "checkpoints" / f"{self.name}.safetensors"


def alone(task: Task) -> Bundle:
    """A run by itself."""
    return Bundle(task.key, (task,))
