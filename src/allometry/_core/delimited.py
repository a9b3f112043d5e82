"""Tables in text: CSV and TSV files as columns of cells, each row with its line in the file."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError
from allometry._core.user_files import MOST_TABLE, not_utf8, read_bytes

Cells = dict[str, Sequence[Any]]


@final
@dataclass(frozen=True)
class Sheet:
    """What a file or folder holds, before anything is made of it.

    Args:
        cells: Columns by name.
        lines: The line of each row in its file.
        source: What kind of file it was.
        bad: Rows that can't be read, by their place, with the reason.
        twice: Names that several columns have; the first of them is in `cells`.
    """

    cells: Cells
    lines: list[int]
    source: str
    bad: dict[int, str] = field(default_factory=dict)
    twice: frozenset[str] = frozenset()

    def take(self, rows: Sequence[int]) -> "Sheet":
        """Some of the rows."""
        place = {row: i for i, row in enumerate(rows)}
        return Sheet(
            {name: [column[i] for i in rows] for name, column in self.cells.items()},
            [self.lines[i] for i in rows],
            self.source,
            {place[row]: why for row, why in self.bad.items() if row in place},
            self.twice,
        )


def from_rows(rows: Iterable[dict[str, Any]], source: str) -> Sheet:
    """A sheet of rows that have no lines; numbers from 1 stand for them."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells: Cells = {name: [row.get(name) for row in rows] for name in names}
    return Sheet(cells, list(range(1, len(rows) + 1)), source)


def read_csv(path: Path) -> Sheet:
    """Columns of a CSV or TSV file; the first line shows the separator.

    A row with more cells than the header has names is a bad one: nobody knows which cell is which.
    """
    text = table_text(path)
    separator, text, skipped = separator_of(text)
    if not text.strip():
        raise InputError(f"{path} must have a header line; got an empty file.")
    rows, lines, bad = [], [], {}
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        names = [name.strip() for name in next(reader)]
        for row in reader:
            if not row:  # a blank line is nothing; a line of separators is a bad row
                continue
            if any(cell.strip() for cell in row[len(names) :]):
                bad[len(rows)] = f"it has {len(row)} cells, the header {len(names)} names"
            rows.append(row + [""] * (len(names) - len(row)))
            lines.append(reader.line_num + skipped)
    except (csv.Error, StopIteration) as error:
        raise InputError(f"{path} must be a CSV file; got {error}.") from error
    if not rows:
        raise InputError(f"{path} must hold runs; got a header and no rows.")
    cells: Cells = {}
    for i, name in enumerate(names):
        cells.setdefault(name, [row[i] for row in rows])
    twice = frozenset(
        name
        for name, count in Counter(names).items()
        if count > 1 and any(_column(rows, i) != cells[name] for i in _places(names, name))
    )
    return Sheet(cells, lines, "CSV", bad, twice)


def table_text(path: Path | str) -> str:
    """The text of a table."""
    data = read_bytes(path, MOST_TABLE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{not_utf8(path, error)} Is it a table saved as CSV?") from None


def separator_of(text: str) -> tuple[str, str, int]:
    """What parts the cells, the text from its header on, and the lines before that.

    Excel writes a first line `sep=;` where its separator is not the usual one.
    """
    head, _, rest = text.partition("\n")
    told = re.fullmatch(r"sep=([\t;,|])\s*", head)
    if told:
        return told.group(1), rest, 1
    unquoted = re.sub(r'"[^"]*"', "", head)
    return max("\t;,", key=unquoted.count), text, 0


def _places(names: list[str], name: str) -> list[int]:
    return [i for i, each in enumerate(names) if each == name]


def _column(rows: list[list[str]], i: int) -> list[str]:
    return [row[i] for row in rows]
