"""A process that imports torch once and forks workers on request.

A new process spends about three seconds of CPU on imports; a fork of one that has made them, a few
hundredths. The driver and this server share an unnamed pair of sockets; nothing listens anywhere.
`child_processes` is the driver's side.

The server computes nothing, so no pool of threads exists when it forks. If its imports started
threads nevertheless, it starts new processes instead.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn, final

FDS = 4
"""Descriptors of a request: standard input, output and error, and the status pipe."""

HEADER = 8
"""Bytes that give the length of a request."""

IDLE = 60.0
"""Seconds without processes and requests after which the server ends."""

PRELOADED = (
    "torch._dynamo",  # optimisers import it
    "scipy.stats",
    "allometry.study.execute.worker",
    "allometry.study.schedule.timing_worker",
)
"""What nearly every worker imports sooner or later."""

OWN = tuple(
    f"allometry.{name}"
    for name in ("study", "models", "targets", "train", "measure", "construct", "decode")
)
"""Subpackages whose modules are imported because the driver has them; never a user's module."""


@final
class ForkServer:
    """Forks processes for the driver at the other end of `control`.

    Args:
        control: Requests arrive here.
        forks: Whether forking is safe; otherwise new processes are started.
    """

    def __init__(self, control: socket.socket, *, forks: bool) -> None:
        self.control, self.forks = control, forks
        self.numbers: dict[int, int] = {}
        """Process number of each living process, by the number of its request."""
        self.status: dict[int, int] = {}
        """Status pipe of each living process, by its process number."""
        self.ended, self.wakeup = os.pipe()
        for end in (self.ended, self.wakeup):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Answer requests until the driver exits, or nothing has happened for `IDLE` seconds."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakeup, warn_on_full_buffer=False)
        idle = False
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                asked, ended = self._wait(None if self.status else IDLE)
                if asked:
                    self._answer(*self._receive())
                elif not ended and not self.status:
                    # New requests now fail in the driver, which then starts another server;
                    # one that has been sent already is answered before the end is read.
                    idle = True
                    self.control.shutdown(socket.SHUT_RD)
        if not idle:
            for pid in self.status:
                os.kill(pid, signal.SIGKILL)
        while self.status:
            self._wait(None)

    def _wait(self, seconds: float | None) -> tuple[bool, bool]:
        """Whether a request has arrived, and whether a process has ended, within some seconds."""
        found, _, _ = select.select([self.control, self.ended], [], [], seconds)
        if self.ended in found:
            with contextlib.suppress(BlockingIOError):
                os.read(self.ended, 4096)
            self._collect()
        return self.control in found, self.ended in found

    def _collect(self) -> None:
        """Report the exit codes of processes that have ended."""
        for pid in list(self.status):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                status = self.status.pop(pid)
                _tell(status, os.waitstatus_to_exitcode(code))
                os.close(status)
                self.numbers = {k: p for k, p in self.numbers.items() if p != pid}

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next request and its descriptors."""
        head, fds, _, _ = socket.recv_fds(self.control, HEADER, FDS)
        head += self._bytes(HEADER - len(head)) if head else b""
        return json.loads(self._bytes(int.from_bytes(head, "big"))), fds

    def _bytes(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += (more := self.control.recv(size - len(data)))
            if not more:
                raise EOFError
        return data

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        """Kill a process, or start one."""
        if "kill" in request:
            if (pid := self.numbers.get(request["kill"])) is not None:
                os.kill(pid, signal.SIGKILL)
            return
        *streams, status = fds
        try:
            pid = self._fork(request, fds) if self.forks else _spawn(request, streams)
        except OSError:  # no memory, or too many processes: the driver reads the end of its output
            os.close(status)
        else:
            self.numbers[request["number"]], self.status[pid] = pid, status
            _tell(status, pid)
        finally:
            for stream in streams:
                os.close(stream)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """Fork a process; returns its number."""
        preload(request["modules"])
        gc.freeze()  # no collection in a fork then copies the pages of what was imported
        pid = os.fork()
        if pid == 0:
            try:
                self.control.close()
                for fd in (self.ended, self.wakeup, fds[-1], *self.status.values()):
                    os.close(fd)
                _become(request, fds[:3])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        return pid


def _tell(status: int, number: int) -> None:
    """Write a line to a status pipe; the driver may have closed it."""
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"%d\n" % number)


def _spawn(request: dict[str, Any], streams: list[int]) -> int:
    """Start a new process; returns its number."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-m", request["module"]],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=request["folder"],
        env=request["environment"],
        start_new_session=True,
    ).pid


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Carry out the `main` of a module in this process, as if it had just been started."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:], sys.argv[:] = request["path"], [request["module"]]
    code = 0
    try:
        importlib.import_module(request["module"]).main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def preload(modules: list[str]) -> None:
    """Import those of `modules` that are this package's; a fork imports the others itself."""
    for name in modules:
        if name not in sys.modules and name.startswith(OWN):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def threads() -> int:
    """Number of threads of this process; unknown ones count as many."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count() + 1


def main() -> None:
    """Serve the driver whose socket is the descriptor that the first argument names."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The driver decides when to end. Processes that it starts don't inherit handlers.
        signal.signal(number, lambda *_: None)
    control = socket.socket(fileno=int(sys.argv[1]))
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401

    # OpenBLAS ends its threads before a fork and starts them again after it.
    blas = threads()
    for name in PRELOADED:
        if select.select([control], [], [], 0)[0] and not control.recv(1, socket.MSG_PEEK):
            return  # the driver has exited
        with contextlib.suppress(Exception):  # what fails here fails in the worker, which says so
            importlib.import_module(name)
    gc.collect()
    ForkServer(control, forks=threads() <= blas).serve()


if __name__ == "__main__":
    main()
