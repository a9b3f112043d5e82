"""TensorBoard's event files: scalars, hyperparameters and the texts that Hugging Face logs.

A file is a sequence of records (length, checksum, data, checksum); the data is an `Event` message
of `event.proto`. No library is needed.
"""

import math
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.user_files import MOST_TABLE, open_regular, parse_json
from allometry.runs.importers.model_size import size_of_config
from allometry.runs.importers.protobuf_wire import first, signed, text, whole
from allometry.runs.importers.run_log import Logs, RunLog

_FLOATS = {1: ("<f", 4), 2: ("<d", 8)}
_LARGEST = 1 << 26


def read_events(files: Sequence[Path], root: Path) -> Logs:
    """One run for each folder of event files; a resumed run has several files in its folder."""
    runs: dict[Path, RunLog] = {}
    tables: dict[Path, dict[int, dict[str, Any]]] = {}
    for file in files:
        folder = file.parent
        if folder not in runs:
            name = str(folder.relative_to(root)) if root in folder.parents else folder.name
            runs[folder] = RunLog(name, [])
        _read(file, tables.setdefault(folder, {}), runs[folder].config)
    for folder, table in tables.items():
        runs[folder].points.extend(table[step] for step in sorted(table) if len(table[step]) > 1)
    kept = [run for run in _with_parents(runs) if run.points]
    if not kept:
        raise InputError(f"{root} must hold TensorBoard scalars; got none.")
    return Logs(kept, "TensorBoard events")


def _with_parents(runs: dict[Path, RunLog]) -> list[RunLog]:
    """Runs with the settings of a run in a folder above; that one is dropped if it has no more."""
    for folder, run in runs.items():
        above = [runs[parent].config for parent in folder.parents if parent in runs]
        for config in above:
            for name, value in config.items():
                run.config.setdefault(name, value)
    return list(runs.values())


def _read(file: Path, table: dict[int, dict[str, Any]], config: dict[str, Any]) -> None:
    """Add the scalars of a file by step and its settings, up to a torn record."""
    try:
        for data in _records(file):
            event = whole(data)
            step = signed(first(event, 2, int) or 0)
            for summary in event.get(5, ()):
                for value in whole(summary).get(1, ()):
                    _add(whole(value), table.setdefault(step, {"step": step}), config)
    except InputError as error:
        if "event file" in str(error):
            raise
        raise InputError(f"{file} must be a TensorBoard event file; it is damaged.") from None
    except (TypeError, AttributeError):
        raise InputError(f"{file} must be a TensorBoard event file; it is damaged.") from None


def _records(file: Path) -> Iterator[bytes]:
    """The data of each record; a torn last one is dropped."""
    with open_regular(file, MOST_TABLE) as data:
        size, at = file.stat().st_size, 0
        while at + 12 <= size:
            (length,) = struct.unpack("<Q", data.read(12)[:8])
            if length > size:
                raise InputError(
                    f"{file} must be a TensorBoard event file; got a record of {length} bytes at "
                    f"{at} in a file of {size}."
                )
            record = data.read(length)
            if len(record) < length:
                return
            data.read(4)
            at += 16 + length
            if length <= _LARGEST:
                yield record


def _add(value: dict[int, list[Any]], point: dict[str, Any], config: dict[str, Any]) -> None:
    """One value of a summary: a scalar, hyperparameters, or a configuration as text."""
    tag = text(value, 1)
    simple = first(value, 2, bytes)
    if simple is not None and len(simple) == 4:
        point[tag] = struct.unpack("<f", simple)[0]
        return
    metadata = whole(first(value, 9, bytes) or b"")
    plugin = whole(first(metadata, 1, bytes) or b"")
    tensor = whole(first(value, 8, bytes) or b"")
    if text(plugin, 1) == "hparams":
        config |= _hyperparameters(first(plugin, 2, bytes) or b"")
    elif tag.endswith("text_summary"):
        config |= _text_settings(tag, text(tensor, 8))
    else:
        number = _tensor_scalar(tensor)
        if math.isfinite(number):
            point[tag] = number


def _tensor_scalar(tensor: dict[int, list[Any]]) -> float:
    kind = first(tensor, 1, int) or 0
    code, size = _FLOATS.get(kind, ("", 0))
    for place in (4, 5, 6):
        raw = first(tensor, place, bytes)
        if code and raw is not None and len(raw) == size:
            return float(struct.unpack(code, raw)[0])
    return math.nan


def _hyperparameters(content: bytes) -> dict[str, Any]:
    """The values that `add_hparams` wrote: a map of names to numbers, texts and booleans."""
    found: dict[str, Any] = {}
    for start in whole(content).get(3, ()):
        for entry in whole(start).get(1, ()):
            pair = whole(entry)
            value = whole(first(pair, 2, bytes) or b"")
            raw = first(value, 2, bytes)
            if raw is not None and len(raw) == 8:
                found[text(pair, 1)] = struct.unpack("<d", raw)[0]
            elif 3 in value:
                found[text(pair, 1)] = text(value, 3)
    return found


def _text_settings(tag: str, content: str) -> dict[str, Any]:
    """Settings in JSON, as Hugging Face logs its arguments and the model's configuration."""
    try:
        made = parse_json(content[:1_000_000], tag)
    except InputError:
        return {}
    if not isinstance(made, dict):
        return {}
    found = {
        f"{re.sub('/?text_summary', '', tag)}.{name}": value
        for name, value in made.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    size = size_of_config(made, tag)
    return found | ({"num_parameters": size.total} if size is not None else {})
