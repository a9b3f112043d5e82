"""Functions written in C++, built once on the machine that runs them and kept in the cache.

Nothing depends on them: where there is no compiler, or `ALLOMETRY_NATIVE=0` is set, `load_library` is
`None` and whoever asked does the same in torch.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from allometry._core.errors import AllometryWarning
from allometry._core.user_cache import private_folder

FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)


def find_compiler() -> str | None:
    """The C++ compiler of this machine, or the one that `CXX` names; `None` without one."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "c++", "clang++"]
    return next((name for name in names if shutil.which(name)), None)


@functools.cache
def load_library(
    source: Path, flags: tuple[str, ...] = (), symbols: tuple[str, ...] = ()
) -> ctypes.CDLL | None:
    """What `source` builds to, or `None` where it can't be built or loaded.

    Built for the processor at hand, of which the file's name keeps a hash, so that machines of
    several kinds may share a home. Only files in a folder that nobody else can write to are
    loaded, and only after their checksum, which their name has as well, was verified: loading half
    a file would end the process. A damaged file is built again, once, with a warning.

    Args:
        source: One file of C++ whose functions have C names; may include headers beside it.
        flags: More for the compiler: headers and libraries that the file asks for.
        symbols: Functions that the library must have.
    """
    found = find_compiler()
    if found is None or os.environ.get("ALLOMETRY_NATIVE") == "0":
        return None
    try:
        headers = sorted(source.parent.glob("*.h"))
        text = b"".join(path.read_bytes() for path in (source, *headers))
        name = hashlib.sha256(repr((text, found, FLAGS, flags, _processor())).encode()).hexdigest()
        folder, stem = private_folder(), f"{source.stem}-{name[:20]}"
        kept = sorted(folder.glob(f"{stem}-*.so"))
        for built in kept:
            if (made := _loaded(built, symbols)) is not None:
                return made
            built.unlink(missing_ok=True)
        if kept:
            warnings.warn(
                f"The kernels in {kept[0]} were damaged; they are built again.",
                AllometryWarning,
                stacklevel=2,
            )
        return _loaded(_build(found, source, folder, stem, flags), symbols)
    except (OSError, subprocess.SubprocessError):
        return None


def _loaded(built: Path, symbols: tuple[str, ...]) -> ctypes.CDLL | None:
    """The library in a file, or `None` if it is not what was built or lacks a symbol."""
    if not built.stem.endswith(f"-{_checksum(built.read_bytes())}"):
        return None
    try:
        made = ctypes.CDLL(str(built))
    except OSError:
        return None
    return made if all(hasattr(made, name) for name in symbols) else None


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _build(found: str, source: Path, folder: Path, stem: str, flags: tuple[str, ...]) -> Path:
    """Compile, see it on the disk and move it to its place, so that nobody loads half a file."""
    with tempfile.TemporaryDirectory(dir=folder) as room:
        made = Path(room) / f"{stem}.so"
        subprocess.run(
            [found, *FLAGS, str(source), *flags, "-o", str(made)],
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        built = folder / f"{stem}-{_checksum(made.read_bytes())}.so"
        _sync(made)
        made.replace(built)
        _sync(folder)
    return built


def _sync(path: Path) -> None:
    """Return when a file's data, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _processor() -> str:
    """What tells this kind of processor from others."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    kind = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return repr((platform.machine(), platform.processor(), kind))
