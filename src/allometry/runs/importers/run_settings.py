"""Further settings of runs from a file of the user's: `--config runs.yaml`.

The file maps names of runs to their settings; settings outside a run hold for all runs:

    tokens_per_step: 524288
    my-run-1:
      params: 124e6
    my-run-2:
      params: 350e6
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from allometry._core.delimited import Sheet, read_csv
from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry._core.user_files import parse_json, read_text
from allometry.runs.importers.names import RUN, column_named
from allometry.runs.importers.run_log import Logs
from allometry.runs.importers.yaml_subset import read_settings

Settings = dict[str, dict[str, Any]]


def add_settings(read: Sheet | Logs, path: Path) -> Sheet | Logs:
    """The runs with the settings of a file; a setting replaces a value of the same name.

    Raises:
        InputError: The file names runs, but none of those in the log.
    """
    common, own = _settings(path)
    if isinstance(read, Logs):
        names = [run.name for run in read.runs]
        known = {name: own[key] for name in names if (key := _key(name, own)) is not None}
        _require_match(path, own, known, names)
        runs = [
            replace(run, config=run.config | common | known.get(run.name, {})) for run in read.runs
        ]
        return replace(read, runs=runs)
    column = column_named(list(read.cells), RUN)
    names = [str(v).strip() for v in read.cells[column]] if column is not None else []
    known = {name: own[name] for name in names if name in own}
    _require_match(path, own, known, names)
    cells = dict(read.cells) | {key: [value] * len(read.lines) for key, value in common.items()}
    for key in dict.fromkeys(key for settings in known.values() for key in settings):
        before = cells.get(key, [None] * len(read.lines))
        cells[key] = [
            known.get(name, {}).get(key, old) for name, old in zip(names, before, strict=True)
        ]
    return replace(read, cells=cells)


def _key(name: str, own: Mapping[str, Any]) -> str | None:
    """The entry of a run: by its name, or by the last part of its path."""
    for key in (name, Path(name).name, Path(name).stem):
        if key in own:
            return key
    return None


def _require_match(
    path: Path, own: Mapping[str, Any], known: Mapping[str, Any], names: list[str]
) -> None:
    if own and not known:
        raise InputError(
            f"{path} must name runs of the log, such as {', '.join(names[:4]) or 'none'}; got "
            f"{', '.join(list(own)[:4])}."
        )


def _settings(path: Path) -> tuple[dict[str, Any], Settings]:
    """Settings of all runs, and those of each run by its name."""
    kind = path.suffix.lower()
    if kind == ".csv":
        return {}, _table(path)
    text = read_text(path)
    if kind == ".json":
        data = parse_json(text, str(path))
    elif kind == ".toml":
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"{path} must be TOML; got {error}.") from None
    else:
        data = {}
        for name, value in read_settings(text, str(path)).items():
            run, point, key = name.partition(".")
            if not point:
                data[name] = value
            elif isinstance(own := data.setdefault(run, {}), dict):
                own[key] = value
            else:
                raise InputError(
                    f"{path} must give {run!r} either a value or settings of its own; got both."
                )
    if not isinstance(data, dict) or not data:
        raise InputError(f"{path} must map names of runs to their settings; got nothing.")
    common = {str(k): v for k, v in data.items() if isinstance(v, str | int | float)}
    own = {str(k): dict(v) for k, v in data.items() if isinstance(v, dict)}
    return common, own


def _table(path: Path) -> Settings:
    sheet = read_csv(path)
    column = column_named(list(sheet.cells), RUN)
    if column is None:
        raise InputError(
            f"{path} must have a column `run`; got {', '.join(list(sheet.cells)[:12])}."
        )
    rest = [name for name in sheet.cells if name != column]
    return {
        str(run).strip(): {
            name: value
            for name in rest
            if (value := sheet.cells[name][i]) not in ("", None)
            and not (isinstance(value, float) and math.isnan(number(value)))
        }
        for i, run in enumerate(sheet.cells[column])
    }
