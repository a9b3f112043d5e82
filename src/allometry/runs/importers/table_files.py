"""Read tables of runs: JSON lines and Parquet; each row keeps its line number."""

from collections import Counter
from pathlib import Path
from typing import Any

from allometry._core.delimited import Cells, Sheet, from_rows, table_text
from allometry._core.errors import InputError, require_extra
from allometry._core.user_files import MOST_TABLE, open_regular, parse_json

MOST_CELLS = 50_000_000
"""Largest number of cells of a table: a small file may unpack to any number."""


def read_jsonl(path: Path) -> Sheet:
    """Read a file of JSON objects, one per line; nested objects become columns `a/b`."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: dict[int, str] = {}
    for line, text in enumerate(table_text(path).splitlines(), 1):
        if not text.strip():
            continue
        row: Any = {}
        try:
            row = parse_json(text, "it", unique=True)
            if not isinstance(row, dict):
                row, bad[len(rows)] = {}, "it is not a JSON object"
            row = _flat(row)
        except InputError as error:
            row, bad[len(rows)] = {}, str(error).rstrip(".")
        rows.append(row)
        lines.append(line)
    sheet = from_rows(rows, "JSON lines")
    if not sheet.cells:
        raise InputError(f"{path} must hold a JSON object on each line; got none.")
    if len(rows) * len(sheet.cells) > MOST_CELLS:
        raise InputError(f"{path} must have at most {MOST_CELLS:,} cells; got more.")
    return Sheet(sheet.cells, lines, sheet.source, bad)


def read_parquet(path: Path) -> Sheet:
    """Read a Parquet file; rows are numbered from 1."""
    require_extra("pyarrow", "parquet")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    with open_regular(path, MOST_TABLE) as file:
        try:
            table = ParquetFile(file)
            shape = (table.metadata.num_rows, table.metadata.num_columns)
            if shape[0] * shape[1] > MOST_CELLS:
                raise InputError(
                    f"{path} must have at most {MOST_CELLS:,} cells; got {shape[0]} x {shape[1]}."
                )
            frame = table.read().to_pandas()
        except InputError:
            raise
        # pyarrow's errors, including OSError, and those of types that pandas lacks.
        except (ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(f"{path} must be a Parquet file; it can't be read as one.") from error
    names = [str(name) for name in frame.columns]
    cells: Cells = {}
    for i, name in enumerate(names):
        cells.setdefault(name, frame.iloc[:, i].tolist())
    twice = frozenset(name for name, count in Counter(names).items() if count > 1)
    return Sheet(cells, list(range(1, len(frame) + 1)), "Parquet", twice=twice)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested objects without recursion: a file may nest them to any depth."""
    out: dict[str, Any] = {}
    todo = [("", row)]
    while todo:
        prefix, inner = todo.pop(0)
        for name, value in inner.items():
            if isinstance(value, dict):
                todo.append((f"{prefix}{name}/", value))
            elif f"{prefix}{name}" in out:
                raise InputError(f"it must name {prefix}{name} once; got it twice.")
            else:
                out[prefix + name] = value
    return out
