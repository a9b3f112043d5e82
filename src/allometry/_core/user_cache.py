"""Folders of the user's own, for what is built on this machine and loaded again as code."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def private_folder(name: str = "") -> Path:
    """The folder `name` of this package's cache, which nobody else can write to.

    Raises:
        OSError: There is no home, no folder can be made in it, or others can write to it.
    """
    folder = _cache() / "allometry"
    for place in (folder, folder / name) if name else (folder,):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        about = place.stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise PermissionError(f"{place} can be written to by others")
    return folder / name


def compiler_cache() -> Path:
    """Where torch's compiler keeps its files from now on: where nobody else can plant any.

    Its default is a folder of a known name in the temporary folder of all users, and it loads what
    lies there. A folder that the user has chosen (`TORCHINDUCTOR_CACHE_DIR`) is left alone. Where
    there is no home, the folder is temporary and lasts as long as this process.
    """
    chosen = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())
    default = chosen.parent / chosen.name.partition("_")[0]  # which torch writes there itself
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
    """The user's cache; a relative `XDG_CACHE_HOME` is to be ignored, says its specification."""
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
