"""The record of a study: one JSON line per finished or failed run, only ever appended to."""

import contextlib
import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import orjson

from allometry._core.errors import StorageError
from allometry._core.files import (
    are_keys,
    is_key,
    open_for_reading,
    open_for_update,
    path_exists,
    retry_interrupted,
    storage_errors,
)

LONGEST = 1 << 26
"""Bytes that a line may have."""

_NUMBER = frozenset({int, float, type(None)})
_WORD = frozenset({str, type(None)})
_SIZES = ("rung", "N", "N_embedding", "D", "D_unique", "C", "C_6ND", "loss_se", "test_loss_se")
_LOSSES = ("loss", "test_loss", "seconds")
_KINDS: dict[str, frozenset[type]] = {
    "status": frozenset({str}),
    **dict.fromkeys(("family", "target", "shape", "error", "sample"), _WORD),
    **dict.fromkeys(_SIZES, _NUMBER),
    **dict.fromkeys(_LOSSES, _NUMBER),
    "seed": frozenset({int}),
    "versions": frozenset({dict, type(None)}),
    "measures": frozenset({list, type(None)}),
}
"""What the columns that every reader relies on may hold; a family's own are not known here."""

LARGEST_NUMBER = 1e100
"""Of a size, a compute or a loss; beyond it squares and powers of them are no numbers."""

STATUSES = ("done", "failed", "diverged")


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
        if not path_exists(self.path):
            return
        begun: list[bytes] = []
        before = waiting = 0
        with open_for_reading(self.path) as file:
            while block := file.read(size):
                whole, newline, rest = block.rpartition(b"\n")
                if newline:
                    with undisturbed():
                        records = self._parsed(b"".join([*begun, whole]), before)
                    yield records
                    before += len(records)
                    begun, waiting = [rest], len(rest)
                else:
                    begun.append(block)
                    waiting += len(block)
                if waiting > LONGEST:
                    raise self._damaged(before + 1, f"it is longer than {LONGEST:,} bytes")

    def _parsed(self, lines: bytes, before: int) -> list[dict[str, Any]]:
        """The records of lines of which the first is the one after `before` others."""
        with contextlib.suppress(ValueError):
            # All at once is quicker than line by line, which is for finding a bad one.
            records = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            if len(records) == lines.count(b"\n") + 1 and _sound(records):
                return records
        records = []
        for number, line in enumerate(lines.split(b"\n"), start=before + 1):
            try:
                record = orjson.loads(line)
            except ValueError:
                raise self._damaged(number, "it is not JSON") from None
            if (why := _unsound(record)) is not None:
                raise self._damaged(number, why)
            records.append(record)
        return records

    def _damaged(self, number: int, why: str) -> StorageError:
        return StorageError(
            f"Can't read {self.path}: line {number} is damaged ({why}). Mend or delete that line; "
            "the runs on the other lines are safe."
        )

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; when this returns it has reached the disk.

        Raises:
            TypeError: It is no record that could be read back.
        """
        if (why := _unsound(record)) is not None:
            raise TypeError(f"a run's line can't be written: {why}")
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        descriptor = open_for_update(self.path)
        try:
            with storage_errors("write", self.path):
                _append(descriptor, line)
        finally:
            os.close(descriptor)

    def stamp(self) -> tuple[int, ...]:
        """A few numbers that change when the file does."""
        with storage_errors("read", self.path):
            if not path_exists(self.path):
                return ()
            about = self.path.lstat()
        return about.st_ino, about.st_size, about.st_mtime_ns

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last record of each run by its key, in the order of the first ones."""
        return {record["key"]: record for record in self.read()}

    def settled(self) -> set[str]:
        """Keys of the runs that are done or have diverged, which are not carried out again."""
        last = {record["key"]: record["status"] for batch in self.batches() for record in batch}
        return {key for key, status in last.items() if status != "failed"}


def _sound(records: list[Any]) -> bool:
    """Whether all are records of runs; quick, for there may be a million of them."""
    if set(map(type, records)) != {dict}:
        return False
    # Records of one kind have the same names in the same order, so columns need no looking up.
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for record in records:
        kinds.setdefault(tuple(record), []).append(record)
    for names, alike in kinds.items():
        if "key" not in names or "status" not in names:
            return False
        columns = dict(zip(names, zip(*map(dict.values, alike), strict=True), strict=True))
        if not are_keys(columns["key"]):
            return False
        for name, allowed in _KINDS.items():
            if name in columns and not set(map(type, columns[name])) <= allowed:
                return False
        if not set(columns["status"]) <= set(STATUSES):
            return False
        for name in (*_SIZES, *_LOSSES):
            numbers = [value for value in columns.get(name, ()) if value]
            if not numbers:
                continue
            ends = (min(numbers), max(numbers), min(map(abs, numbers)))
            if not all(_plausible(name, end) for end in ends):
                return False
    return True


def _plausible(name: str, value: float) -> bool:
    """Whether a number can be what it says: sizes are not below 0, none immense or subnormal."""
    if name in _SIZES and value < 0:
        return False
    return value == 0 or sys.float_info.min <= abs(value) <= LARGEST_NUMBER


def _unsound(record: Any) -> str | None:
    """Why this is no record of a run; `None` where it is one."""
    if not isinstance(record, dict):
        return "it is not an object"
    if not is_key(record.get("key")):
        return "its key does not name a run"
    if "status" not in record:
        return "it has no status"
    for name, allowed in _KINDS.items():
        if name in record and type(record[name]) not in allowed:
            return f"its {name} is of the wrong type"
    for name in (*_SIZES, *_LOSSES):
        if record.get(name) is not None and not _plausible(name, record[name]):
            return f"its {name} is {record[name]:g}"
    if record["status"] not in STATUSES:
        return f"its status is none of {', '.join(STATUSES)}"
    return None


def legible(record: dict[str, Any]) -> dict[str, Any]:
    """The record without the columns that are of the wrong type: better those lost than a run."""
    return {k: v for k, v in record.items() if k not in _KINDS or type(v) in _KINDS[k]}


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


def _append(descriptor: int, line: bytes) -> None:
    end = _whole(descriptor)
    retry_interrupted(os.ftruncate, descriptor, end)
    try:
        _write(descriptor, line, end)
        retry_interrupted(os.fsync, descriptor)
    except OSError:
        # A full disk leaves no half line behind, and what may not be on the disk is no line:
        # whoever reads it meanwhile would take a run for done that a crash undoes.
        with contextlib.suppress(OSError):
            retry_interrupted(os.ftruncate, descriptor, end)
        raise


def _write(descriptor: int, line: bytes, at: int) -> None:
    while line:
        written = retry_interrupted(os.pwrite, descriptor, line, at)
        line, at = line[written:], at + written


def _whole(descriptor: int) -> int:
    """Length of the file up to and with its last newline."""
    end = os.fstat(descriptor).st_size
    step = 1 << 16
    while end > 0:
        start = max(0, end - step)
        found = retry_interrupted(os.pread, descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
