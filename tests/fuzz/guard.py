"""What no reader may do: raise anything but the package's errors, hang, or touch other files."""

import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allometry._core.errors import AllometryError

SECONDS = 10
"""The longest that one input may take."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime"),
}
COMMANDS = {
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen"),
    *("socket.connect", "socket.bind", "pty.spawn"),
}
PRIVATE = ("__pycache__", "torchinductor", ".cache")

_state: dict[str, Any] = {"folder": None, "touched": [], "hooked": False}


class Touched(AssertionError):
    """A file outside the input's folder was changed, or a command run."""


class Hang(BaseException):
    """An input took longer than `SECONDS`; not an Exception, so that nobody catches it."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    folder = _state["folder"]
    if folder is None:
        return
    if event in COMMANDS:
        _state["touched"].append(f"{event} {arguments!r:.200}")
    elif event in CHANGES or (event == "open" and _writes(arguments)):
        for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
            if isinstance(path, str | bytes | os.PathLike) and not _allowed(os.fsdecode(path)):
                _state["touched"].append(f"{event} {path!r:.200}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = (*arguments, None, None)[1:3]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & WRITING)


def _allowed(path: str) -> bool:
    real = os.path.realpath(path)
    inside = real.startswith(os.path.realpath(_state["folder"]) + os.sep)
    return inside or real == "/dev/null" or any(part in real for part in PRIVATE)


@contextmanager
def bounded(seconds: float | None = None) -> Iterator[None]:
    """End the block with `Hang` after so many seconds of work, or six times as many of waiting.

    Work is counted on the processor, so that a busy machine makes no input slow. Only in the main
    thread, where alarms ring.
    """
    most = SECONDS if seconds is None else seconds

    def ring(*_: object) -> None:
        raise Hang(f"more than {most} seconds")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, most),
        (signal.SIGALRM, signal.ITIMER_REAL, 6 * most),
    )
    before = [signal.signal(number, ring) for number, _, _ in timers]
    try:
        for _, timer, length in timers:
            signal.setitimer(timer, length)
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextmanager
def confined(folder: Path | str) -> Iterator[None]:
    """Raise `Touched` if the block changes a file outside `folder` or runs a command."""
    if not _state["hooked"]:
        sys.addaudithook(_hook)
        _state["hooked"] = True
    _state["touched"].clear()
    _state["folder"] = str(folder)
    try:
        yield
    finally:
        _state["folder"] = None
    if _state["touched"]:
        raise Touched("; ".join(_state["touched"][:5]))


def check(read: Callable[[Path], Any], write: Callable[[Path, bytes], Path], data: bytes) -> bool:
    """Whether `read` takes `data`; if not, it must have said so as the package does.

    Raises:
        Touched: It changed a file outside the folder of its input, or ran a command.
        Hang: It took too long.
        Exception: Whatever it raised that is not an `AllometryError`.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz.") as name:
        path = write(Path(name), data)
        with confined(name), bounded(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(path)
            except AllometryError as error:
                if not str(error).strip():
                    raise AssertionError("an error without words") from error
                return False
    return True
