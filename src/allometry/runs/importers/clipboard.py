"""A table from the clipboard or from standard input: `allometry fit clipboard`, `... fit -`."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allometry._core.errors import InputError
from allometry._core.user_files import MOST_TABLE, exists

CLIPBOARD, STDIN = "clipboard", "-"

_COMMANDS = (
    ("pbpaste",),
    ("wl-paste", "--no-newline"),
    ("xclip", "-selection", "clipboard", "-o"),
    ("xsel", "--clipboard", "--output"),
    ("powershell.exe", "-NoProfile", "-Command", "Get-Clipboard"),
)
"""Commands that print the clipboard: macOS, Wayland, X11, Windows."""


def is_stream(path: Path | str) -> bool:
    """Whether the name means the clipboard or standard input; a file of that name wins."""
    return str(path) in (CLIPBOARD, STDIN) and not exists(path)


@contextmanager
def as_file(path: Path | str) -> Iterator[Path]:
    """A temporary file with the table of the clipboard or standard input."""
    data = _standard_input() if str(path) == STDIN else _clipboard()
    if not data.strip():
        where = "standard input" if str(path) == STDIN else "the clipboard"
        raise InputError(f"{where} must hold a table with a header line; got nothing.")
    with tempfile.TemporaryDirectory() as folder:
        kind = ".jsonl" if data.lstrip().startswith(b"{") else ".csv"
        made = Path(folder) / f"table{kind}"
        made.write_bytes(data)
        yield made


def _standard_input() -> bytes:
    if sys.stdin.isatty():
        raise InputError("- must read a table from standard input; got a terminal. Pipe a file.")
    data = sys.stdin.buffer.read(MOST_TABLE + 1)
    if len(data) > MOST_TABLE:
        raise InputError(f"standard input must have at most {MOST_TABLE:,} bytes; got more.")
    return data


def _clipboard() -> bytes:
    for command in _COMMANDS:
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(command, capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return done.stdout
    names = ", ".join(command[0] for command in _COMMANDS[:4])
    raise InputError(
        f"The clipboard must be readable by one of {names}; got none that works. Pipe the table "
        "instead: `... fit - < table.csv`."
    )
