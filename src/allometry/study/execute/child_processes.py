"""Start worker processes: forks of a server that has imported torch, or new processes.

The first process costs as much as before, every further one a fraction, also in the next study of
this driver. Forks need Linux and a CPU: on macOS system libraries start threads, and CUDA contexts
do not survive a fork.
"""

import atexit
import contextlib
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol, final, runtime_checkable

READ_AT_START = (
    "OMP_", "MKL_", "OPENBLAS_", "GOTO_", "GOMP_", "KMP_", "TORCH", "PYTORCH", "ATEN_", "DNNL_",
    "ONEDNN_", "CUDA_", "PYTHON", "LD_", "MALLOC_", "LC_", "LANG",
)  # fmt: skip
"""Prefixes of environment variables that libraries read only once, when they are loaded."""

COMMAND = (sys.executable, "-m", "allometry.study.execute.fork_server")
"""The command of a server."""

READ_LATER = ("PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR")
"""Those of them that a fork can still change."""


@runtime_checkable
class Child(Protocol):
    """A process with two pipes, as of `subprocess.Popen`."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def kill(self) -> None:
        """Send SIGKILL."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; raises `subprocess.TimeoutExpired`."""
        ...


@final
class Forked:
    """A process that the server has forked, or is about to.

    Args:
        server: Its server.
        number: Of the request.
        stdin: Its standard input.
        stdout: Its standard output.
        status: Where the server writes its process number, then its exit code.
    """

    def __init__(
        self, server: "Server", number: int, stdin: IO[bytes], stdout: IO[bytes], status: int
    ) -> None:
        self.server, self.number, self.status = server, number, status
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self.heard = b""
        self.code: int | None = None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.code is not None or self.server.send({"kill": self.number}):
            return
        # The server has died. Until its processes end, their numbers stay theirs, and the init
        # process waits for them.
        self._listen(0.0)
        if self.heard:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self.heard.split(b"\n")[0]), 9)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; 1 if the server died before it was known."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.code is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._listen(left):
                assert timeout is not None
                raise subprocess.TimeoutExpired("worker", timeout)
        return self.code

    def _listen(self, seconds: float | None) -> bool:
        """Read what the server says about the process; whether it said something in time."""
        if self.code is not None:
            return True
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        if not poll.poll(None if seconds is None else 1000 * seconds):
            return False
        data = os.read(self.status, 64)
        self.heard += data
        lines = self.heard.split(b"\n")
        if len(lines) > 2 or not data:
            self.code = int(lines[1]) if len(lines) > 2 else 1
            os.close(self.status)
        return True


@final
class Server:
    """A server process for one environment; see `fork_server`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what fails in it fails in its forks, which say so
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the driver
            )
        self.lock, self.numbers = threading.Lock(), itertools.count()
        self.owner = os.getpid()

    def send(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> bool:
        """Send a request; whether the server lives."""
        data = json.dumps(request).encode()
        head = len(data).to_bytes(8, "big")
        with self.lock:
            try:
                if fds:
                    socket.send_fds(self.control, [head], fds)
                    self.control.sendall(data)
                else:
                    self.control.sendall(head + data)
            except OSError:
                return False
        return True

    def start(self, module: str, environment: Mapping[str, str]) -> Forked | None:
        """Start the `main` of a module in a process of its own; `None` if the server has died."""
        request = {
            "number": next(self.numbers),
            "module": module,
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "path": [str(Path.cwd()), *(path for path in sys.path if path)],
            "modules": [name for name in sys.modules if name.startswith("allometry.")],
        }
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        status, told = os.pipe()
        theirs = (read_in, write_out, 2, told)
        try:
            if not self.send(request, theirs):
                for fd in (write_in, read_out, status):
                    os.close(fd)
                return None
        finally:
            for fd in (read_in, write_out, told):
                os.close(fd)
        stdin, stdout = os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb")
        return Forked(self, request["number"], stdin, stdout, status)

    def close(self) -> None:
        """End the server; its processes go on while the driver holds their pipes."""
        self.control.close()
        if self.owner == os.getpid():  # a fork of the driver has no child to wait for
            self.process.kill()
            self.process.wait()


_SERVERS: dict[Any, Server] = {}
_LOCK = threading.Lock()


@atexit.register
def _close_all() -> None:
    while _SERVERS:
        _SERVERS.popitem()[1].close()


def start(module: str, *, threads: int, device: str = "cpu") -> Child:
    """Start the `main` of a module, which reads standard input and writes standard output.

    Args:
        module: One of this package's.
        threads: Of its numerical libraries, until it sets another number.
        device: That it computes on.
    """
    environment = environment_of(threads)
    if can_fork(device):
        for _ in range(2):  # the first server may have ended: it was idle, or killed
            child = _server(environment).start(module, environment)
            if child is not None:
                return child
            _forget(environment)
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the driver, which stops the workers
    )


def warm_up(threads: int, device: str = "cpu") -> None:
    """Start the server, so that its imports are done when the first worker is needed."""
    if can_fork(device):
        _server(environment_of(threads))


def can_fork(device: str) -> bool:
    """Whether forked processes can compute on a device of this machine."""
    return sys.platform == "linux" and device == "cpu"


def environment_of(threads: int) -> dict[str, str]:
    """The environment of a worker."""
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def _server(environment: Mapping[str, str]) -> Server:
    key = _key(environment)
    with _LOCK:
        server = _SERVERS.get(key)
        if server is None or server.owner != os.getpid():
            server = _SERVERS[key] = Server(environment)
        return server


def _forget(environment: Mapping[str, str]) -> None:
    with _LOCK:
        server = _SERVERS.pop(_key(environment), None)
    if server is not None:
        server.close()


def _key(environment: Mapping[str, str]) -> Any:
    """What a server can't change for its processes after its imports."""
    read = {
        k: v for k, v in environment.items() if k.startswith(READ_AT_START) and k not in READ_LATER
    }
    cores = getattr(os, "sched_getaffinity", lambda _: ())(0)
    return tuple(sorted(read.items())), tuple(sorted(cores)), sys.executable
