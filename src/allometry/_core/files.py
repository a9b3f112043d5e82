"""Files that are either there whole or not there at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from allometry._core.errors import StorageError

_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space and run the same command again",
    errno.EDQUOT: "your disk quota is used up. Free some space and run the same command again",
    errno.EACCES: "permission denied. Choose a place you may write to",
    errno.EPERM: "permission denied. Choose a place you may write to",
    errno.EROFS: "the file system is read-only. Choose a place you may write to",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "a file of that name is in the way",
    errno.ENAMETOOLONG: "the name is too long",
}


@contextmanager
def storage(doing: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError` of one plain sentence."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"Can't {doing} {path}: {reason}.") from error


@contextmanager
def replacing(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """A handle on a temporary neighbour of `path` that takes its place only when all went well.

    The data reach the disk before the name does (fsync, then rename), so that a reader, a crash or
    a full disk never meets half a file.
    """
    path = Path(path)
    with storage("write", path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        temporary = Path(name)
        try:
            # mkstemp makes files private; a result should have the permissions of any new file.
            os.fchmod(handle, 0o666 & ~_umask())
            with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def make_folder(path: Path | str) -> Path:
    """The folder `path`, made if it was not there, and known to be writable."""
    path = Path(path)
    with storage("make the folder", path):
        path.mkdir(parents=True, exist_ok=True)
    with storage("write in the folder", path):
        handle, name = tempfile.mkstemp(dir=path, prefix=".probe.")
        os.close(handle)
        Path(name).unlink()
    return path
