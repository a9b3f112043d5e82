"""One driver per study folder."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allometry._core.errors import LockedError
from allometry._core.files import again, is_there, owned, reading, storage


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse in words that name the process that holds it.

    The truth is the operating system's lock on the file, which ends with the process however it
    dies, so a stale lock needs no clearing; the pid inside is for the message alone.
    """
    path = folder / "lock"
    descriptor = owned(path)
    try:
        _hold(descriptor, folder)
        yield
        # The lock ends with the file's closing; who held it is only a word.
        with contextlib.suppress(OSError):
            again(os.ftruncate, descriptor, 0)
    finally:
        os.close(descriptor)


def _hold(descriptor: int, folder: Path) -> None:
    """Take the lock, and say in the file who has it."""
    with storage("lock", folder):
        try:
            again(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{folder} is in use by {_holder(os.pread(descriptor, 1000, 0))}. Wait for it to "
                "end or stop it; `allometry status` shows how far it is."
            ) from None
        again(os.ftruncate, descriptor, 0)
        about = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
        again(os.pwrite, descriptor, about.encode(), 0)


def holder(folder: Path) -> str | None:
    """Who works in `folder` right now, or `None`; the folder need not be writable."""
    path = folder / "lock"
    if not is_there(path):
        return None
    with reading(path) as file:
        try:
            again(fcntl.flock, file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(file.read(1000))
    return None


def _holder(text: bytes) -> str:
    try:
        data = json.loads(text)
        return f"process {int(data['pid'])} on {str(data['host'])[:80]}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"
