"""Read arrays of numbers from `.npy` and `.npz` files without unpickling.

A header may claim any shape and an archive may unpack to any size, so both are checked against the
file size and the memory before an array is allocated.
"""

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError, StorageError
from allometry._core.files import open_for_reading
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
    EOFError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of numpy's and zipfile's readers on damaged files and encrypted archives."""

LARGEST_STUDY_FILE = 1 << 28
"""Largest unpacked size in bytes of an `.npz` file in a study's folder."""


def read_npy(path: Path | str) -> ndarray:
    """Read a `.npy` file in this machine's byte order, memory-mapped if possible.

    Raises:
        InputError: The file is damaged, or contains anything but real numbers.
    """
    with open_regular(path, most=1 << 62) as file:
        try:
            shape, dtype = _header(file)
            _require_numbers(path, dtype)
            size = math.prod(shape) * dtype.itemsize
            available = Path(path).stat().st_size - file.tell()
            if size > available:
                raise _damaged(path, f"{available} of the {size} bytes that its header claims")
            if size == 0:  # an empty file can't be mapped
                return native(np.empty(shape, dtype), str(path))
            return native(np.load(path, mmap_mode="c", allow_pickle=False), str(path))
        except (InputError, OSError):
            raise
        except _DAMAGED:
            raise _damaged(path, "a header that can't be read") from None


def read_npz(path: Path | str, names: Sequence[str] | None = None) -> dict[str, ndarray]:
    """Read the arrays of an `.npz` archive by name, or only those in `names`.

    Raises:
        InputError: The file is damaged, unpacks to more than a quarter of the memory, or contains
            anything but real numbers.
    """
    arrays = {}
    with open_regular(path) as file:
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
                            arrays[name] = _member(path, name, member, entry.file_size)
        except (InputError, OSError):
            raise
        except _DAMAGED:
            raise _damaged(path, "an archive that can't be read") from None
    return arrays


def names_npz(path: Path | str) -> list[str]:
    """Names of the arrays in an `.npz` archive."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return [name.removesuffix(".npy") for name in archive.namelist()]
        except OSError:
            raise
        except _DAMAGED:
            raise _damaged(path, "an archive that can't be read") from None


def read_arrays(
    path: Path, is_valid: Callable[[dict[str, ndarray]], bool] = lambda _: True
) -> dict[str, ndarray]:
    """Read the arrays of numbers in an `.npz` file of a study's folder.

    Args:
        path: The file.
        is_valid: Checks the arrays.

    Raises:
        StorageError: The file can't be read, or is not valid.
    """
    with open_for_reading(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size <= LARGEST_STUDY_FILE:
                file.seek(0)
                with np.load(file, allow_pickle=False) as data:
                    arrays = {name: data[name] for name in data.files}
                if all(a.dtype.kind in "biuf" for a in arrays.values()) and is_valid(arrays):
                    return arrays
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise  # the disk fails, not the file
    raise StorageError(
        f"Can't read {path}: it is damaged, or not a file of this study. Delete it; the run's "
        "line in the journal is not affected."
    )


def native(array: ndarray, name: str) -> ndarray:
    """Convert `array` to a dtype that torch supports, in native byte order."""
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
        raise _damaged(path, f"less data than the header of {name} claims")
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
    with warnings.catch_warnings():  # numpy warns about headers written by Python 2
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
