"""End the processes of a private Ray instance if the process that started it was killed.

Runs as a script beside Ray, with the standard library alone. It waits for the end of its input,
which comes however its parent ends. If the input is "done" it only removes Ray's folder; otherwise
it first kills every process of that instance. When its driver is killed, Ray itself leaves its
agents running.

A process belongs to the instance if it writes into the folder, whose name is unique, and has
either the folder on its command line or a title set by Ray. No other process can match.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST = 37
"""Longest folder name that leaves space for the names of Ray's sockets, 107 characters."""

TIMEOUT = 8.0
"""Seconds after which the script gives up."""


@contextlib.contextmanager
def private_ray_folder() -> Iterator[Path]:
    """A folder for a private Ray instance, readable by the user only.

    The folder and the instance end with this process, even if it is killed.
    """
    base = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()).absolute()
    folder = base / "allometry-12345678"
    if len(str(folder)) > LONGEST and Path("/tmp").is_dir():
        base = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix="allometry-", dir=base))
    cleaner = subprocess.Popen(
        [sys.executable, "-I", __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # not stopped by Ctrl-C
    )
    assert cleaner.stdin is not None
    try:
        yield folder / "r"  # Ray makes its own folder readable for all users, but not the parent
    finally:
        with contextlib.suppress(BrokenPipeError):
            cleaner.stdin.write(b"done")
            cleaner.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            cleaner.wait(TIMEOUT)
        shutil.rmtree(folder, ignore_errors=True)


def members(folder: str) -> list[int]:
    """Processes of the Ray instance with this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes()
            if line.startswith(b"ray::") or os.fsencode(folder) in line:
                found += [int(place.name)] if _writes(place, folder) else []
    return [pid for pid in found if pid != os.getpid()]


def _writes(process: Path, folder: str) -> bool:
    for handle in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            writable = handle.lstat().st_mode & 0o200
            if writable and str(handle.readlink()).startswith(f"{folder}/"):
                return True
    return False


def main() -> None:
    """Wait for the parent's end, then clean up."""
    folder = sys.argv[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    done = sys.stdin.buffer.read() == b"done"
    began = time.monotonic()
    while not done and time.monotonic() - began < TIMEOUT:
        left = members(folder)
        if not left and time.monotonic() - began > 1:  # one may have been starting another
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
