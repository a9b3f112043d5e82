"""Read CSV and TSV files as columns of cells; each row keeps its line number."""

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
    """The raw cells of a file or folder.

    Args:
        cells: Columns by name.
        lines: Line number of each row in its file.
        source: Kind of file.
        bad: Reasons why rows can't be read, by row index.
        twice: Names that several columns share; `cells` has the first of them.
    """

    cells: Cells
    lines: list[int]
    source: str
    bad: dict[int, str] = field(default_factory=dict)
    twice: frozenset[str] = frozenset()

    def take(self, rows: Sequence[int]) -> "Sheet":
        """A sheet of the given rows."""
        position = {row: i for i, row in enumerate(rows)}
        return Sheet(
            {name: [column[i] for i in rows] for name, column in self.cells.items()},
            [self.lines[i] for i in rows],
            self.source,
            {position[row]: why for row, why in self.bad.items() if row in position},
            self.twice,
        )


def from_rows(rows: Iterable[dict[str, Any]], source: str) -> Sheet:
    """A sheet of rows without line numbers; they are numbered from 1."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells: Cells = {name: [row.get(name) for row in rows] for name in names}
    return Sheet(cells, list(range(1, len(rows) + 1)), source)


def read_csv(path: Path) -> Sheet:
    """Read a CSV or TSV file; the separator is detected from the first line.

    A row with more cells than the header is bad: its cells can't be assigned to columns.
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
            if not row:  # blank lines are skipped; a line of separators is a bad row
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
        if count > 1
        and any(
            [row[i] for row in rows] != cells[name]
            for i, other in enumerate(names)
            if other == name
        )
    )
    return Sheet(cells, lines, "CSV", bad, twice)


def table_text(path: Path | str) -> str:
    """The text of a table file."""
    data = read_bytes(path, MOST_TABLE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{not_utf8(path, error)} Is it a table saved as CSV?") from None


def separator_of(text: str) -> tuple[str, str, int]:
    """The separator, the text from its header on, and the number of lines before the header.

    Excel writes a first line `sep=;` if it uses an unusual separator.
    """
    head, _, rest = text.partition("\n")
    declared = re.fullmatch(r"sep=([\t;,|])\s*", head)
    if declared:
        return declared.group(1), rest, 1
    unquoted = re.sub(r'"[^"]*"', "", head)
    return max("\t;,", key=unquoted.count), text, 0
