"""Tables of runs: CSV, TSV, JSON lines and Parquet, each row with its line in the file."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError, require_extra
from allometry._core.files import storage

Cells = dict[str, Sequence[Any]]


def read_csv(path: Path) -> tuple[Cells, list[int]]:
    """Columns of a CSV or TSV file; the separator is told by its first line."""
    with storage("read", path), path.open(encoding="utf-8-sig", newline="") as file:
        try:
            head = file.readline()
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        if not head.strip():
            raise InputError(f"{path} must have a header line; got an empty file.")
        separator = max("\t;,", key=head.count)
        file.seek(0)
        try:
            reader = csv.reader(file, delimiter=separator)
            names = [name.strip() for name in next(reader)]
            rows, lines = [], []
            for row in reader:
                if row:  # a blank line is nothing; a line of separators is a bad row
                    rows.append(row + [""] * (len(names) - len(row)))
                    lines.append(reader.line_num)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        except csv.Error as error:
            raise InputError(f"{path} must be a CSV file; got {error}.") from error
    if not rows:
        raise InputError(f"{path} must hold runs; got a header and no rows.")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}, lines


def read_jsonl(path: Path) -> tuple[Cells, list[int]]:
    """Columns of a file of JSON objects, one per line; nested objects become `a/b`."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    with storage("read", path), path.open(encoding="utf-8-sig") as file:
        try:
            texts = list(file)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        for line, text in enumerate(texts, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError:
                row = {}
            rows.append(_flat(row) if isinstance(row, dict) else {})
            lines.append(line)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise InputError(f"{path} must hold a JSON object on each line; got none.")
    return {name: [row.get(name) for row in rows] for name in names}, lines


def read_parquet(path: Path) -> tuple[Cells, list[int]]:
    """Columns of a Parquet file; row numbers from 1 stand for lines."""
    require_extra("pyarrow", "parquet")
    import pandas as pd

    with storage("read", path):
        try:
            frame = pd.read_parquet(path)
        except ValueError as error:  # pyarrow's own errors are of this kind
            raise InputError(f"{path} must be a Parquet file; it can't be read as one.") from error
    cells: Cells = {str(name): frame[name].tolist() for name in frame.columns}
    return cells, list(range(1, len(frame) + 1))


def _not_text(path: Path, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{path} must be text in UTF-8; got the byte {error.object[error.start]:#04x}. Is it a "
        "table saved as CSV?"
    )


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{name}/")
        else:
            out[prefix + name] = value
    return out
