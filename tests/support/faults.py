"""A disk that fails on purpose: one fault at one storage operation, or power lost there.

`Disk` stands in for the module `os` in the modules through which a study reads and writes. It does
what it is asked on the real file system, and keeps in mind what a power failure would leave: bytes
count once their file is fsynced, names once their folder is. Of what is not yet safe a failure may
keep nothing, everything, or any part; `Fault` says which.
"""

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from allometry._core import files
from allometry.runs import journal, lock

MODULES = (files, journal, lock)
"""All that touch the disk for a study do it through these."""


class Fault(Enum):
    SHORT = "short write"
    """Half of the bytes are written, as the call says by its answer."""
    LOST = "lost fsync"
    """Power fails before the operation; whatever was not fsynced is gone, names and bytes."""
    REORDERED = "reordered rename"
    """Power fails before the operation; names are kept, but not the bytes they name."""
    FULL = "ENOSPC"
    """The disk is full, now and for every later operation that needs room."""
    BROKEN = "EIO"
    INTERRUPTED = "EINTR"
    MIXED = "mixed"
    """Power fails; of the latest changes of names some, and of unsafe bytes some, are kept."""


CRASHES = (Fault.LOST, Fault.REORDERED, Fault.MIXED)
CODES = {Fault.FULL: errno.ENOSPC, Fault.BROKEN: errno.EIO, Fault.INTERRUPTED: errno.EINTR}
NEEDS_ROOM = ("create", "write", "mkdir")


class PowerLoss(BaseException):
    """The machine is off: nothing can handle this, and nothing after it reaches the disk."""


class Disk:
    """In place of `os`: every storage operation below `root` is counted, and one is struck.

    Args:
        root: The folder that a failure of power is simulated for.
        fault: What happens.
        at: To which operation, counted from 0.
    """

    def __init__(self, root: Path, fault: Fault | None = None, at: int = -1) -> None:
        self.root, self.fault, self.at = root, fault, at
        self.operations: list[str] = []
        self.dead = self.full = False
        self.bytes: dict[int, bytes] = {}
        """By file: what is safe of it."""
        self.names: dict[str, int] = {}
        """What lies where, as everyone sees it; folders have negative numbers."""
        self.safe: dict[str, int] = {}
        """The same as a failure of power would leave it."""
        self.since: list[dict[str, int]] = []
        """The names after each change to them since a folder was last fsynced."""
        self.opened: dict[int, int] = {}
        self.count = 0
        for path in sorted(root.rglob("*")):
            self.names[str(path)] = self._new(path.is_dir())
            if path.is_file():
                self.bytes[self.names[str(path)]] = path.read_bytes()
        self.safe = dict(self.names)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _new(self, folder: bool) -> int:
        self.count += 1
        return -self.count if folder else self.count

    def _strike(self, kind: str) -> bool:
        """Count an operation; whether it shall be cut short."""
        if self.dead:
            raise PowerLoss
        now = len(self.operations)
        self.operations.append(kind)
        if self.full and kind in NEEDS_ROOM:
            raise OSError(errno.ENOSPC, "No space left on device")
        if now != self.at:
            return False
        if self.fault in CRASHES:
            self.dead = True
            raise PowerLoss
        if self.fault in CODES:
            self.full = self.fault is Fault.FULL
            code = CODES[self.fault]
            raise OSError(code, os.strerror(code))
        return self.fault is Fault.SHORT

    # What the package calls.

    def open(self, path, flags, mode=0o777, **options):
        new = flags & os.O_CREAT and str(path) not in self.names
        self._strike("create" if new else "open")
        descriptor = os.open(path, flags, mode, **options)
        if new and str(path).startswith(str(self.root)):
            self.names[str(path)] = number = self._new(folder=False)
            self.bytes[number] = b""
            self.since.append(dict(self.names))
        self.opened[descriptor] = self.names.get(str(path), 0)
        return descriptor

    def close(self, descriptor):
        os.close(descriptor)  # counts for nothing, and happens when a process dies too

    def write(self, descriptor, data):
        half = self._strike("write") and len(data) > 1
        return os.write(descriptor, data[: len(data) // 2] if half else data)

    def pwrite(self, descriptor, data, at):
        half = self._strike("write") and len(data) > 1
        return os.pwrite(descriptor, data[: len(data) // 2] if half else data, at)

    def readv(self, descriptor, buffers):
        self._strike("read")
        return os.readv(descriptor, buffers)

    def pread(self, descriptor, length, at):
        self._strike("read")
        return os.pread(descriptor, length, at)

    def ftruncate(self, descriptor, length):
        self._strike("truncate")
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor):
        self._strike("fsync")
        number = self.opened[descriptor]
        if number > 0:
            self.bytes[number] = self._content(number)
            return
        # A folder: its own names, neither those above it nor those below.
        folder = next((p for p, n in self.names.items() if n == number != 0), str(self.root))
        for path in {*self.names, *self.safe}:
            if str(Path(path).parent) == folder:
                if path in self.names:
                    self.safe[path] = self.names[path]
                else:
                    del self.safe[path]
        self.since = []

    def replace(self, old, new):
        self._strike("rename")
        Path(old).replace(new)
        self.names[str(new)] = self.names.pop(str(old))
        self.since.append(dict(self.names))

    def unlink(self, path):
        self._strike("unlink")
        Path(path).unlink()
        self.names.pop(str(path), None)
        self.since.append(dict(self.names))

    def mkdir(self, path, mode=0o777):
        self._strike("mkdir")
        Path(path).mkdir(mode)
        self.names[str(path)] = self._new(folder=True)
        self.since.append(dict(self.names))

    # What a failure of power leaves.

    def _content(self, number: int) -> bytes:
        path = next((p for p, n in self.names.items() if n == number), None)
        return Path(path).read_bytes() if path else b""

    def fail(self) -> None:
        """Leave under `root` what the power failure leaves."""
        rng = random.Random(self.at)
        names, content = self.safe, dict(self.bytes)
        if self.fault is Fault.REORDERED:
            names = self.names
        if self.fault is Fault.MIXED:
            names = rng.choice([self.safe, *self.since, self.names])
            for number, safe in content.items():
                now = self._content(number)
                if now.startswith(safe):
                    content[number] = now[: rng.randint(len(safe), len(now))]
                else:
                    content[number] = rng.choice([safe, now])
        shutil.rmtree(self.root)
        self.root.mkdir()
        for path, number in sorted(names.items()):
            place = Path(path)
            if not place.parent.is_dir():
                continue  # its folder is gone
            if number < 0:
                place.mkdir()
            else:
                place.write_bytes(content[number])


@contextlib.contextmanager
def installed(disk: Disk) -> Iterator[Disk]:
    """`disk` in place of `os` wherever a study reads or writes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", disk)
        yield disk
