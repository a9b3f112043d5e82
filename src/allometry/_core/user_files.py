"""Read files that the user names: regular files of bounded size, UTF-8 text, bounded JSON.

Every reader of the package opens files through these functions. A pipe, a device, a file larger
than memory, another encoding or an endless folder gives the same one-sentence error everywhere.
"""

import json
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.files import open_for_reading, storage_errors

MOST_TABLE = 1 << 30
"""Largest table or log in bytes."""

MOST_SMALL = 1 << 24
"""Largest hand-written file in bytes: a grammar, a schema, a machine."""

MOST_ENTRIES = 200_000
"""Largest number of files and folders that a search below a folder visits."""

DEEPEST = 12
"""Largest depth of a folder search."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def largest_size() -> int:
    """Largest allowed size of one file in bytes: a quarter of this machine's memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory = 8 << 30
    return max(memory // 4, 1 << 28)


def exists(path: Path | str) -> bool:
    """Whether `path` exists; `False` for names that no path can have."""
    try:
        return Path(path).exists()
    except (ValueError, OSError):
        return False


def require_regular(path: Path | str) -> None:
    """Refuse pipes, sockets and devices, which would block or never end.

    Missing paths and folders pass: opening them gives the error.
    """
    with storage_errors("read", path):
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except ValueError:  # a NUL in the name
            raise InputError(f"{shorten(path)} must be a valid file name.") from None
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise InputError(
                f"{path} must be a regular file; got {name}. Write its content to a file first."
            )


@contextmanager
def open_regular(path: Path | str, most: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file of at most `most` bytes (default: `largest_size`) for reading."""
    most = largest_size() if most is None else most
    require_regular(path)
    with open_for_reading(Path(path), link=True) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(
                f"{path} must have at most {_bytes(most)}; got {_bytes(size)}. Give a part of it."
            )
        yield file


def read_bytes(path: Path | str, most: int | None = None) -> bytes:
    """The content of a regular file; see `open_regular`."""
    limit = largest_size() if most is None else most
    with open_regular(path, limit) as file:
        # Files in /proc report size 0 and may be endless.
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
    """The error for a file that is not UTF-8 text."""
    return InputError(
        f"{path} must be text in UTF-8; got the byte {error.object[error.start]:#04x} at "
        f"{error.start}. Save it as UTF-8."
    )


def parse_json(text: str | bytes, name: str, *, unique: bool = False) -> Any:
    """Parse JSON; an integer of more than 20 characters becomes a float.

    Args:
        text: The JSON.
        name: What it is (`"machine"`, a path); starts the error message.
        unique: Refuse duplicate keys in an object; otherwise the last one counts.
    """
    hook = _unique_keys if unique else None
    try:
        return json.loads(text, parse_int=_parse_int, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} must be JSON; line {error.lineno}: {error.msg}.") from None
    except RecursionError:
        raise InputError(f"{name} must be JSON of less depth; it is nested too deep.") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be JSON in UTF-8; got other bytes.") from None
    except ValueError as error:
        raise InputError(f"{name} must be JSON; got {error}.") from None


def files_below(
    folder: Path, wanted: Callable[[str], bool], *, most: int = MOST_ENTRIES
) -> Iterator[Path]:
    """Yield the regular files below a folder whose names are `wanted`, in a fixed order.

    Links to folders are not followed. A folder of more than `most` entries, or deeper than
    `DEEPEST` levels, is refused: it is not a folder of runs.
    """
    seen = 0
    for at, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        seen += len(folders) + len(files)
        depth = len(Path(at).parts) - len(folder.parts)
        if seen > most or (depth >= DEEPEST and folders):
            limit = f"{most:,} files" if seen > most else f"{DEEPEST} levels"
            raise InputError(
                f"{folder} must be a folder of fewer than {limit}; got more. Name the folder that "
                "contains the runs."
            )
        for name in sorted(files):
            path = Path(at) / name
            if wanted(name) and path.is_file():
                yield path


def replace_controls(text: str) -> str:
    r"""Replace terminal escapes, control characters and changes of text direction in `text`.

    Each becomes one visible character, so columns stay aligned. Line feeds and tabs stay. Lone
    surrogates are replaced as well, because they can't be encoded.

    Example:
        >>> replace_controls("a\x1b[2Jb\u202ec")
        'a�[2Jb�c'
    """
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
    return text.encode("utf-8", "replace").decode() if _surrogate(text) else text


def shorten(value: object, most: int = 80) -> str:
    """A value from a file for use in a message: one line, truncated, controls replaced."""
    text = " ".join(replace_controls(str(value)).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _surrogate(text: str) -> bool:
    return not text.isascii() and any(unicodedata.category(c) == "Cs" for c in text)


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= 20 else float(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shorten(duplicate, 40)!r} twice")
    return unique
