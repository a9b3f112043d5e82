"""Worker processes on this machine and their pipes."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry.study.execute import child_processes
from allometry.study.execute.driver import Workers, WorkerState, order
from allometry.study.execute.run_results import LARGEST
from allometry.study.tasks import Bundle
from allometry.train.device import DeviceSettings

WORKER = "allometry.study.execute.worker"
"""The module of a worker, a process that reads orders and writes events."""


@final
@dataclass
class _Pipe:
    """A process, and the incomplete line that it has written."""

    process: child_processes.Child
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes in `parts`."""
    fault: str = ""
    """Why its messages are ignored, to be read after "the worker"."""

    def read(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that `data` completes; an invalid message kills the process."""
        messages: list[dict[str, Any]] = []
        if self.fault:
            return messages
        *complete, rest = data.split(b"\n")
        for end in complete:
            message = _message(b"".join([*self.parts, end]))
            self.parts, self.size = [], 0
            if message is None:
                self._kill("wrote something that is no message")
                return messages
            messages.append(message)
        self.parts.append(rest)
        self.size += len(rest)
        if self.size > 2 * LARGEST:
            self._kill("wrote a message that is too long")
        return messages

    def _kill(self, fault: str) -> None:
        self.fault, self.parts, self.size = fault, [], 0
        self.process.kill()


def _message(line: bytes) -> dict[str, Any] | None:
    """The message in a line, or `None` if it is invalid."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("event"), str) else None


@final
class WorkerProcesses(Workers):
    """Worker processes.

    Args:
        folder: The study's.
        threads: Of each worker, unless a bundle has its own number.
        on: Device and precision of the runs.
        command: Starts a worker. Default: a fork of a process that has imported torch.
    """

    def __init__(
        self,
        folder: Path,
        threads: int,
        on: DeviceSettings | None = None,
        command: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(threads, on)
        self.folder, self.command = folder, command
        self.pipes: dict[int, _Pipe] = {}
        self.selector = selectors.DefaultSelector()

    def start(self, index: int) -> None:
        """Start a worker."""
        process: child_processes.Child
        if self.command is None:
            device = self.on.resolved().device
            process = child_processes.start(WORKER, threads=self.threads, device=device)
        else:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_processes.environment_of(self.threads),
                start_new_session=True,  # Ctrl-C is for the driver, which stops the workers
            )
        assert process.stdout is not None
        self.members[index], self.pipes[index] = WorkerState(), _Pipe(process)
        self.selector.register(process.stdout, selectors.EVENT_READ, index)

    def dispatch(self, index: int, bundle: Bundle) -> None:
        """Send a bundle to an idle worker."""
        self.members[index].start(bundle)
        self._send(index, order(bundle, self.folder, self.threads_of(bundle), self.on, index))

    def _send(self, index: int, message: dict[str, Any]) -> None:
        pipe = self.pipes[index].process.stdin
        assert pipe is not None
        # If it has just exited, the end of its output is read next.
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """New messages, each with its worker; `None` for a worker that has exited."""
        messages: list[tuple[int, dict[str, Any] | None]] = []
        for selected, _ in self.selector.select(self.timeout):
            pipe = self.pipes[selected.data]
            data = os.read(selected.fd, 1 << 16)
            messages += [(selected.data, message) for message in pipe.read(data)]
            if not data:
                messages.append((selected.data, None))
        return messages

    def shut_down(self, index: int) -> None:
        """Ask a worker to save a checkpoint and exit."""
        self._send(index, {"stop": True})

    def remove(self, index: int) -> str:
        """Remove a worker that has exited; returns how."""
        del self.members[index]
        pipe = self.pipes.pop(index)
        process = pipe.process
        assert process.stdout is not None
        assert process.stdin is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        reason = _exit_reason(process.wait())
        return pipe.fault or reason

    def close(self, grace: float = 5.0) -> None:
        """Ask every worker to save a checkpoint and exit; kill those that don't in time."""
        for index in self.members:
            self.shut_down(index)
        until = time.monotonic() + grace
        for index in list(self.members):
            process = self.pipes[index].process
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            self.remove(index)
        self.selector.close()


def _exit_reason(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"left with code {code}"
