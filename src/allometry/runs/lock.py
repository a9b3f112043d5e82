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
from allometry._core.files import (
    open_for_reading,
    open_for_update,
    path_exists,
    retry_interrupted,
    storage_errors,
)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse in words that name the process that holds it.

    The truth is the operating system's lock on the file, which ends with the process however it
    dies, so a stale lock needs no clearing; the pid inside is for the message alone.
    """
    path = folder / "lock"
    descriptor = open_for_update(path)
    try:
        _hold(descriptor, folder)
        yield
        # The lock ends with the file's closing; who held it is only a word.
        with contextlib.suppress(OSError):
            retry_interrupted(os.ftruncate, descriptor, 0)
    finally:
        os.close(descriptor)


def _hold(descriptor: int, folder: Path) -> None:
    """Take the lock, and say in the file who has it."""
    with storage_errors("lock", folder):
        try:
            retry_interrupted(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{folder} is in use by {_holder(os.pread(descriptor, 1000, 0))}. Wait for it to "
                "end or stop it; `allometry status` shows how far it is."
            ) from None
        retry_interrupted(os.ftruncate, descriptor, 0)
        about = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
        retry_interrupted(os.pwrite, descriptor, about.encode(), 0)


def holder(folder: Path) -> str | None:
    """Who works in `folder` right now, or `None`; the folder need not be writable."""
    path = folder / "lock"
    if not path_exists(path):
        return None
    with open_for_reading(path) as file:
        try:
            retry_interrupted(fcntl.flock, file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(file.read(1000))
    return None


def _holder(text: bytes) -> str:
    try:
        data = json.loads(text)
        return f"process {int(data['pid'])} on {str(data['host'])[:80]}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"
