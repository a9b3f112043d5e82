"""All columns of a table as they are: numbers where every cell is one, labels elsewhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from allometry._core.delimited import Sheet
from allometry._core.errors import InputError
from allometry._core.files import storage_errors
from allometry._core.number_parsing import number
from allometry._core.user_files import exists
from allometry.runs.importers import formats
from allometry.runs.importers.loading import matching


def load_columns(
    path: Path | str, *, where: Sequence[str] = (), sql: str | None = None
) -> dict[str, Any]:
    """The columns of a table file: arrays of numbers, or lists of labels.

    A column is numeric if every cell that is not blank is a number; blank cells are missing.

    Args:
        path: A CSV, TSV, JSONL, Parquet or Excel file, or a database.
        where: Use only rows that match all of these `column=value` conditions.
        sql: Query that gives the rows of a database.
    """
    path = Path(path)
    with storage_errors("read", path):
        found = exists(path)
    if not found:
        raise InputError(f"{path} must be a table of runs; got no such path.")
    sheet = formats.read(path, sql)
    if not isinstance(sheet, Sheet):
        raise InputError(
            f"{path} must be a table with a row for each run; got logs of trainings. Write their "
            "final losses to a CSV file."
        )
    sheet = matching(sheet, where)
    good = [i for i in range(len(sheet.lines)) if i not in sheet.bad]
    return {name: _column([cells[i] for i in good]) for name, cells in sheet.cells.items()}


def _column(cells: list[Any]) -> Any:
    texts = ["" if cell is None else str(cell).strip() for cell in cells]
    values = np.array([number(cell) for cell in cells], dtype=float)
    blank = [text.lower() in ("", "nan", "null", "none", "inf", "-inf") for text in texts]
    if all(b or np.isfinite(v) for b, v in zip(blank, values, strict=True)) and not all(blank):
        return values
    return texts
