"""One driver per study folder."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allometry._core.errors import LockedError
from allometry._core.files import storage


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse in words that name the process that holds it.

    The truth is the operating system's lock on the file, which ends with the process however it
    dies, so a stale lock needs no clearing; the pid inside is for the message alone.
    """
    path = folder / "lock"
    with storage("lock", folder):
        handle = path.open("a+", encoding="utf-8")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise LockedError(
                f"{folder} is in use by {_holder(handle.read())}. Wait for it to end or stop it; "
                "`allometry status` shows how far it is."
            ) from None
        with storage("lock", folder):
            handle.truncate(0)
            handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
            handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def holder(folder: Path) -> str | None:
    """Who works in `folder` right now, or `None`."""
    path = folder / "lock"
    if not path.exists():
        return None
    with path.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            return _holder(handle.read())
    return None


def _holder(text: str) -> str:
    try:
        data = json.loads(text)
        return f"process {data['pid']} on {data['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
