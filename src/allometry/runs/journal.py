"""The journal of a study: an append-only file, one JSON line per finished or failed run."""

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
from allometry._core.number_parsing import LARGEST_NUMBER

LONGEST = 1 << 26
"""Largest length of a line in bytes."""

_NUMBER = frozenset({int, float, type(None)})
_STRING = frozenset({str, type(None)})
_SIZES = ("rung", "N", "N_embedding", "D", "D_unique", "C", "C_6ND", "loss_se", "test_loss_se")
_LOSSES = ("loss", "test_loss", "seconds")
_KINDS: dict[str, frozenset[type]] = {
    "status": frozenset({str}),
    **dict.fromkeys(("family", "target", "shape", "error", "sample"), _STRING),
    **dict.fromkeys(_SIZES, _NUMBER),
    **dict.fromkeys(_LOSSES, _NUMBER),
    "seed": frozenset({int}),
    "versions": frozenset({dict, type(None)}),
    "measures": frozenset({list, type(None)}),
}
"""Types of the common columns; columns of a family are not checked."""

STATUSES = ("done", "failed", "diverged")


@final
class Journal:
    """An append-only file of JSON lines with a single writer, the driver of the study.

    A line counts once its newline is on the disk: `append` writes the line in one call and fsyncs.
    A last line without newline was torn by a crash; readers skip it, and the next append truncates
    it. An earlier invalid line can't come from a crash, so it is an error and nothing is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """All complete records, oldest first."""
        return [record for batch in self.batches() for record in batch]

    def batches(self, size: int = 1 << 18) -> Iterator[list[dict[str, Any]]]:
        """Yield all complete records, oldest first, in lists of about `size` bytes of the file.

        Batches that fit the CPU cache are parsed in less than half the time.

        Raises:
            StorageError: A line other than a torn last one is damaged.
        """
        if not path_exists(self.path):
            return
        partial: list[bytes] = []
        before = length = 0
        with open_for_reading(self.path) as file:
            while block := file.read(size):
                lines, newline, rest = block.rpartition(b"\n")
                if newline:
                    with gc_disabled():
                        records = self._parsed(b"".join([*partial, lines]), before)
                    yield records
                    before += len(records)
                    partial, length = [rest], len(rest)
                else:
                    partial.append(block)
                    length += len(block)
                if length > LONGEST:
                    raise self._damaged(before + 1, f"it is longer than {LONGEST:,} bytes")

    def _parsed(self, lines: bytes, before: int) -> list[dict[str, Any]]:
        """Parse lines; `before` lines precede them in the file."""
        with contextlib.suppress(ValueError):
            # Parsing all at once is faster; line by line finds the damaged one.
            records = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            if len(records) == lines.count(b"\n") + 1 and _all_valid(records):
                return records
        records = []
        for number, line in enumerate(lines.split(b"\n"), start=before + 1):
            try:
                record = orjson.loads(line)
            except ValueError:
                raise self._damaged(number, "it is not JSON") from None
            if (why := _problem(record)) is not None:
                raise self._damaged(number, why)
            records.append(record)
        return records

    def _damaged(self, number: int, why: str) -> StorageError:
        return StorageError(
            f"Can't read {self.path}: line {number} is damaged ({why}). Repair or delete that "
            "line; the runs on the other lines are not affected."
        )

    def append(self, record: dict[str, Any]) -> None:
        """Append one record; when this returns, it is on the disk.

        Raises:
            TypeError: The record is not valid.
        """
        if (why := _problem(record)) is not None:
            raise TypeError(f"a run's line can't be written: {why}")
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        descriptor = open_for_update(self.path)
        try:
            with storage_errors("write", self.path):
                _append(descriptor, line)
        finally:
            os.close(descriptor)

    def stamp(self) -> tuple[int, ...]:
        """Inode, size and modification time, which change when the file does."""
        with storage_errors("read", self.path):
            if not path_exists(self.path):
                return ()
            status = self.path.lstat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last record of each run by key, in the order of the first records."""
        return {record["key"]: record for record in self.read()}

    def settled(self) -> set[str]:
        """Keys of the runs that are done or have diverged; these are not run again."""
        last = {record["key"]: record["status"] for batch in self.batches() for record in batch}
        return {key for key, status in last.items() if status != "failed"}


def _all_valid(records: list[Any]) -> bool:
    """Whether all records are valid; vectorised, for journals of a million runs."""
    if set(map(type, records)) != {dict}:
        return False
    # Records with the same fields in the same order are checked column by column.
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
    """Whether a number is plausible: sizes not negative, nothing huge or subnormal."""
    if name in _SIZES and value < 0:
        return False
    return value == 0 or sys.float_info.min <= abs(value) <= LARGEST_NUMBER


def _problem(record: Any) -> str | None:
    """Why a record is not valid; `None` if it is."""
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


def without_invalid_columns(record: dict[str, Any]) -> dict[str, Any]:
    """The record without columns of the wrong type: losing a column is better than a run."""
    return {k: v for k, v in record.items() if k not in _KINDS or type(v) in _KINDS[k]}


@contextlib.contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: for a million new records it takes as long as parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _append(descriptor: int, line: bytes) -> None:
    end = _complete_length(descriptor)
    retry_interrupted(os.ftruncate, descriptor, end)
    try:
        _write(descriptor, line, end)
        retry_interrupted(os.fsync, descriptor)
    except OSError:
        # Leave no partial line on a full disk, and no line that may not be on the disk: a reader
        # would consider a run done that a crash undoes.
        with contextlib.suppress(OSError):
            retry_interrupted(os.ftruncate, descriptor, end)
        raise


def _write(descriptor: int, line: bytes, at: int) -> None:
    while line:
        written = retry_interrupted(os.pwrite, descriptor, line, at)
        line, at = line[written:], at + written


def _complete_length(descriptor: int) -> int:
    """Length of the file up to and including its last newline."""
    end = os.fstat(descriptor).st_size
    step = 1 << 16
    while end > 0:
        start = max(0, end - step)
        newline = retry_interrupted(os.pread, descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
