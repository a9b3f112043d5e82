"""Runs that change while a page shows them: refits as they arrive, and tables dropped in.

`LiveRuns` watches one file or folder from a thread and keeps the page of its latest fit. An
uploaded table is fitted once and gets a page of its own; only the last few are kept.
"""

import os
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from allometry._core.errors import AllometryError, InputError
from allometry._core.user_files import shorten

if TYPE_CHECKING:
    from allometry.laws import Law
    from allometry.runs.importers import Imported

SUFFIXES = (".csv", ".tsv", ".json", ".jsonl")
"""Tables that may be dropped in: text, whose size bounds the memory to read it."""

MOST_BYTES = 16 << 20
"""Largest upload."""

MOST_VIEWS = 8
"""Uploaded tables whose pages are kept."""

MOST_WATCHED = 20_000
"""Files of a watched folder that are looked at."""

Fit = Callable[[Path], "tuple[Law, Imported]"]
"""Reads runs and fits a law."""


@final
@dataclass(frozen=True)
class View:
    """A page and its version.

    Args:
        page: The HTML.
        version: Increases with every page of the same runs.
        note: Why the page does not show the latest runs, if it does not.
        waiting: Whether no law could be fitted so far.
    """

    page: bytes
    version: int = 0
    note: str = ""
    waiting: bool = False


@final
class LiveRuns:
    """The pages of runs that change.

    Args:
        path: The file or folder to watch.
        fit: Reads runs and fits a law.
        token: Secret that a page sends with an upload.

    `latest` is the page of the watched runs.
    """

    def __init__(self, path: Path, fit: Fit, token: str) -> None:
        self.path = path
        self.token = token
        self._fit = fit
        self._folder = Path(tempfile.mkdtemp(prefix="allometry-serve-"))
        self._uploads: OrderedDict[str, View] = OrderedDict()
        self._views = threading.Lock()
        self._fitting = threading.Lock()
        self._ended = threading.Event()
        self._seen: object = None
        self.latest = View(self._waiting("Reading the runs ..."), waiting=True)
        self._watcher: threading.Thread | None = None

    def uploaded(self, key: str) -> View | None:
        """The page of an upload; `None` if it is gone."""
        with self._views:
            return self._uploads.get(key)

    def refresh(self) -> None:
        """Fit again if the runs have changed; a failure keeps the page and is noted on it."""
        now = fingerprint(self.path)
        if now == self._seen:
            return
        self._seen = now
        version = self.latest.version + 1
        try:
            with self._fitting:
                page = self._page(self.path, shorten(self.path.name), upload=False)
        except AllometryError as error:
            self._failed(str(error), version)
        except Exception as error:
            self._failed(f"Unexpected {type(error).__name__}: {shorten(error)}", version)
        else:
            self.latest = View(page, version)

    def _failed(self, why: str, version: int) -> None:
        if self.latest.waiting:
            self.latest = View(self._waiting(why), version, waiting=True)
        else:
            self.latest = replace(self.latest, note=f"The latest runs can't be fitted: {why}")

    def watch(self, every: float) -> None:
        """Look at the runs every so many seconds, from a thread, until `close`."""

        def look() -> None:
            while not self._ended.wait(every):
                self.refresh()

        self._watcher = threading.Thread(target=look, name="allometry-watch", daemon=True)
        self._watcher.start()

    def receive(self, name: str) -> Path:
        """A new file in the private folder for a table of this name.

        Raises:
            InputError: If the name does not end like a table of text.
        """
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(
                f"A dropped file must be a table that ends in {', '.join(SUFFIXES)}; got "
                f"{shorten(name)!r}. Give other formats to `allometry serve`."
            )
        handle, path = tempfile.mkstemp(suffix, "upload-", self._folder)
        os.close(handle)
        return Path(path)

    def add(self, path: Path, name: str) -> str:
        """Fit an uploaded table, keep its page, and give the page's name."""
        with self._fitting:
            page = self._page(path, shorten(name), upload=True)
        key = secrets.token_urlsafe(9)
        with self._views:
            self._uploads[key] = View(page, 1)
            while len(self._uploads) > MOST_VIEWS:
                self._uploads.popitem(last=False)
        return key

    def close(self) -> None:
        """End the watching and remove the private folder."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join(timeout=2.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _page(self, path: Path, name: str, *, upload: bool) -> bytes:
        from allometry.report import law_page
        from allometry.report.planner_data import NamedLaw

        law, imported = self._fit(path)
        live = self._live(name, upload=upload) | {"notes": imported.words()}
        return law_page.render(NamedLaw(law), source=name, live=live).encode()

    def _waiting(self, why: str) -> bytes:
        from allometry.report import page_template, planner_data

        live = self._live(shorten(self.path.name), upload=False) | {"notes": []}
        return page_template.fill(
            "waiting.html", planner_data.STYLE, script=("page.js", "live.js"), connects=True,
            title=f"Waiting for runs in {shorten(self.path.name)}", why=why, live=live,
        ).encode()  # fmt: skip

    def _live(self, name: str, *, upload: bool) -> dict[str, Any]:
        return {
            "name": name,
            "upload": upload,
            "token": self.token,
            "suffixes": ",".join(SUFFIXES),
            "most": MOST_BYTES,
            "time": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        }


def fingerprint(path: Path) -> object:
    """Names, sizes and times of a file, or of the files below a folder; changes with them."""
    try:
        if not path.is_dir():
            found = path.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
        total = []
        for at, folders, files in os.walk(path, followlinks=False):
            folders.sort()
            for name in sorted(files):
                found = (Path(at) / name).stat(follow_symlinks=False)
                total.append((at, name, found.st_mtime_ns, found.st_size))
                if len(total) >= MOST_WATCHED:
                    return hash(tuple(total))
        return hash(tuple(total))
    except OSError as error:
        return str(error)
