"""A process that carries out runs, one after another, for a driver at the other end of a pipe.

Tasks come in as JSON lines on standard input, events go out as JSON lines on standard output. When
the input ends (the driver left, however it died) the worker leaves at once, so no orphan goes on.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, final

from allometry._core.errors import AllometryError, DivergedError, StorageError
from allometry._core.spec import Spec
from allometry.study.request import Outcome, Place, Request
from allometry.train.loop import Progress, Stopped

TELL_EVERY = 0.2
"""Seconds between two progress events."""


@final
class Worker:
    """The worker's side of the pipe."""

    def __init__(self, output: IO[str]) -> None:
        self.output = output
        self.tasks: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.stopping = threading.Event()
        self.told = 0.0

    def listen(self, source: IO[str]) -> None:
        """Read the driver's lines until it hangs up, then leave without further ado."""
        for line in source:
            message = json.loads(line)
            if message.get("stop"):
                self.stopping.set()
            self.tasks.put(message)
        os._exit(0)

    def tell(self, event: dict[str, Any]) -> None:
        """One event to the driver."""
        self.output.write(json.dumps(event, allow_nan=False) + "\n")
        self.output.flush()

    def watch(self, progress: Progress) -> None:
        """Pass progress on, but not more often than anyone can read."""
        now = time.monotonic()
        if now - self.told >= TELL_EVERY or progress.step == progress.steps:
            self.told = now
            self.tell({"event": "progress", "step": progress.step, "steps": progress.steps,
                       "loss": progress.loss})  # fmt: skip

    def carry_out(self, task: dict[str, Any]) -> dict[str, Any]:
        """The closing event of one task."""
        started = time.monotonic()
        try:
            request: Request = Spec.from_dict(task["spec"], anywhere=True)()
            place = Place(task["key"], Path(task["folder"]), self.watch, self.stopping.is_set)
            outcome: Outcome = request(place)
        except Stopped:
            return {"event": "stopped"}
        except DivergedError as error:
            return {"event": "failed", "status": "diverged", "error": str(error),
                    "seconds": time.monotonic() - started}  # fmt: skip
        except StorageError as error:
            # Not this run's fault, and the next one would meet it too: the study must stop.
            return {"event": "failed", "status": "storage", "error": str(error)}
        except Exception as error:
            name = "" if isinstance(error, AllometryError) else f"{type(error).__name__}: "
            return {"event": "failed", "status": "failed", "error": f"{name}{error}",
                    "seconds": time.monotonic() - started}  # fmt: skip
        return {"event": "done", "columns": outcome.columns, "curve": outcome.curve,
                "sample": outcome.sample,
                "measures": {k: e.to_dict() for k, e in outcome.measures.items()}}  # fmt: skip


def main() -> None:
    """Serve until told to stop or the driver is gone."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Anything that prints must not speak into the pipe: events go to a private copy of stdout.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(output)
    threading.Thread(target=worker.listen, args=(sys.stdin,), daemon=True).start()
    worker.tell({"event": "ready"})
    while "stop" not in (task := worker.tasks.get()):
        worker.tell(worker.carry_out(task))


if __name__ == "__main__":
    main()
