"""Atomic and durable file operations in study folders, whose content is not trusted.

Everything that is read from or written to a study's folder goes through this module. It follows
three rules. File content is data: a name from a file becomes part of a path only if it is a key
(`is_key`). No path leaves the folder: symbolic links, pipes and devices are refused
(`path_inside`, `open_for_reading`, `open_for_update`). A write that has returned is on the disk:
first the data, then the name, then the folder that contains it (`atomic_write`, `rename`).
"""

import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast, final

import orjson

from allometry._core.errors import InputError, StorageError

_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space and run the same command again",
    errno.EDQUOT: "your disk quota is used up. Free some space and run the same command again",
    errno.EFBIG: "it would exceed the file size limit. Raise the limit (ulimit -f)",
    errno.EIO: "the disk reports an error. Check it before you run the same command again",
    errno.EACCES: "permission denied. Choose a place you may write to",
    errno.EPERM: "permission denied. Choose a place you may write to",
    errno.EROFS: "the file system is read-only. Choose a place you may write to",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "a file of that name is in the way",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is a symbolic link. Put the file itself in its place",
}

_DENIED = (errno.EACCES, errno.EPERM)

LARGEST_JSON = 1 << 28
"""Largest JSON file in bytes; the plan of a million runs takes a tenth of it."""

_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")
_KEYS = re.compile(r"[0-9A-Za-z_-]{1,64}(?:\n[0-9A-Za-z_-]{1,64})*")


def is_key(name: object) -> bool:
    """Whether `name` is a valid run key: only letters, digits, `_` and `-`, so never a path."""
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


def are_keys(names: Sequence[object]) -> bool:
    """Whether all names are keys; one regular expression match for all of them."""
    if set(map(type, names)) - {str}:
        return False
    text = "\n".join(cast("Sequence[str]", names))
    return not names or (text.count("\n") == len(names) - 1 and bool(_KEYS.fullmatch(text)))


