"""Live worker processes on this machine and the pipes to them."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry.study.execute.crew import Workers, WorkerState, order
from allometry.study.execute.results import LARGEST
from allometry.study.tasks import Bundle
from allometry.train.device import DeviceSettings

WORKER = (sys.executable, "-m", "allometry.study.execute.worker")
"""What a worker is: a process that reads orders and writes events."""


@final
@dataclass
class _Line:
    """A process, and the beginning of a line not yet whole."""

    process: subprocess.Popen[bytes]
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes of the parts."""
    fault: str = ""
    """Why it is no longer listened to, read after "the worker"."""

    def take(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that `data` complete; at what is none the process is ended."""
        messages: list[dict[str, Any]] = []
        if self.fault:
            return messages
        *whole, rest = data.split(b"\n")
        for end in whole:
            message = _message(b"".join([*self.parts, end]))
            self.parts, self.size = [], 0
            if message is None:
                self._end("wrote something that is no message")
                return messages
            messages.append(message)
        self.parts.append(rest)
        self.size += len(rest)
        if self.size > 2 * LARGEST:
            self._end("wrote a message that is too long")
        return messages

    def _end(self, fault: str) -> None:
        self.fault, self.parts, self.size = fault, [], 0
        self.process.kill()


def _message(line: bytes) -> dict[str, Any] | None:
    """What a line says, or nothing where it is none of a worker's."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


@final
class WorkerProcesses(Workers):
    """Live worker processes.

    Args:
        folder: The study's.
        threads: Of each worker, where a bundle does not say.
        on: Where and in which precision runs by themselves train.
        command: What starts a worker.
    """

    def __init__(
        self,
        folder: Path,
        threads: int,
        on: DeviceSettings | None = None,
        command: tuple[str, ...] = WORKER,
    ) -> None:
        super().__init__(threads, on)
        self.folder, self.command = folder, command
        self.lines: dict[int, _Line] = {}
        self.selector = selectors.DefaultSelector()

    def start(self, index: int) -> None:
        """A new worker."""
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the driver, which tells the workers itself
        )
        assert process.stdout is not None
        self.members[index], self.lines[index] = WorkerState(), _Line(process)
        self.selector.register(process.stdout, selectors.EVENT_READ, index)

    def give(self, index: int, bundle: Bundle) -> None:
        """Hand a bundle to an idle worker."""
        self.members[index].take(bundle)
        self._send(index, order(bundle, self.folder, self.threads_of(bundle), self.on, index))

    def _send(self, index: int, message: dict[str, Any]) -> None:
        pipe = self.lines[index].process.stdin
        assert pipe is not None
        # Where it died just now, reading its end of file says so next.
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """Messages that have come, each with its worker; `None` for a worker that has ended."""
        messages: list[tuple[int, dict[str, Any] | None]] = []
        for selected, _ in self.selector.select(self.patience):
            line = self.lines[selected.data]
            data = os.read(selected.fd, 1 << 16)
            messages += [(selected.data, message) for message in line.take(data)]
            if not data:
                messages.append((selected.data, None))
        return messages

    def hang_up(self, index: int) -> None:
        """Ask a worker to checkpoint and leave."""
        self._send(index, {"stop": True})

    def remove(self, index: int) -> str:
        """Forget a worker that has ended; how it did."""
        del self.members[index]
        line = self.lines.pop(index)
        process = line.process
        assert process.stdout is not None
        assert process.stdin is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        death = _death(process.wait())
        return line.fault or death

    def close(self, grace: float = 5.0) -> None:
        """Ask every worker to checkpoint and leave; end those that do not in time."""
        for index in self.members:
            self.hang_up(index)
        until = time.monotonic() + grace
        for index in list(self.members):
            process = self.lines[index].process
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            self.remove(index)
        self.selector.close()


def _death(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"left with code {code}"
