"""A worker in a Ray cluster: a `Worker` with a queue instead of a pipe."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, final

from allometry._core.errors import StorageError
from allometry._core.spec import Spec
from allometry.study.execute.run_results import failure_event
from allometry.study.execute.worker import Worker

Message = tuple[dict[str, Any], dict[str, bytes]]
"""An event, and files that the driver can't read from a shared folder."""


@final
class RayWorker:
    """The class of the actors. The driver calls its methods, several at once.

    Args:
        seen: A file that the driver created in the study's folder. If it is missing here, the
            folder is not shared and files are sent with the events.
    """

    def __init__(self, seen: str) -> None:
        self.seen = Path(seen)
        self.specs: dict[str, dict[str, Any]] = {}
        self.lent: dict[Spec, Any] = {}
        self.queue: SimpleQueue[Message] = SimpleQueue()
        self.worker = Worker(self._send, self.lent)
        self.queue.put(({"event": "hello"}, {}))

    def carry_out(self, order: dict[str, Any], stored: Mapping[str, Any]) -> None:
        """See `Worker.carry_out`.

        Args:
            order: With keys instead of targets.
            stored: These targets in Ray's object store, each with its spec as plain values.
        """
        try:
            runs = [run | {"spec": self._complete(run["spec"], stored)} for run in order["runs"]]
            folder = self._folder()
        except Exception as error:  # without events the driver would wait forever
            for run in order["runs"]:
                self.worker.report(failure_event(error) | {"key": run["key"]})
            self.worker.report({"event": "ready"})
            return
        self.worker.carry_out(order | {"runs": runs, "folder": str(folder)})
        if folder != self.seen.parent and not self.worker.stopping.is_set():
            for name in (order["name"], *(run["key"] for run in runs)):
                for path in (folder / "checkpoints").glob(f"{name}.*"):
                    path.unlink(missing_ok=True)

    def events(self) -> list[Message]:
        """Events since the last call; waits for at least one."""
        messages = [self.queue.get()]
        while not self.queue.empty():
            messages.append(self.queue.get())
        return messages

    def stop(self) -> None:
        """Let the current training save a checkpoint and stop."""
        self.worker.stopping.set()

    def _folder(self) -> Path:
        """The study's folder, or one on this node that its workers share."""
        if self.seen.exists():
            return self.seen.parent
        folder = Path(tempfile.gettempdir()) / f"allometry{self.seen.name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise StorageError(f"Can't work in {folder}: it is another user's.")
        for part in ("weights", "checkpoints"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        return folder

    def _send(self, line: str) -> None:
        event, files = json.loads(line), {}
        if event["event"] == "done" and not self.seen.exists():
            for path in (self._folder() / "weights").glob(f"{event['key']}*"):
                files[path.name] = path.read_bytes()
                path.unlink()
        self.queue.put((event, files))

    def _complete(self, about: Any, stored: Mapping[str, Any]) -> Any:
        """A spec as plain values, with the specs of targets instead of their keys."""
        if not isinstance(about, dict):
            return about
        if set(about) == {"stored"}:
            return self._fetch(about["stored"], stored)
        return {name: self._complete(value, stored) for name, value in about.items()}

    def _fetch(self, key: str, stored: Mapping[str, Any]) -> dict[str, Any]:
        if key not in self.specs:
            import ray

            about, target = ray.get(stored[key])
            self.specs[key] = about
            self.lent[Spec.from_dict(about, trusted=True)] = target
        return self.specs[key]
