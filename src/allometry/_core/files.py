"""Files that are either there whole or not there at all, and folders that may come from anyone.

Everything that is read from or written to a study's folder goes through this module. Three rules
hold there. What a file says is data: a name from it becomes part of a path only if it is a key
(`is_key`). Nothing in a folder is followed out of it: symbolic links, pipes and devices are
refused (`path_inside`, `open_for_reading`, `open_for_update`). What is acknowledged is on the disk: data first, then the
name, then the folder that holds the name (`atomic_write`, `rename`).
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
from typing import IO, Any, BinaryIO, cast, final

import orjson

from allometry._core.errors import InputError, StorageError

_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space and run the same command again",
    errno.EDQUOT: "your disk quota is used up. Free some space and run the same command again",
    errno.EFBIG: "it would be larger than files may be here. Raise that limit (ulimit -f)",
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
"""Bytes of a JSON file that are read at most; a plan of a million runs takes a tenth of it."""

_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")
_KEYS = re.compile(r"[0-9A-Za-z_-]{1,64}(?:\n[0-9A-Za-z_-]{1,64})*")


def is_key(name: object) -> bool:
    """Whether `name` may name a run: letters, digits, `_` and `-`, so no path and no pattern."""
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


def are_keys(names: Sequence[object]) -> bool:
    """Whether all of them are keys; one look at a million of them."""
    if set(map(type, names)) - {str}:
        return False
    text = "\n".join(cast("Sequence[str]", names))
    return not names or (text.count("\n") == len(names) - 1 and bool(_KEYS.fullmatch(text)))


@contextmanager
def storage_errors(doing: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError` of one plain sentence."""
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
    """What `call` gives, asked again for as long as a signal interrupts it (EINTR)."""
    while True:
        try:
            return call(*arguments, **options)
        except InterruptedError:
            continue


@final
class _Direct(io.FileIO):
    """A file whose every read and write is one call of `os`, asked again when interrupted."""

    def write(self, data: Any, /) -> int:
        return retry_interrupted(os.write, self.fileno(), data)

    def readinto(self, buffer: Any, /) -> int:
        return retry_interrupted(os.readv, self.fileno(), [buffer])


def path_inside(folder: Path | str, *parts: str) -> Path:
    """The path of something in a study's folder, known to lead nowhere else.

    Args:
        folder: The study's; how one gets there is the user's own affair.
        *parts: Names below it, one for each level.

    Raises:
        StorageError: One of them is a symbolic link.
    """
    path = Path(folder)
    for part in parts:
        if "/" in part or "\0" in part or part in ("", ".", ".."):
            raise InputError(f"A file in {folder} must have a plain name; got {part!r}.")
        path = path / part
        with storage_errors("read", path):
            if path.is_symlink():
                raise StorageError(
                    f"Can't use {path}: it is a symbolic link, and what belongs to a study must "
                    "lie in its folder. Put what it points to in its place."
                )
    return path


def path_exists(path: Path) -> bool:
    """Whether there is anything at `path`, be it a link that leads nowhere."""
    with storage_errors("read", path):
        return os.path.lexists(path)


@contextmanager
def open_for_reading(path: Path, *, link: bool = False) -> Iterator[BinaryIO]:
    """The regular file at `path`, opened for reading; anything else is refused, never waited for.

    Args:
        path: The file.
        link: Whether it may be a symbolic link: of files that the user named, not of a study's.
    """
    with storage_errors("read", path):
        follow = 0 if link else os.O_NOFOLLOW
        descriptor = retry_interrupted(
            os.open, path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow
        )
        with io.BufferedReader(_Direct(descriptor, "rb"), 1 << 18) as file:
            _regular(descriptor, path)
            yield file


def _regular(descriptor: int, path: Path) -> os.stat_result:
    about = os.fstat(descriptor)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, "", str(path))
    if not stat.S_ISREG(about.st_mode):
        raise StorageError(f"Can't use {path}: it is a pipe or a device, not a file.")
    return about


def check_regular(path: Path, *, link: bool = False) -> None:
    """Refuse what `open_for_reading` refuses, for readers that open files themselves."""
    with open_for_reading(path, link=link):
        pass


def read_json(path: Path, most: int = LARGEST_JSON) -> Any:
    """What the JSON file at `path` says.

    Args:
        path: A file of a study.
        most: Bytes that it may have.

    Raises:
        StorageError: It can't be read, is longer, or is not JSON.
    """
    with open_for_reading(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise StorageError(f"Can't read {path}: it is longer than {most:,} bytes.")
    with contextlib.suppress(ValueError):
        return orjson.loads(data)
    try:
        # What Python writes for numbers that are none is no JSON, and folders may have it.
        return orjson.loads(orjson.dumps(json.loads(data, parse_constant=lambda _: None)))
    except (ValueError, TypeError, RecursionError):
        raise StorageError(f"Can't read {path}: it is not valid JSON.") from None


def open_for_update(path: Path) -> int:
    """A descriptor of the file at `path`, made where it is not there, for changing it in place.

    Raises:
        StorageError: It is no regular file, or has a second name by which it is someone else's.
    """
    with storage_errors("write", path):
        fresh = not path_exists(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = retry_interrupted(os.open, path, flags, 0o666)
        try:
            if _regular(descriptor, path).st_nlink > 1:
                raise StorageError(
                    f"Can't write {path}: it is a hard link, and the file has another name "
                    "elsewhere. Put a copy in its place."
                )
            if fresh:
                sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """A handle on a temporary neighbour of `path` that takes its place only when all went well.

    The data reach the disk before the name does (fsync, then rename, then fsync of the folder), so
    that a reader, a crash or a full disk never meets half a file.
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
    """Have what was written to `file` on the disk."""
    file.flush()
    retry_interrupted(os.fsync, file.fileno())


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where its file system can promise that."""
    try:
        descriptor = retry_interrupted(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # one may write in a folder without being allowed to list it
    try:
        retry_interrupted(os.fsync, descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def rename(old: Path, new: Path) -> None:
    """Give a file another name, for good: when this returns, a crash does not undo it."""
    retry_interrupted(os.replace, old, new)
    sync_folder(new.parent)


def remove(path: Path) -> None:
    """Delete a file, a link or a pipe, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        retry_interrupted(os.unlink, path)


def remove_partial_files(folder: Path, *names: str) -> None:
    """Delete what `atomic_write` and `make_folder` left in `folder` when their process was killed.

    Args:
        folder: Where nobody else writes at the moment.
        *names: Only half files of these names, where others do write.
    """
    with storage_errors("write in the folder", folder):
        for path in folder.glob(".*"):
            whose, _, rest = path.name[1:].rpartition(".part")[0].rpartition(".")
            half = bool(rest) and path.name.endswith(".part") and (not names or whose in names)
            if half or path.name.startswith(".probe."):
                remove(path)


def make_folder(path: Path | str) -> Path:
    """The folder `path`, made if it was not there, and known to be writable."""
    path = Path(path)
    with storage_errors("make the folder", path):
        _made(path)
    with storage_errors("write in the folder", path):
        probe = path / f".probe.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(retry_interrupted(os.open, probe, flags, 0o600))
        remove(probe)
    return path


def _made(path: Path) -> None:
    """Make a folder and those above it, each on the disk before what is in it."""
    if path.is_dir():
        return
    if not os.path.lexists(path.parent):
        _made(path.parent)
    try:
        retry_interrupted(os.mkdir, path)
    except FileExistsError:
        if not path.is_dir():  # else another process was quicker
            raise
    sync_folder(path.parent)
