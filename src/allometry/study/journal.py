"""The record of a study: one JSON line per finished or failed run, only ever appended to."""

import contextlib
import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import orjson

from allometry._core.errors import StorageError
from allometry._core.files import storage


@final
class Journal:
    """An append-only file of JSON lines with a single writer, the driver of the study.

    A line counts once its newline is on the disk: `append` writes the line in one call and fsyncs.
    A last line without newline was torn by a crash; reading leaves it out, and the next append
    cuts it off first. A bad line further up is damage that no crash of ours makes, so it is
    reported and nothing is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Every whole record, oldest first."""
        return [record for batch in self.batches() for record in batch]

    def batches(self, size: int = 1 << 18) -> Iterator[list[dict[str, Any]]]:
        """Every whole record, oldest first, in lists of about `size` bytes of the file.

        What fits the processor's cache is parsed in less than half the time.

        Raises:
            StorageError: A line that is no torn last one is damaged.
        """
        if not self.path.exists():
            return
        begun, before = b"", 0
        with storage("read", self.path), self.path.open("rb") as file:
            while block := file.read(size):
                whole, newline, rest = block.rpartition(b"\n")
                if not newline:
                    begun += block
                    continue
                with undisturbed():
                    records = self._parsed(begun + whole, before)
                yield records
                begun, before = rest, before + len(records)

    def _parsed(self, lines: bytes, before: int) -> list[dict[str, Any]]:
        """The records of lines of which the first is the one after `before` others."""
        with contextlib.suppress(ValueError):
            # All at once is quicker than line by line, which is for finding a bad one.
            records = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            if len(records) == lines.count(b"\n") + 1:
                return records
        records = []
        for number, line in enumerate(lines.split(b"\n"), start=before + 1):
            try:
                records.append(json.loads(line))
            except ValueError:
                raise StorageError(
                    f"Can't read {self.path}: line {number} is damaged. Mend or delete that line; "
                    "the runs on the other lines are safe."
                ) from None
        return records

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; when this returns it has reached the disk."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with storage("write", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                end = _whole(descriptor)
                os.ftruncate(descriptor, end)
                try:
                    _write(descriptor, line, end)
                except OSError:
                    os.ftruncate(descriptor, end)  # a full disk leaves no half line behind
                    raise
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last record of each run by its key, in the order of the first ones."""
        return {record["key"]: record for record in self.read()}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Without looking for rubbish: a million new records are none, and looking takes as long."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _write(descriptor: int, line: bytes, at: int) -> None:
    while line:
        written = os.pwrite(descriptor, line, at)
        line, at = line[written:], at + written


def _whole(descriptor: int) -> int:
    """Length of the file up to and with its last newline."""
    end = os.fstat(descriptor).st_size
    step = 1 << 16
    while end > 0:
        start = max(0, end - step)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
