"""SQLite databases opened read-only with bounded work, and DuckDB for `--sql`."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from allometry._core.delimited import Cells, Sheet
from allometry._core.errors import InputError, require_extra
from allometry._core.user_files import open_regular
from allometry.runs.importers.table_files import MOST_CELLS

SECONDS = 60.0
"""Longest time of one query."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A SQLite database, read-only; a file that is none is refused."""
    with open_regular(path) as file:
        if file.read(16) != b"SQLite format 3\0":
            raise InputError(f"{path} must be a SQLite database; it does not start as one.")
    limit = time.monotonic() + SECONDS
    try:
        # `immutable` keeps SQLite from creating a journal beside the file.
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as base:
            base.execute("pragma trusted_schema=off")
            base.execute("pragma cell_size_check=on")
            base.set_progress_handler(lambda: time.monotonic() > limit, 100_000)
            base.text_factory = lambda data: data.decode("utf-8", "replace")
            yield base
    except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} must be a readable SQLite database; got: {error}.") from None


def tables(base: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of each table of a database."""
    names = [row[0] for row in base.execute("select name from sqlite_master where type='table'")]
    found: dict[str, set[str]] = {}
    for name in names[:500]:
        rows = base.execute("select name from pragma_table_info(?)", [name])
        found[str(name)] = {str(row[0]) for row in rows}
    return found


def query(path: Path, sql: str) -> Sheet:
    """The rows that a query gives, from a SQLite or DuckDB database."""
    with open_regular(path) as file:
        head = file.read(16)
    if head[8:12] == b"DUCK":
        return _duckdb(path, sql)
    with opened(path) as base:
        cursor = base.execute(sql)
        if cursor.description is None:
            raise InputError("--sql must be a query that gives rows, such as select * from runs.")
        names = [str(column[0]) for column in cursor.description]
        return _sheet(path, names, cursor.fetchmany(MOST_CELLS // len(names) + 1))


def _duckdb(path: Path, sql: str) -> Sheet:
    duckdb: Any = require_extra("duckdb", "duckdb")
    try:
        # Without access to other files or the network.
        options = {"enable_external_access": "false"}
        with duckdb.connect(str(path), read_only=True, config=options) as base:
            cursor = base.execute(sql)
            names = [str(column[0]) for column in cursor.description or ()]
            if not names:
                raise InputError("--sql must be a query that gives rows.")
            rows = cursor.fetchmany(MOST_CELLS // len(names) + 1)
    except duckdb.Error as error:
        line = str(error).strip().splitlines()[0]
        raise InputError(f"{path} must be a DuckDB database with these runs; {line}.") from None
    return _sheet(path, names, rows)


def _sheet(path: Path, names: list[str], rows: Sequence[Sequence[Any]]) -> Sheet:
    if not rows:
        raise InputError(f"{path} must hold runs; the query gave no rows.")
    if len(rows) * len(names) > MOST_CELLS:
        raise InputError(f"--sql must give at most {MOST_CELLS:,} cells; got more.")
    cells: Cells = {}
    for i, name in enumerate(names):
        cells.setdefault(name, [row[i] for row in rows])
    twice = frozenset(name for name in names if names.count(name) > 1)
    return Sheet(cells, list(range(1, len(rows) + 1)), "query", twice=twice)


def only_table(path: Path) -> str:
    """The query of all rows of a database's only table."""
    with opened(path) as base:
        names = [name for name in tables(base) if not name.startswith("sqlite_")]
    if len(names) != 1:
        listed = ", ".join(names[:12]) or "none"
        raise InputError(
            f"{path} must have one table; got {listed}. Choose the runs with --sql, such as "
            "--sql 'select * from runs'."
        )
    quoted = names[0].replace('"', '""')
    return f'select * from "{quoted}"'
