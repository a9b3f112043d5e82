"""W&B's own files: offline `.wandb` logs, or the `wandb-summary.json` and `config.yaml` of runs.

A `.wandb` file has a header and blocks of 32 KiB, each a sequence of records (checksum, length,
kind, data) as in LevelDB's log. A record that spans blocks comes in parts. Its data is a message
of `wandb_internal.proto`.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError
from allometry._core.user_files import MOST_TABLE, parse_json, read_bytes, read_text
from allometry.runs.importers.protobuf_wire import first, text, whole
from allometry.runs.importers.run_log import Logs, RunLog
from allometry.runs.importers.yaml_subset import read_settings

BLOCK = 32768
_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT = 2, 3, 5, 17, 18


def read_logs(files: Sequence[Path], root: Path) -> Logs:
    """The runs in `.wandb` files."""
    runs = [read_log(file) for file in files]
    # A run that was synchronised or resumed may have several files.
    merged: dict[str, RunLog] = {}
    for key, run in sorted(runs, key=lambda pair: pair[0]):
        before = merged.get(key)
        merged[key] = run if before is None else _joined(before, run)
    kept = [run for run in merged.values() if run.points or run.config]
    if not kept:
        raise InputError(f"{root} must hold runs of W&B; got none.")
    return Logs(kept, "W&B files")


def _joined(before: RunLog, after: RunLog) -> RunLog:
    return RunLog(
        after.name or before.name,
        before.points + after.points,
        before.config | after.config,
        after.status or before.status,
    )


def read_log(path: Path) -> tuple[str, RunLog]:
    """The identifier and the log of the run in a `.wandb` file."""
    data = read_bytes(path, MOST_TABLE)
    if data[:4] != b":W&B":
        raise InputError(f"{path} must be a .wandb file; it does not start as one.")
    points: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    key = name = status = ""
    for record in _records(data):
        try:
            message = whole(record)
            if _HISTORY in message:
                points.append(_point(message))
            for part in message.get(_CONFIG, ()):
                config |= _items(whole(part), 1)
            for part in message.get(_SUMMARY, ()):
                summary |= _items(whole(part), 1)
            for part in message.get(_RUN, ()):
                run = whole(part)
                key, name = text(run, 1) or key, text(run, 8) or name
                for inner in run.get(4, ()):
                    config |= _items(whole(inner), 1)
            for part in message.get(_EXIT, ()):
                status = "crashed" if first(whole(part), 1, int) else "finished"
        except (InputError, AttributeError, TypeError):
            raise InputError(f"{path} must be a .wandb file; a record is damaged.") from None
    config.pop("_wandb", None)
    summary = {k: v for k, v in summary.items() if not k.startswith("_wandb")}
    # Metrics that were only summarised count as settings; a log without an end may still run.
    logged = {name for point in points for name in point}
    config |= {k: v for k, v in summary.items() if k not in logged}
    return key or path.stem, RunLog(name or key or path.stem, points, config, status or "running")


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a log, up to the first torn or damaged one."""
    at, parts = _HEADER, b""
    while at + _HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < _HEADER:
            at += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        end = at + _HEADER + length
        if kind == 0 and length == 0:
            at += left
            continue
        if end > len(data) or length > left - _HEADER or kind > _LAST:
            return
        part = data[at + _HEADER : end]
        found = zlib.crc32(bytes([kind]) + part)
        if checksum not in (found, _masked(found)):  # versions of W&B differ
            return
        at = end
        if kind == _WHOLE:
            yield part
        elif kind == _FIRST:
            parts = part
        else:
            parts += part
            if kind == _LAST:
                yield parts
                parts = b""


def _masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _point(message: dict[int, list[Any]]) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for part in message[_HISTORY]:
        history = whole(part)
        point |= _items(history, 1)
        for step in history.get(2, ()):
            point.setdefault("_step", first(whole(step), 1, int) or 0)
    return point


def _items(message: dict[int, list[Any]], number: int) -> dict[str, Any]:
    """Names and scalar values of a list of items; nested names are joined by points."""
    found: dict[str, Any] = {}
    for part in message.get(number, ()):
        item = whole(part)
        nested = [v.decode("utf-8", "replace") for v in item.get(2, ()) if isinstance(v, bytes)]
        name = ".".join(nested) or text(item, 1)
        try:
            value = parse_json(text(item, 16) or "null", "it")
        except InputError:
            continue
        found |= flat(value, name)
    return found


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The scalars of nested objects by joined names, without recursion."""
    found: dict[str, Any] = {}
    todo = [(name, value)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict):
            joined = f"{name}." if name else ""
            todo += [(f"{joined}{key}", inner) for key, inner in reversed(value.items())]
        elif isinstance(value, str | int | float):
            found[name] = value
    return found


def read_summaries(files: Sequence[Path], root: Path) -> Logs:
    """Runs of which only `wandb-summary.json` and `config.yaml` are left."""
    runs = []
    for file in files:
        summary = parse_json(read_text(file, MOST_TABLE), str(file))
        if not isinstance(summary, dict):
            raise InputError(f"{file} must be a JSON object; got something else.")
        config: dict[str, Any] = {}
        settings = file.with_name("config.yaml")
        if settings.is_file():
            raw = read_settings(read_text(settings), str(settings))
            config = {
                key.removesuffix(".value").replace(".value.", ".", 1): value
                for key, value in raw.items()
                if not key.startswith(("_wandb", "wandb_version")) and not key.endswith(".desc")
            }
        folder = file.parent.parent if file.parent.name == "files" else file.parent
        name = folder.name.rpartition("-")[2] or folder.name
        runs.append(RunLog(name, [flat(summary)], config))
    if not runs:
        raise InputError(f"{root} must hold runs of W&B; got none.")
    return Logs(runs, "W&B files")
