"""A worker in a Ray cluster: the same `Worker`, with a queue in place of a pipe."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, final

from allometry._core.errors import StorageError
from allometry._core.spec import Spec
from allometry.study.execute.results import failed
from allometry.study.execute.worker import Worker

Message = tuple[dict[str, Any], dict[str, bytes]]
"""An event, and the files that come with it where the driver can't see them."""


@final
class RayWorker:
    """What Ray keeps alive on some node. Its methods are called from the driver, several at once.

    Args:
        seen: A file that the driver made in the study's folder: where it is missing, the folder
            is not shared and files travel with the events.
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
            order: With keys in place of targets.
            stored: These targets in Ray's object store, each with its spec as plain values.
        """
        try:
            runs = [run | {"spec": self._whole(run["spec"], stored)} for run in order["runs"]]
            folder = self._folder()
        except Exception as error:  # the driver waits for events and would never stop
            for run in order["runs"]:
                self.worker.tell(failed(error) | {"key": run["key"]})
            self.worker.tell({"event": "ready"})
            return
        self.worker.carry_out(order | {"runs": runs, "folder": str(folder)})
        if folder != self.seen.parent and not self.worker.stopping.is_set():
            for name in (order["name"], *(run["key"] for run in runs)):
                for path in (folder / "checkpoints").glob(f"{name}.*"):
                    path.unlink(missing_ok=True)

    def events(self) -> list[Message]:
        """What has happened since the last call; waits until something has."""
        messages = [self.queue.get()]
        while not self.queue.empty():
            messages.append(self.queue.get())
        return messages

    def stop(self) -> None:
        """Let the training at hand checkpoint and leave."""
        self.worker.stopping.set()

    def _folder(self) -> Path:
        """The study's, or one on this node that its workers share."""
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

    def _whole(self, about: Any, stored: Mapping[str, Any]) -> Any:
        """A spec as plain values, with the targets' own in place of their keys."""
        if not isinstance(about, dict):
            return about
        if set(about) == {"stored"}:
            return self._fetch(about["stored"], stored)
        return {name: self._whole(value, stored) for name, value in about.items()}

    def _fetch(self, key: str, stored: Mapping[str, Any]) -> dict[str, Any]:
        if key not in self.specs:
            import ray

            about, target = ray.get(stored[key])
            self.specs[key] = about
            self.lent[Spec.from_dict(about, trusted=True)] = target
        return self.specs[key]
