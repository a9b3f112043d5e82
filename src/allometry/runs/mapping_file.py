"""Columns and expressions that were chosen for a table, kept in `allometry.toml` for reuse.

[runs."logs/sweep.csv"]
N = "backbone_size"
d_from = "step*524288"
loss = "val/ce"
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.files import atomic_write
from allometry._core.user_files import exists, read_text

NAME = "allometry.toml"
KEYS = ("N", "D", "C", "loss", "n_from", "d_from", "config", "sql", "rows", "unit")
"""Settings of reading that the file keeps; arguments of `allometry.runs.load`."""


def saved_mapping(path: Path | str, file: Path | str = NAME) -> dict[str, str]:
    """The settings that the file has for some runs; empty if it has none.

    Raises:
        InputError: The file is no TOML, or has other settings.
    """
    if not exists(file) or not Path(file).is_file():
        return {}
    try:
        data = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} must be TOML; got {error}.") from None
    runs = data.get("runs", {})
    entry: Any = runs.get(_key(path, file), {}) if isinstance(runs, dict) else {}
    if not isinstance(entry, dict) or not all(
        key in KEYS and isinstance(value, str) for key, value in entry.items()
    ):
        raise InputError(
            f"{file} must give texts for {', '.join(KEYS)} of runs.{_key(path, file)!r}; got "
            f"{entry!r:.80}."
        )
    return dict(entry)


def save_mapping(path: Path | str, settings: dict[str, str], file: Path | str = NAME) -> Path:
    """Write the settings of some runs; other parts of the file are kept."""
    header = f"[runs.{json.dumps(_key(path, file), ensure_ascii=False)}]"
    before = read_text(file) if exists(file) else ""
    # The old entry ends where the next table begins.
    start = before.find(header + "\n")
    if start >= 0:
        following = re.compile(r"^\[", re.MULTILINE).search(before, start + 1)
        before = before[:start] + (before[following.start() :] if following else "")
    lines = [header, *(f"{k} = {json.dumps(v)}" for k, v in settings.items() if k in KEYS)]
    text = before.rstrip() + "\n\n" if before.strip() else ""
    with atomic_write(file) as out:
        out.write(text + "\n".join(lines) + "\n")
    return Path(file)


def _key(path: Path | str, file: Path | str) -> str:
    """The path of the runs as the file names them: relative to it where possible."""
    full, home = Path(path).resolve(), Path(file).resolve().parent
    return full.relative_to(home).as_posix() if full.is_relative_to(home) else full.as_posix()
