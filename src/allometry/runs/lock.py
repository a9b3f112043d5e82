"""The lock of a study folder: one driver at a time."""

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
    """Hold the folder's lock; if another process holds it, raise an error that names it.

    The operating system's file lock is decisive. It ends with the process in any case, so stale
    locks need no cleanup; the pid in the file is only for the message.
    """
    path = folder / "lock"
    descriptor = open_for_update(path)
    try:
        _hold(descriptor, folder)
        yield
        # Closing the file releases the lock; the content is only informative.
        with contextlib.suppress(OSError):
            retry_interrupted(os.ftruncate, descriptor, 0)
    finally:
        os.close(descriptor)


def _hold(descriptor: int, folder: Path) -> None:
    """Take the lock and write this process's pid and host to the file."""
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
    """The process that holds the lock of `folder`, or `None`; works on read-only folders."""
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
