"""Live worker processes on this machine and the pipes to them."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from allometry.study.tasks import Bundle, Task


@final
@dataclass
class Member:
    """One worker: its process, what it is at, and the beginning of a line not yet whole."""

    process: subprocess.Popen[bytes]
    bundle: Bundle | None = None
    left: dict[str, Task] = field(default_factory=dict)
    """The bundle's runs that have not ended, by key."""
    idle: bool = False
    buffer: bytes = b""


@final
class Pool:
    """Live workers.

    Args:
        folder: The study's.
        threads: Of each worker, where a bundle does not say.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.members: dict[int, Member] = {}
        self.selector = selectors.DefaultSelector()

    def threads_of(self, bundle: Bundle) -> int:
        """How many threads a bundle runs on."""
        return self.threads if bundle.how.threads is None else bundle.how.threads

    def start(self, index: int) -> None:
        """A new worker."""
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "allometry.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the driver, which tells the workers itself
        )
        assert process.stdout is not None
        self.members[index] = Member(process)
        self.selector.register(process.stdout, selectors.EVENT_READ, index)

    def give(self, index: int, bundle: Bundle) -> None:
        """Hand a bundle to an idle worker."""
        member = self.members[index]
        member.bundle, member.idle = bundle, False
        member.left = {task.key: task for task in bundle.tasks}
        self._send(index, order(bundle, self.folder, self.threads_of(bundle)))

    def _send(self, index: int, message: dict[str, Any]) -> None:
        pipe = self.members[index].process.stdin
        assert pipe is not None
        # Where it died just now, reading its end of file says so next.
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """Messages that have come, each with its worker; `None` for a worker that has ended."""
        messages: list[tuple[int, dict[str, Any] | None]] = []
        for selected, _ in self.selector.select():
            member = self.members[selected.data]
            data = os.read(selected.fd, 1 << 16)
            *lines, member.buffer = (member.buffer + data).split(b"\n")
            messages += [(selected.data, json.loads(line)) for line in lines]
            if not data:
                messages.append((selected.data, None))
        return messages

    def hang_up(self, index: int) -> None:
        """Ask a worker to checkpoint and leave."""
        self._send(index, {"stop": True})

    def remove(self, index: int) -> None:
        """Forget a worker that has ended."""
        member = self.members.pop(index)
        assert member.process.stdout is not None
        assert member.process.stdin is not None
        self.selector.unregister(member.process.stdout)
        member.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            member.process.stdin.close()
        member.process.wait()

    def close(self, grace: float = 5.0) -> None:
        """Ask every worker to checkpoint and leave; end those that do not in time."""
        for index in self.members:
            self.hang_up(index)
        for index in list(self.members):
            process = self.members[index].process
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
            self.remove(index)
        self.selector.close()


def order(bundle: Bundle, folder: Path, threads: int) -> dict[str, Any]:
    """What a worker is told of a bundle, in plain values."""
    return {
        "name": bundle.name,
        "plain": bundle.plain,
        "how": asdict(bundle.how) | {"threads": threads},
        "runs": [{"key": task.key, "spec": task.spec.to_dict()} for task in bundle.tasks],
        "folder": str(folder),
    }
