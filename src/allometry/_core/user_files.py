"""Reading what a user hands in: regular files of bounded size, text in UTF-8, JSON not too deep.

Every reader of the package opens files through these functions, so that a pipe, a device, a file
larger than memory, bytes of another encoding or a folder without end is one sentence everywhere.
"""

import errno
import json
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.files import storage_errors

MOST_TABLE = 1 << 30
"""Bytes of the largest table or log that is read whole."""

MOST_SMALL = 1 << 24
"""Bytes of the largest file that a person writes: a grammar, a schema, a machine."""

MOST_ENTRIES = 200_000
"""Files and folders looked at below a folder before the search is given up."""

DEEPEST = 12
"""Levels of folders that are searched."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def largest_size() -> int:
    """A quarter of this machine's memory in bytes: the most that one file is allowed to take."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        whole = 8 << 30
    return max(whole // 4, 1 << 28)


def exists(path: Path | str) -> bool:
    """Whether there is such a path; also for names that no path can have."""
    try:
        return Path(path).exists()
    except (ValueError, OSError):
        return False


def require_regular(path: Path | str) -> None:
    """Refuse pipes, sockets and devices, which would block or never end.

    A path that is not there, or is a folder, is left to whoever opens it.
    """
    with storage_errors("read", path):
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except ValueError:  # a NUL in the name
            raise InputError(
                f"{shorten(path)} must be the name of a file; it can't be one."
            ) from None
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise InputError(
                f"{path} must be a regular file; got {name}. Write its content to a file first."
            )


def open_regular(path: Path | str, most: int | None = None) -> BufferedReader:
    """A regular file opened for reading, of `most` bytes at most (a quarter of the memory).

    Call it within `storage_errors("read", path)`.
    """
    require_regular(path)
    # Not to wait for a writer, should a pipe have taken the file's place since.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a folder")
        raise InputError(f"{path} must be a regular file; got another kind.")
    file = os.fdopen(descriptor, "rb")
    size, most = about.st_size, largest_size() if most is None else most
    if size > most:
        file.close()
        raise InputError(
            f"{path} must have at most {_bytes(most)}; got {_bytes(size)}. Give a part of it."
        )
    return file


def read_bytes(path: Path | str, most: int | None = None) -> bytes:
    """The bytes of a regular file; see `open_regular`."""
    limit = largest_size() if most is None else most
    with storage_errors("read", path), open_regular(path, limit) as file:
        # Files of /proc have no size and may not end.
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InputError(f"{path} must have at most {_bytes(limit)}; got more.")
    return data


def read_text(path: Path | str, most: int = MOST_SMALL) -> str:
    """The text of a regular UTF-8 file; a byte order mark is dropped."""
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None


def not_utf8(path: Path | str, error: UnicodeDecodeError) -> InputError:
    """The sentence on a file that is not text."""
    return InputError(
        f"{path} must be text in UTF-8; got the byte {error.object[error.start]:#04x} at "
        f"{error.start}. Save it as UTF-8."
    )


def parse_json(text: str | bytes, name: str, *, unique: bool = False) -> Any:
    """The value that a JSON text says; `name` begins the sentence on one that says none.

    A whole number beyond 19 digits becomes a float, which no later step can stumble over.

    Args:
        text: The JSON.
        name: What it is (`"machine"`, a path).
        unique: Refuse an object that names a key twice; otherwise the last one counts.
    """
    hook = _once if unique else None
    try:
        return json.loads(text, parse_int=_whole, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} must be JSON; line {error.lineno}: {error.msg}.") from None
    except RecursionError:
        raise InputError(f"{name} must be JSON of less depth; got it nested too deep.") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be JSON in UTF-8; got other bytes.") from None
    except ValueError as error:
        raise InputError(f"{name} must be JSON; got {error}.") from None


def files_below(
    folder: Path, wanted: Callable[[str], bool], *, most: int = MOST_ENTRIES
) -> Iterator[Path]:
    """The regular files below a folder whose names are wanted, in a fixed order.

    Links to folders are not followed. A folder of more than `most` entries, or deeper than
    `DEEPEST`, is refused: nobody's runs, but a disk.
    """
    seen = 0
    for at, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        seen += len(folders) + len(files)
        depth = len(Path(at).parts) - len(folder.parts)
        if seen > most or (depth >= DEEPEST and folders):
            what = f"{most:,} files" if seen > most else f"{DEEPEST} levels"
            raise InputError(
                f"{folder} must be a folder of fewer than {what}; got more. Name the folder of "
                "the runs themselves."
            )
        for name in sorted(files):
            path = Path(at) / name
            if wanted(name) and path.is_file():
                yield path


def replace_controls(text: str) -> str:
    r"""`text` without what a terminal would obey: escapes, other controls, changes of direction.

    Each is replaced by one visible character, so that columns stay aligned. Line feeds and tabs
    stay; lone surrogates, which no terminal can be sent, go.

    Example:
        >>> clean("a\x1b[2Jb\u202ec")
        'a�[2Jb�c'
    """
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
    return text.encode("utf-8", "replace").decode() if _surrogate(text) else text


def shorten(value: object, most: int = 80) -> str:
    """A value from a file as it can stand in a sentence: on one line, cut, controls escaped."""
    text = " ".join(replace_controls(str(value)).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _surrogate(text: str) -> bool:
    return not text.isascii() and any(unicodedata.category(c) == "Cs" for c in text)


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _whole(text: str) -> int | float:
    return int(text) if len(text) <= 20 else float(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shorten(twice, 40)!r} twice")
    return made
