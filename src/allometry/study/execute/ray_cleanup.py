"""Ends what is left of a Ray of our own when the process that started it was killed.

Started as a script beside Ray, with the standard library alone. It waits for the end of its input,
which comes however its starter ends. After a word of parting it only removes Ray's folder; without
one it ends every process of that Ray first. Ray itself leaves its agents behind when its driver is
killed, and these never end.

A process is Ray's if it writes into the folder, whose name is unique to this Ray, and has either
the folder on its command line or a title that Ray gave it. So nobody else's can be meant.
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
"""Characters of a folder that leave room for the names of Ray's sockets, 107 in all."""

PATIENCE = 8.0
"""Seconds after which the reaper leaves whatever there is."""


@contextlib.contextmanager
def reaped() -> Iterator[Path]:
    """A place for the files of a Ray of one's own, private to the user.

    It ends with this process, and so does that Ray.
    """
    base = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()).absolute()
    folder = base / "allometry-12345678"
    if len(str(folder)) > LONGEST and Path("/tmp").is_dir():
        base = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix="allometry-", dir=base))
    reaper = subprocess.Popen(
        [sys.executable, "-I", __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )
    assert reaper.stdin is not None
    try:
        yield folder / "r"  # Ray opens its own folder to all users, but not the one around it
    finally:
        with contextlib.suppress(BrokenPipeError):
            reaper.stdin.write(b"done")
            reaper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            reaper.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def members(folder: str) -> list[int]:
    """Processes of the Ray whose folder this is."""
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
    """Wait for the starter's end and clear up after it."""
    folder = sys.argv[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parted = sys.stdin.buffer.read() == b"done"
    began = time.monotonic()
    while not parted and time.monotonic() - began < PATIENCE:
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
