"""Units of work: runs, and bundles of runs that one worker carries out."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from allometry._core.spec import Spec


@final
@dataclass(frozen=True)
class Task:
    """A run to carry out, and its expected seconds."""

    spec: Spec
    work: float

    @property
    def key(self) -> str:
        """The run's key."""
        return self.spec.key


@final
@dataclass(frozen=True)
class ExecutionOptions:
    """How the runs of a bundle are carried out.

    Args:
        size: Models that are vectorised; 1 means one after another.
        compiled: Whether torch compiles losses and gradients.
        traced: Whether a step is traced into one list of kernels (see `train.TracedStep`);
            compiled ones are.
        threads: Threads of the process. Default: the executor's.
    """

    size: int = 1
    compiled: bool = False
    traced: bool = False
    threads: int | None = None


@final
@dataclass(frozen=True)
class Bundle:
    """Runs that one worker carries out together; a single run is a bundle of one.

    Args:
        name: Of its checkpoint; it stays the same when some of the runs have finished.
        tasks: The runs.
        how: Execution options.
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
        """Whether it is one run in the plain training loop."""
        return len(self.tasks) == 1 and self.name == self.tasks[0].key

    def checkpoint(self, folder: Path) -> Path:
        """The file that its runs resume from."""
        return folder / "checkpoints" / f"{self.name}.safetensors"


def single(task: Task) -> Bundle:
    """A bundle of one run."""
    return Bundle(task.key, (task,))
