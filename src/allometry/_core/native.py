"""Functions written in C++, built once on the machine that runs them and kept in the cache.

Nothing depends on them: where there is no compiler, or `ALLOMETRY_NATIVE=0` is set, `library` is
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
from pathlib import Path

FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)


def compiler() -> str | None:
    """The C++ compiler of this machine, or the one that `CXX` names; `None` without one."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "c++", "clang++"]
    return next((name for name in names if shutil.which(name)), None)


@functools.cache
def library(source: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """What `source` builds to, or `None` where it can't be built or loaded.

    Built for the processor at hand, of which the file's name keeps a hash, so that machines of
    several kinds may share a home. Only files in a folder that nobody else can write to are
    loaded.

    Args:
        source: One file of C++ whose functions have C names; may include headers beside it.
        flags: More for the compiler: headers and libraries that the file asks for.
    """
    found = compiler()
    if found is None or os.environ.get("ALLOMETRY_NATIVE") == "0":
        return None
    try:
        headers = sorted(source.parent.glob("*.h"))
        text = b"".join(path.read_bytes() for path in (source, *headers))
        name = hashlib.sha256(repr((text, found, FLAGS, flags, _processor())).encode()).hexdigest()
        built = _folder() / f"{source.stem}-{name[:20]}.so"
        if not built.exists():
            _build(found, source, built, flags)
        return ctypes.CDLL(str(built))
    except (OSError, subprocess.SubprocessError):
        return None


def _folder() -> Path:
    """Where built files are kept: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "allometry"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written to by others")
    return folder


def _build(found: str, source: Path, built: Path, flags: tuple[str, ...]) -> None:
    """Compile beside the final place and move there, so that nobody loads half a file."""
    with tempfile.TemporaryDirectory(dir=built.parent) as room:
        made = Path(room) / built.name
        subprocess.run(
            [found, *FLAGS, str(source), *flags, "-o", str(made)],
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        made.replace(built)


def _processor() -> str:
    """What tells this kind of processor from others."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    kind = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return repr((platform.machine(), platform.processor(), kind))
