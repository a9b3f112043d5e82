"""Arrays from `.npy` and `.npz` files: numbers only, never unpickled, checked before memory.

A header may claim any shape and an archive may unpack to any size, so both are compared with what
there is before an array is made.
"""

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError
from allometry._core.files import storage_errors
from allometry._core.user_files import largest_size, open_regular

_MAGIC = b"\x93NUMPY"
_KINDS = {
    "O": "Python objects",
    "U": "text",
    "S": "text",
    "M": "dates",
    "m": "durations",
    "V": "records",
    "c": "complex numbers",
    "T": "text",
}
_DAMAGED = (
    *(ValueError, EOFError, TypeError, KeyError, OverflowError, RecursionError, MemoryError),
    *(SyntaxError, NotImplementedError, RuntimeError, IndexError, zipfile.BadZipFile, zlib.error),
    tokenize.TokenError,
)
"""What numpy's and zipfile's readers raise on damaged files; an encrypted archive among them."""


def read_npy(path: Path | str) -> ndarray:
    """The array of a `.npy` file in this machine's byte order, mapped where it can be.

    Raises:
        InputError: It is damaged, or holds anything but real numbers.
    """
    with storage_errors("read", path), open_regular(path, most=1 << 62) as file:
        try:
            shape, dtype = _header(file)
            _require_numbers(path, dtype)
            size = math.prod(shape) * dtype.itemsize
            there = Path(path).stat().st_size - file.tell()
            if size > there:
                raise _damaged(path, f"{there} bytes for the {size} that its header names")
            if size == 0:  # nothing to map
                return np.empty(shape, dtype)
            return native(np.load(path, mmap_mode="c", allow_pickle=False), str(path))
        except (InputError, OSError):
            raise
        except _DAMAGED:
            raise _damaged(path, "a header that can't be read") from None


def read_npz(path: Path | str, names: Sequence[str] | None = None) -> dict[str, ndarray]:
    """The arrays of an `.npz` archive by name; `names` picks some of them.

    Raises:
        InputError: It is damaged, unpacks to more than a quarter of the memory, or holds anything
            but real numbers.
    """
    found = {}
    with storage_errors("read", path), open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                left = largest_size()
                for entry in archive.infolist():
                    name = entry.filename.removesuffix(".npy")
                    if names is None or name in names:
                        left -= entry.file_size
                        if left < 0:
                            raise InputError(
                                f"{path} must unpack to at most a quarter of this machine's "
                                "memory; got more."
                            )
                        with archive.open(entry) as member:
                            found[name] = _member(path, name, member, entry.file_size)
        except (InputError, OSError):
            raise
        except _DAMAGED:
            raise _damaged(path, "an archive that can't be read") from None
    return found


def names_npz(path: Path | str) -> list[str]:
    """The names of the arrays in an `.npz` archive."""
    with storage_errors("read", path), open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return [name.removesuffix(".npy") for name in archive.namelist()]
        except OSError:
            raise
        except _DAMAGED:
            raise _damaged(path, "an archive that can't be read") from None


def native(array: ndarray, name: str) -> ndarray:
    """`array` in a type that torch takes: this machine's byte order, no unsigned or long types."""
    _require_numbers(name, array.dtype)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array.astype(np.uint8)
    if kind == "f" and size > 8:
        return array.astype(np.float64)
    if kind == "u" and size > 1:
        return array.astype(np.int64 if size < 8 else np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _member(path: Path | str, name: str, file: Any, size: int) -> ndarray:
    shape, dtype = _header(file)
    _require_numbers(f"{name} of {path}", dtype)
    count = math.prod(shape)
    if count * dtype.itemsize > size:
        raise _damaged(path, f"less data than the header of {name} names")
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.lib.format.read_array(file, allow_pickle=False)
    return native(array, f"{name} of {path}")


def _header(file: BufferedIOBase) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("no array")
    file.seek(0)
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError("unknown version")
    with warnings.catch_warnings():  # headers of Python 2 are read all the same
        warnings.simplefilter("ignore")
        shape, _, dtype = read(file)
    if any(length < 0 for length in shape):
        raise ValueError("negative length")
    return shape, dtype


def _require_numbers(name: Path | str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or dtype.kind not in "biuf":
        got = "Python objects" if dtype.hasobject else _KINDS.get(dtype.kind, str(dtype))
        raise InputError(
            f"{name} must hold plain numbers; got {got}. Save an array of numbers; nothing is "
            "unpickled."
        )


def _damaged(path: Path | str, got: str) -> InputError:
    return InputError(f"{path} must be a whole array file; got {got}. Save it again.")