@contextmanager
def storage_errors(doing: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError` with a one-sentence message."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        if error.errno in _DENIED and doing == "read":
            reason = "permission denied. Ask its owner to let you read it"
        raise StorageError(f"Can't {doing} {path}: {reason}.") from error


def retry_interrupted(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return `call(*arguments, **options)`; retry while a signal interrupts it (EINTR)."""
    while True:
        try:
            return call(*arguments, **options)
        except InterruptedError:
            continue


@final
class _Direct(io.FileIO):
    """A file whose reads and writes are single `os` calls, retried when interrupted."""

    def write(self, data: Any, /) -> int:
        return retry_interrupted(os.write, self.fileno(), data)

    def readinto(self, buffer: Any, /) -> int:
        return retry_interrupted(os.readv, self.fileno(), [buffer])


def path_inside(folder: Path | str, *parts: str) -> Path:
    """Return the path `folder/parts...` after checking that it stays inside the study's folder.

    Args:
        folder: The study's folder; the path to it may contain links.
        *parts: Names below it, one for each level.

    Raises:
        StorageError: One of the parts is a symbolic link.
    """
    path = Path(folder)
    for part in parts:
        if "/" in part or "\0" in part or part in ("", ".", ".."):
            raise InputError(f"A file in {folder} must have a plain name; got {part!r}.")
        path = path / part
        with storage_errors("read", path):
            if path.is_symlink():
                raise StorageError(
                    f"Can't use {path}: it is a symbolic link, and all files of a study must be "
                    "inside its folder. Replace the link by the file it points to."
                )
    return path


def path_exists(path: Path) -> bool:
    """Whether `path` exists; a broken symbolic link counts."""
    with storage_errors("read", path):
        return os.path.lexists(path)


@contextmanager
def open_for_reading(path: Path, *, link: bool = False) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading; refuse anything else without blocking.

    Args:
        path: The file.
        link: Follow symbolic links. For files that the user names, not for files of a study.
    """
    with storage_errors("read", path):
        follow = 0 if link else os.O_NOFOLLOW
        descriptor = retry_interrupted(
            os.open, path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow
        )
        file: io.BufferedReader = io.BufferedReader(_Direct(descriptor, "rb"), 1 << 18)
        with file:
            _require_regular(descriptor, path)
            yield file


def _require_regular(descriptor: int, path: Path) -> os.stat_result:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"Can't use {path}: it is a pipe or a device, not a file.")
    return status


def check_regular(path: Path, *, link: bool = False) -> None:
    """Raise as `open_for_reading` would; for libraries that open files themselves."""
    with open_for_reading(path, link=link):
        pass


def read_json(path: Path, most: int = LARGEST_JSON) -> Any:
    """Parse the JSON file at `path`.

    Args:
        path: A file of a study.
        most: Largest allowed size in bytes.

    Raises:
        StorageError: The file can't be read, is too long, or is not JSON.
    """
    with open_for_reading(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise StorageError(f"Can't read {path}: it is longer than {most:,} bytes.")
    with contextlib.suppress(ValueError):
        return orjson.loads(data)
    try:
        # Python writes NaN and Infinity, which are not JSON; existing folders may contain them.
        return orjson.loads(orjson.dumps(json.loads(data, parse_constant=lambda _: None)))
    except (ValueError, TypeError, RecursionError):
        raise StorageError(f"Can't read {path}: it is not valid JSON.") from None


def open_for_update(path: Path) -> int:
    """Open the file at `path` for changes in place, create it if needed; return a descriptor.

    Raises:
        StorageError: It is not a regular file, or it has another hard link.
    """
    with storage_errors("write", path):
        is_new = not path_exists(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = retry_interrupted(os.open, path, flags, 0o666)
        try:
            if _require_regular(descriptor, path).st_nlink > 1:
                raise StorageError(
                    f"Can't write {path}: the file has another hard link elsewhere. Replace it by "
                    "a copy."
                )
            if is_new:
                sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file beside `path` that replaces it only if the block succeeds.

    The data reach the disk before the name does (fsync, then rename, then fsync of the folder), so
    a reader never sees a partial file, even after a crash or on a full disk.
    """
    path = Path(path)
    with storage_errors("write", path):
        if not path.name:  # "." and "/" have none
            raise IsADirectoryError(errno.EISDIR, "a folder")
        temporary = path.with_name(f".{path.name[:180]}.{secrets.token_hex(4)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = retry_interrupted(os.open, temporary, flags, 0o666)
        try:
            with _handle(descriptor, mode) as file:
                yield cast("IO[Any]", file)
                sync(file)
            rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(temporary)
            raise


def _handle(descriptor: int, mode: str) -> io.IOBase:
    binary = io.BufferedWriter(_Direct(descriptor, "wb"), 1 << 20)
    if "b" in mode:
        return binary
    return io.TextIOWrapper(binary, encoding="utf-8")


def sync(file: Any) -> None:
    """Flush `file` to the disk."""
    file.flush()
    retry_interrupted(os.fsync, file.fileno())


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, if its file system supports that."""
    try:
        descriptor = retry_interrupted(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a folder may be writable without being readable
    try:
        retry_interrupted(os.fsync, descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def rename(old: Path, new: Path) -> None:
    """Rename a file durably: a crash after this returns does not undo it."""
    retry_interrupted(os.replace, old, new)
    sync_folder(new.parent)


def remove(path: Path) -> None:
    """Delete a file, link or pipe if it exists."""
    with contextlib.suppress(FileNotFoundError):
        retry_interrupted(os.unlink, path)


def remove_partial_files(folder: Path, *names: str) -> None:
    """Delete temporary files that `atomic_write` and `make_folder` left in a killed process.

    Args:
        folder: A folder that no other process writes to at the moment.
        *names: Delete only partial files of these names, if other processes do write there.
    """
    with storage_errors("write in the folder", folder):
        for path in folder.glob(".*"):
            name, _, token = path.name[1:].rpartition(".part")[0].rpartition(".")
            partial = bool(token) and path.name.endswith(".part") and (not names or name in names)
            if partial or path.name.startswith(".probe."):
                remove(path)


def make_folder(path: Path | str) -> Path:
    """Create the folder `path` if needed and check that it is writable."""
    path = Path(path)
    with storage_errors("make the folder", path):
        _make_durable(path)
    with storage_errors("write in the folder", path):
        probe = path / f".probe.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(retry_interrupted(os.open, probe, flags, 0o600))
        remove(probe)
    return path


def _make_durable(path: Path) -> None:
    """Create a folder and its parents; each is on the disk before its content."""
    if path.is_dir():
        return
    if not os.path.lexists(path.parent):
        _make_durable(path.parent)
    try:
        retry_interrupted(os.mkdir, path)
    except FileExistsError:
        if not path.is_dir():  # otherwise another process created it first
            raise
    sync_folder(path.parent)
