"""Arrays that a study keeps beside its journal, read as what anyone may have made of them."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy import ndarray

from allometry._core.errors import StorageError
from allometry._core.files import open_for_reading

LARGEST = 1 << 28
"""Bytes that the arrays of one file may take."""

_DAMAGE = (ValueError, KeyError, EOFError, TypeError, NotImplementedError, RuntimeError)
_DAMAGE += (zipfile.BadZipFile, zlib.error, MemoryError, OverflowError, SyntaxError, OSError)
"""What `numpy` and `zipfile` raise at a file that is not what it claims to be."""


def read_arrays(
    path: Path, sound: Callable[[dict[str, ndarray]], bool] = lambda _: True
) -> dict[str, ndarray]:
    """The arrays of numbers in an `.npz` file of a study; nothing is unpickled.

    Args:
        path: The file.
        sound: Whether they are what the caller can use.

    Raises:
        StorageError: It can't be read, or is not such a file.
    """
    with open_for_reading(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size <= LARGEST:
                file.seek(0)
                with np.load(file, allow_pickle=False) as data:
                    arrays = {name: data[name] for name in data.files}
                if all(a.dtype.kind in "biuf" for a in arrays.values()) and sound(arrays):
                    return arrays
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno:
                raise  # the disk's fault, not the file's
    raise StorageError(
        f"Can't read {path}: it is damaged, or no file of this study. Delete it; the run's line "
        "in the journal is safe."
    )
