"""Compile C++ kernels once per machine and cache the libraries.

They are optional: without a compiler, or with `ALLOMETRY_NATIVE=0`, `load_kernels` returns `None`
and the caller uses torch.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from allometry._core.errors import AllometryWarning
from allometry._core.user_cache import private_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
)


def find_compiler() -> str | None:
    """The C++ compiler of this machine, or the one in `CXX`; `None` if there is none."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "c++", "clang++"]
    return next((name for name in names if shutil.which(name)), None)


@functools.cache
def load_kernels(
    source: Path, flags: tuple[str, ...] = (), symbols: tuple[str, ...] = ()
) -> ctypes.CDLL | None:
    """Build and load `source`; `None` if it can't be built or loaded.

    The library is built for this machine's processor. Its file name contains a hash of the
    processor, so different machines may share a home folder. Only files in a private folder are
    loaded, and only after the checksum in their name was verified: loading a partial file would
    end the process. A damaged file is built again, once, with a warning.

    Args:
        source: A C++ file whose functions have C linkage; may include headers beside it.
        flags: More compiler flags: headers and libraries that the file needs.
        symbols: Functions that the library must have.
    """
    compiler = find_compiler()
    if compiler is None or os.environ.get("ALLOMETRY_NATIVE") == "0":
        return None
    try:
        headers = sorted(source.parent.glob("*.h"))
        text = b"".join(path.read_bytes() for path in (source, *headers))
        build = repr((text, compiler, FLAGS, flags, _processor()))
        name = hashlib.sha256(build.encode()).hexdigest()
        folder, stem = private_folder(), f"{source.stem}-{name[:20]}"
        cached = sorted(folder.glob(f"{stem}-*.so"))
        for path in cached:
            if (library := _load(path, symbols)) is not None:
                return library
            path.unlink(missing_ok=True)
        if cached:
            warnings.warn(
                f"The kernels in {cached[0]} were damaged; they are built again.",
                AllometryWarning,
                stacklevel=2,
            )
        with _alone(folder):
            # Another process may have built it meanwhile.
            for path in sorted(folder.glob(f"{stem}-*.so")):
                if (library := _load(path, symbols)) is not None:
                    return library
            return _load(_build(compiler, source, folder, stem, flags), symbols)
    except (OSError, subprocess.SubprocessError):
        return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock among processes, where the system has one."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _load(path: Path, symbols: tuple[str, ...]) -> ctypes.CDLL | None:
    """Load a library; `None` if its checksum is wrong or a symbol is missing."""
    if not path.stem.endswith(f"-{_checksum(path.read_bytes())}"):
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in symbols) else None


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _build(compiler: str, source: Path, folder: Path, stem: str, flags: tuple[str, ...]) -> Path:
    """Compile to a temporary file, flush it and rename it: no process loads a partial file."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        library = Path(temporary) / f"{stem}.so"
        subprocess.run(
            [compiler, *FLAGS, str(source), *flags, "-o", str(library)],
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        path = folder / f"{stem}-{_checksum(library.read_bytes())}.so"
        _sync(library)
        library.replace(path)
        _sync(folder)
    return path


def _sync(path: Path) -> None:
    """Flush a file's data, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _processor() -> str:
    """A description of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    kind = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return repr((platform.machine(), platform.processor(), kind))
