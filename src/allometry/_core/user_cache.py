"""Private cache folders for compiled code."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def private_folder(name: str = "") -> Path:
    """The folder `name` in this package's cache, writable only by this user.

    Raises:
        OSError: There is no home folder, it is not writable, or others can write to the cache.
    """
    folder = _cache() / "allometry"
    for path in (folder, folder / name) if name else (folder,):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{path} can be written to by others")
    return folder / name


def compiler_cache() -> Path:
    """Set torch's compiler cache to a private folder and return it.

    Torch's default is a folder of a predictable name in the shared temporary folder, and torch
    loads code from it: another user could plant files there. A folder that the user has chosen
    (`TORCHINDUCTOR_CACHE_DIR`) is kept. Without a home folder, the cache is temporary and is
    deleted when this process ends.
    """
    chosen = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())
    default = chosen.parent / chosen.name.partition("_")[0]  # torch itself sets the variable so
    shared = Path(tempfile.gettempdir())
    if chosen != shared and default != shared / "torchinductor":
        return chosen
    try:
        folder = private_folder("inductor")
        tempfile.TemporaryFile(dir=folder).close()  # it may be read-only
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="allometry-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    return folder


def _cache() -> Path:
    """The user's cache folder; a relative `XDG_CACHE_HOME` is ignored, as XDG specifies."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if chosen.is_absolute():
        return chosen
    try:
        home = Path.home()
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home folder") from error
    if not home.is_absolute():
        raise FileNotFoundError(f"the home folder {home} is not an absolute path")
    return home / ".cache"
